"""Who goes, and who doesn't: what counts is whether the ring can reach a member, and nobody goes on one word."""

import pytest

from kafila_sidecar.session.coordination.effects import Ask, ComputePlan, GiveWay, GoOn, Proposal, Remove, StandStill
from kafila_sidecar.session.coordination.knowledge import Knowledge
from kafila_sidecar.session.coordination.liveness import HEARING_S, LINK_SILENT_S, LISTEN_S, MOST_FALSE_ALARMS
from kafila_sidecar.session.coordination.mesh import Mesh
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.coordination.states import Ending, State
from kafila_sidecar.session.hosting.coordinator import Coordinator
from kafila_sidecar.session.hosting.losses import ALONE_DEADLINE_S, BeginAnew, Goes, Losses
from kafila_sidecar.session.hosting.losses import ROLL_CALL_S as CALL_OUT_S
from kafila_sidecar.session.hosting.waits import ROLL_CALL_S
from tests.sidecar.session.party import CoreParty

FOUR = ("ada", "bob", "cyd", "dan")


def party_of(*names: str, require: tuple[str, ...] = ()) -> CoreParty:
    party = CoreParty(wanted=len(names), require=require)
    party.measure("ada")
    for name in names[1:]:
        party.join(name)
        party.measure(name)
    assert set(party.serving) == set(names)
    return party


def apart(party: CoreParty, one: str, other: str) -> None:
    """No frame passes between the two any more, and both notice; their mailboxes work."""
    party.broken.add(frozenset((one, other)))
    party.links.discard(frozenset((one, other)))
    for by, accused in ((one, other), (other, one)):
        if by == "ada":
            party.obey(party.coordinator.accused(accused, by, party.now))
        elif accused == "ada":
            party.obey(party.coordinator.doubted(by, party.now))
        else:
            party.accuse(by, accused)
    party.pump()


# ---- A pair that can't exchange frames


@pytest.mark.parametrize("pair", [("bob", "cyd"), ("bob", "dan"), ("cyd", "dan"), ("ada", "bob"), ("ada", "dan")])
def test_pair_when_most_of_the_others_reach_both_then_nobody_is_removed_and_they_are_no_neighbours(
    pair: tuple[str, str],
) -> None:
    party = party_of(*FOUR)
    apart(party, *pair)
    assert party.removed == []
    assert party.closed == {}
    assert frozenset(pair) not in party.proposals[-1].ring
    assert set(party.serving) == set(FOUR)


@pytest.mark.parametrize("cut", FOUR[1:])
def test_member_when_most_of_the_others_cant_reach_it_then_it_goes_and_they_stay(cut: str) -> None:
    party = party_of(*FOUR)
    for other in FOUR:
        if other != cut and cut in party.machines:
            apart(party, other, cut)
    assert party.removed == [(cut, "lost")]
    assert party.machines[cut].ending is Ending.LOST
    assert set(party.closed) == {cut}


def test_pair_when_it_is_apart_again_and_again_then_no_end_is_ever_removed_for_it() -> None:
    party = party_of(*FOUR)
    for _ in range(2 * MOST_FALSE_ALARMS):
        party.broken.clear()
        party.obey(party.coordinator.linked("bob", "cyd", "direct", 0.01, party.now))
        party.obey(party.coordinator.linked("cyd", "bob", "direct", 0.01, party.now))
        apart(party, "bob", "cyd")
    assert party.removed == []
    assert set(party.serving) == set(FOUR)


@pytest.mark.parametrize("is_up_again", [False, True])
def test_pair_when_one_end_says_late_that_it_cannot_reach_the_other_then_they_are_apart_if_that_one_says_so_still(
    is_up_again: bool,
) -> None:
    """What bob said waited for the link that came up in the end."""
    mesh = Mesh()
    losses = Losses("ada", mesh)
    losses.receive_members(FOUR, 0.0)
    losses.receive_accusation("bob", "cyd", 40.0)
    if is_up_again:
        mesh.linked("cyd", "bob", "direct", 0.01)
    mesh.unlinked("bob", "cyd")
    assert BeginAnew() in losses.receive_message("bob", 41.0)
    assert mesh.is_apart(frozenset(("bob", "cyd"))) is not is_up_again


def test_accuser_when_each_end_it_accuses_was_down_and_its_own_is_up_again_then_none_of_it_was_a_false_alarm() -> None:
    mesh = Mesh()
    losses = Losses("ada", mesh)
    losses.receive_members(FOUR, 0.0)
    for alarm in range(2 * MOST_FALSE_ALARMS):
        now, accused = 40.0 * (alarm + 1), FOUR[1 + alarm % 2 * 2]
        losses.receive_accusation(accused, "cyd", now)
        mesh.linked("cyd", accused, "direct", 0.01)
        mesh.unlinked(accused, "cyd")
        assert losses.receive_message(accused, now + 1) == [BeginAnew()]
        mesh.linked(accused, "cyd", "direct", 0.01)


def test_pair_when_it_was_apart_while_the_host_listened_and_another_epoch_began_since_then_none_for_it() -> None:
    party = party_of(*FOUR)
    party.advance(60.0)
    party.coordinator.woke(party.now)
    apart(party, "ada", "bob")
    for one, other in (("ada", "bob"), ("bob", "ada")):
        party.obey(party.coordinator.linked(one, other, "direct", 0.01, party.now))
    party.obey(party.coordinator.doubted("cyd", party.now))  # a false alarm: cyd has ended its epoch
    party.advance(1.0)
    assert set(party.serving) == set(FOUR)
    begun = len(party.proposals)
    party.advance(2 * LISTEN_S)
    assert len(party.proposals) == begun


def test_alarm_when_the_other_end_says_later_that_the_link_is_down_too_then_it_was_true() -> None:
    party = party_of(*FOUR)
    for _ in range(MOST_FALSE_ALARMS - 1):
        party.accuse("cyd", "bob")
        party.coordinator.unlinked("bob", "cyd", party.now)
        party.obey(party.coordinator.linked("bob", "cyd", "direct", 0.01, party.now))
    party.accuse("cyd", "dan")
    assert party.removed == []


@pytest.mark.parametrize("host_knows", [False, True])
def test_link_when_it_breaks_then_its_two_ends_do_not_both_leave(host_knows: bool) -> None:
    party = party_of("ada", "bob", "cyd")
    apart(party, "bob", "cyd")
    if host_knows:
        party.coordinator.unlinked("bob", "cyd", party.now)
    party.advance(HEARING_S)
    assert party.removed == []
    assert len(party.proposals[-1].plan.order) == 2
    assert set(party.serving) == {"ada", "bob", "cyd"}


def test_session_that_served_when_two_it_requires_cant_reach_each_other_then_it_goes_on_as_after_a_loss() -> None:
    party = party_of("ada", "bob", "cyd", require=("all",))
    apart(party, "bob", "cyd")
    party.advance(HEARING_S)
    assert (party.removed, party.closed) == ([], {})
    assert len(party.proposals[-1].plan.order) == 2
    assert set(party.serving) == {"ada", "bob", "cyd"}


# ---- Frames that break the rules


def test_complaint_when_one_member_has_it_then_the_two_are_no_neighbours_and_nobody_goes() -> None:
    party = party_of(*FOUR)
    party.obey(party.coordinator.misbehaved("bob", "cyd", party.now))
    assert party.removed == []
    assert frozenset(("bob", "cyd")) not in party.proposals[-1].ring
    party.obey(party.coordinator.misbehaved("bob", "cyd", party.now))
    assert party.removed == []


def test_complaint_when_two_members_have_it_of_one_then_that_one_goes_by_name() -> None:
    party = party_of(*FOUR)
    for _ in range(2):
        party.obey(party.coordinator.misbehaved("cyd", party.proposals[-1].next_after("cyd"), party.now))
    assert party.removed == [("cyd", "removed")]


def test_complaint_when_one_member_has_it_of_several_then_it_goes_itself() -> None:
    losses = Losses("ada", Mesh())
    losses.receive_members(FOUR, 0.0)
    judged = [losses.receive_complaint(accused, "bob") for accused in ("cyd", "dan")]
    assert judged == [[BeginAnew()], [Goes("bob", "removed")]]


@pytest.mark.parametrize(("accused", "by"), [("cyd", "bob"), ("dan", "bob"), ("ada", "dan"), ("ada", "cyd")])
def test_complaint_when_its_author_gets_no_frames_from_the_accused_then_nothing_follows(accused: str, by: str) -> None:
    party = party_of(*FOUR)
    assert party.coordinator.misbehaved(accused, by, party.now) == []
    assert party.proposals[-1].next_after(accused) != by


@pytest.mark.parametrize(("accused", "by"), [("bob", "bob"), ("zoe", "bob"), ("bob", "zoe")])
def test_complaint_when_it_makes_no_sense_then_nothing_follows(accused: str, by: str) -> None:
    party = party_of(*FOUR)
    assert party.coordinator.misbehaved(accused, by, party.now) == []


# ---- A host without a majority


def five_heard(*heard: str) -> tuple[Coordinator, dict[str, float]]:
    party = party_of("ada", "bob", "cyd", "dan", "eve")
    party.advance(60.0)
    return party.coordinator, {name: 0.5 if name in heard else 90.0 for name in ("bob", "cyd", "dan", "eve")}


def test_host_when_it_hears_too_few_then_it_removes_nobody_stands_still_and_gives_way_in_the_end() -> None:
    coordinator, silent_s = five_heard("bob")
    now = 60.0 + 90.0
    outputs = coordinator.handle_timer(now, silent_s)
    for name in ("cyd", "dan", "eve"):
        outputs += coordinator.lost(name, "lost", now)
    assert not [one for one in outputs if isinstance(one, Remove)]
    still = coordinator.handle_timer(now + CALL_OUT_S, {**silent_s, "bob": 0.5})
    assert [type(one) for one in still] == [StandStill]
    assert "hears only 2 of 5" in still[0].fault.sentence  # type: ignore[union-attr]
    assert coordinator.next_timer() == now + CALL_OUT_S + ALONE_DEADLINE_S
    ended = coordinator.handle_timer(now + CALL_OUT_S + ALONE_DEADLINE_S, {**silent_s, "bob": 0.5})
    assert [type(one) for one in ended] == [GiveWay]


def test_missing_when_one_of_them_is_heard_and_makes_the_majority_then_it_stays_and_the_others_go() -> None:
    losses = Losses("ada", Mesh())
    losses.receive_members(FOUR[:3], 0.0)
    assert not [one for name in ("bob", "cyd") for one in losses.receive_loss(name, 40.0) if isinstance(one, Goes)]
    losses.receive_silence({"cyd": 0.1}, 41.0)  # its link has come up again, and it has said nothing yet
    assert losses.handle_timer(41.0) == [Goes("bob", "lost"), BeginAnew()]


def test_missing_when_it_was_heard_just_before_it_was_found_dead_then_it_goes_at_once() -> None:
    losses = Losses("ada", Mesh())
    losses.receive_members(FOUR[:3], 0.0)
    losses.receive_silence({"bob": 1.5, "cyd": 0.1}, 40.0)
    assert losses.receive_loss("bob", 40.0) == [Goes("bob", "lost")]


def test_host_when_it_hears_more_than_half_again_then_it_waits_a_little_for_the_rest_and_plans_anew() -> None:
    coordinator, silent_s = five_heard("bob")
    now = 150.0
    coordinator.handle_timer(now, silent_s)
    for name in ("cyd", "dan", "eve"):
        coordinator.lost(name, "lost", now)
    coordinator.handle_timer(now + CALL_OUT_S, {**silent_s, "bob": 0.5})
    now += CALL_OUT_S + 1.0
    outputs = coordinator.heard("cyd", now)
    assert {one.member for one in outputs if isinstance(one, Ask)} == {"dan", "eve"}
    assert coordinator.next_timer() == now + HEARING_S
    coordinator.heard("dan", now + 1.0)
    outputs = coordinator.handle_timer(now + HEARING_S, dict.fromkeys(("bob", "cyd", "dan"), 0.5))
    assert {one.member for one in outputs if isinstance(one, Remove)} == {"eve"}
    assert outputs[0] == GoOn()
    assert [one for one in outputs if isinstance(one, ComputePlan)]


def test_host_when_who_it_put_out_may_be_with_others_then_it_goes_on_once_that_one_says_that_it_knows() -> None:
    """Cut off together, bob and cyd may have gone on without it; cyd is gone."""
    party = party_of(*FOUR)
    party.advance(60.0)
    party.now += 2.0
    party.write_log(("ada", "cyd", "dan"), anew=True)
    coordinator, now = party.coordinator, party.now + 30.0
    silent_s = {"dan": 0.5, "cyd": 60.0}
    assert not [one for one in coordinator.lost("cyd", "lost", now) if isinstance(one, Remove)]
    [still] = coordinator.handle_timer(now + CALL_OUT_S, silent_s)
    assert isinstance(still, StandStill)
    coordinator.knows_it_is_out("bob", now + 10.0)
    outputs = coordinator.handle_timer(now + 10.0, silent_s)
    outputs += coordinator.handle_timer(now + 10.0 + HEARING_S, silent_s)
    assert [one.member for one in outputs if isinstance(one, Remove)] == ["cyd"]
    assert GoOn() in outputs


@pytest.mark.parametrize("size", range(2, 9))
def test_majority_when_the_session_is_cut_in_two_then_at_most_one_side_goes_on(size: int) -> None:
    """The host's side needs more than half of all, the other more than half of all but the host."""
    for with_host in range(1, size):
        others = size - with_host
        host_goes_on = size == 2 or 2 * with_host > size
        others_go_on = size > 2 and 2 * others > size - 1
        assert not (host_goes_on and others_go_on)
        assert host_goes_on or others_go_on


def test_host_of_two_when_the_other_is_lost_then_it_goes_on_alone_and_the_other_never_succeeds_it() -> None:
    party = party_of("ada", "bob")
    party.kill("bob")
    party.advance(3.0)
    assert party.removed == [("bob", "lost")]
    assert party.machines["ada"].state is State.READY


def test_host_when_it_stood_still_and_is_the_follower_too_then_it_serves_nothing() -> None:
    party = party_of("ada", "bob", "cyd")
    for name in ("bob", "cyd"):
        party.kill(name)
    party.advance(LINK_SILENT_S)
    party.advance(CALL_OUT_S)
    assert party.removed == []
    assert party.machines["ada"].state is State.REPLANNING
    assert "ada" not in party.serving
    assert "waiting for bob, cyd" in party.machines["ada"].shortage
    party.advance(ALONE_DEADLINE_S)
    assert party.machines["ada"].ending is Ending.LOST


def test_host_when_it_hears_too_few_for_long_then_it_is_ready_at_no_moment_until_it_hears_enough() -> None:
    party = party_of("ada", "bob", "cyd", "dan")
    for name in ("bob", "cyd", "dan"):
        party.kill(name)
    party.advance(LINK_SILENT_S)
    for pair in (("ada", "bob"), ("ada", "cyd"), ("ada", "dan")):
        party.coordinator.unlinked(*pair, party.now)
    while party.now < LINK_SILENT_S + ALONE_DEADLINE_S - 5.0:
        party.advance(5.0)
        assert party.machines["ada"].state is State.REPLANNING
        assert party.removed == []
    for _ in range(2):
        for name in ("bob", "cyd"):
            party.obey(party.coordinator.heard(name, party.now))
        party.pump()
        party.now += HEARING_S
    assert party.removed == [("dan", "lost")]
    assert party.machines["ada"].state is not State.REPLANNING


# ---- A host without rendezvous and links


def test_host_when_neither_the_rendezvous_nor_a_majority_is_heard_then_silence_alone_makes_it_stand_still() -> None:
    coordinator, _ = five_heard("bob")
    coordinator.rendezvous_lost(150.0)
    assert coordinator.handle_timer(150.0, {"bob": 0.0, "cyd": 0.0}) == []
    now = coordinator.next_timer()
    assert now == 150.0 + LINK_SILENT_S
    called = coordinator.handle_timer(now, {"bob": 0.0})
    assert {one.member for one in called if isinstance(one, Ask)} == {"cyd", "dan", "eve"}
    still = coordinator.handle_timer(now + CALL_OUT_S, {"bob": 0.0})
    assert [type(one) for one in still] == [StandStill]


@pytest.mark.parametrize("word", ["a link", "an answer", "the rendezvous"])
def test_host_when_something_is_heard_in_time_then_it_goes_on(word: str) -> None:
    coordinator, _ = five_heard("bob")
    coordinator.rendezvous_lost(150.0)
    now = 150.0 + LINK_SILENT_S
    coordinator.handle_timer(now, {"bob": 0.0})
    match word:
        case "a link":
            coordinator.handle_timer(now, {"bob": 0.0, "cyd": 0.0})
        case "an answer":
            coordinator.heard("dan", now + 0.5)
        case "the rendezvous":
            coordinator.rendezvous_back()
    silent_s = {"bob": 0.0, **({"cyd": 0.0} if word == "a link" else {})}
    assert coordinator.handle_timer(now + CALL_OUT_S, silent_s) == []


def test_host_when_it_slept_without_a_rendezvous_then_the_silence_counts_from_its_waking() -> None:
    coordinator, _ = five_heard()
    coordinator.rendezvous_lost(150.0)
    coordinator.woke(400.0)
    assert coordinator.handle_timer(400.0 + LINK_SILENT_S - 0.1) == []
    assert coordinator.next_timer() == 400.0 + LINK_SILENT_S


def test_host_of_two_when_nothing_is_heard_then_it_goes_on_alone() -> None:
    coordinator = party_of("ada", "bob").coordinator
    coordinator.rendezvous_lost(150.0)
    assert coordinator.handle_timer(500.0) == []


# ---- One's own sleep


def test_host_when_it_wakes_then_it_judges_nobody_before_it_has_listened() -> None:
    party = party_of("ada", "bob", "cyd")
    party.now += 22.0
    ada = party.machines["ada"]
    ada.liveness.woke(party.now)
    party.coordinator.woke(party.now)
    for name in ("bob", "cyd"):
        ada.liveness.receive_departure(name, party.now)
    assert ada.handle_timer(party.now + LISTEN_S - 0.1, {"bob": 5.0, "cyd": 5.0}) == []
    assert ada.next_timer(party.now, {"bob": 5.0}) == party.now + LISTEN_S
    assert party.coordinator.lost("bob", "lost", party.now + 1.0) == []
    for name in ("bob", "cyd"):
        ada.liveness.receive_return(name)
        party.obey(party.coordinator.heard(name, party.now + 2.0))
    assert ada.handle_timer(party.now + LISTEN_S, {"bob": 0.1, "cyd": 0.1}) == []
    assert party.coordinator.handle_timer(party.now + LISTEN_S, {"bob": 0.1, "cyd": 0.1}) == []
    assert party.removed == []


@pytest.mark.parametrize("mended", [False, True])
def test_host_when_it_wakes_then_who_missed_it_meanwhile_gets_a_plan_and_a_link_counts_as_down_if_it_stays_so(
    mended: bool,
) -> None:
    party = party_of(*FOUR)
    party.do("bob", party.machines["bob"].handle_timer(party.now, {"ada": LINK_SILENT_S}))
    assert party.machines["bob"].state is State.REPLANNING
    plans = len(party.proposals)
    party.coordinator.woke(party.now)
    apart(party, "ada", "bob")
    assert party.coordinator.next_timer() == party.now + LISTEN_S
    if mended:
        party.broken.clear()
        for one, other in (("ada", "bob"), ("bob", "ada")):
            party.obey(party.coordinator.linked(one, other, "direct", 0.01, party.now))
    party.advance(LISTEN_S)
    assert len(party.proposals) > plans
    assert (frozenset(("ada", "bob")) in party.proposals[-1].ring) == mended
    assert set(party.serving) == set(FOUR)


# ---- A successor


def knowing(*names: str) -> Knowledge:
    knows = Knowledge()
    for name in names:
        knows.measured(name, {"memory_bytes": 1})
    return knows


def successor(knows: Knowledge) -> Coordinator:
    terms = PlanningTerms(members_wanted=4, model={"blocks": 3}, context_tokens=64, concurrency=1)
    return Coordinator(name="bob", terms=terms, takeovers=1, started=True, knowledge=knows)


def test_successor_when_everybody_answers_then_it_plans_at_once_with_what_it_knew() -> None:
    coordinator = successor(knowing("bob", "cyd", "dan"))
    assert not [o for o in coordinator.members_changed(("bob", "cyd", "dan"), 0.0) if isinstance(o, ComputePlan)]
    coordinator.heard("cyd", 0.1)
    (plan,) = coordinator.heard("dan", 0.2)
    assert isinstance(plan, ComputePlan)
    assert [member["name"] for member in plan.problem["members"]] == ["bob", "cyd", "dan"]


def test_successor_when_another_member_died_with_the_host_then_it_waits_for_no_word_of_the_dead() -> None:
    knows = knowing("bob", "cyd", "dan")
    knows.mesh.linked("bob", "cyd", "direct", 0.02)
    coordinator = successor(knows)
    coordinator.members_changed(("bob", "cyd", "dan"), 0.0)
    coordinator.heard("cyd", 0.1)
    assert coordinator.next_timer() == ROLL_CALL_S
    outputs = coordinator.handle_timer(ROLL_CALL_S, {"cyd": 0.1})
    (plan,) = [one for one in outputs if isinstance(one, ComputePlan)]
    assert [member["name"] for member in plan.problem["members"]] == ["bob", "cyd"]
    assert [edge["between"] for edge in plan.problem["edges"]] == [["bob", "cyd"]]


def test_successor_when_somebody_said_start_or_was_set_aside_before_then_that_holds() -> None:
    knows = knowing("bob", "cyd", "dan")
    knows.has_begun, knows.aside["dan"] = True, "dan could not be linked in time"
    terms = PlanningTerms(members_wanted=9, model={"blocks": 3}, context_tokens=64, concurrency=1, require=("zoe",))
    coordinator = Coordinator(name="bob", terms=terms, takeovers=1, knowledge=knows)
    coordinator.members_changed(("bob", "cyd", "dan"), 0.0)
    outputs = coordinator.heard("cyd", 0.1)
    (plan,) = [one for one in outputs if isinstance(one, ComputePlan)]
    assert [member["name"] for member in plan.problem["members"]] == ["bob", "cyd"]


@pytest.mark.parametrize("second", ["cyd", "dan", "bob"])
def test_session_of_four_when_host_and_another_die_together_then_the_rest_serve_within_seconds(second: str) -> None:
    party = party_of(*FOUR)
    party.kill("ada")
    party.kill(second)
    for _ in range(8):
        party.advance(1.0)
    left = set(FOUR) - {"ada", second}
    assert party.closed == {}
    assert {name for name in party.serving if name in party.machines} == left
    assert {proposal.plan.order for proposal in party.proposals[-1:]} == {tuple(sorted(left))}
    assert (second, "lost") in party.removed
    assert isinstance(party.proposals[-1], Proposal)
