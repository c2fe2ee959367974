"""The host's decisions and every member's view of them, joined by a pump with a hand-moved clock."""

from random import Random

import pytest

from kafila_planner import Refusal
from kafila_sidecar.session.coordination.effects import (
    Accuse,
    AwaitMemory,
    ComputePlan,
    CoordinatorOutput,
    Dissolve,
    Fault,
    LetFetch,
    Propose,
    StopServing,
)
from kafila_sidecar.session.coordination.knowledge import Knowledge
from kafila_sidecar.session.coordination.liveness import LINK_SILENT_S
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.coordination.states import Decision, Phase, State, Step, decide, follow
from kafila_sidecar.session.hosting.coordinator import Coordinator
from kafila_sidecar.session.hosting.waits import (
    FETCH_SILENCE_S,
    LINK_DEADLINE_S,
    MEASURE_DEADLINE_S,
    SHORT_DEADLINE_S,
)
from tests.sidecar.session.party import NAMES, CoreParty, formed, plan_for


def test_session_when_everybody_measured_then_all_serve_the_same_epoch() -> None:
    party = formed()
    assert {follower.state for follower in party.machines.values()} == {State.READY}
    assert len(set(party.serving.values())) == 1
    assert sorted(party.loads) == sorted(NAMES)


def test_session_when_one_measurement_is_missing_then_nobody_plans() -> None:
    party = CoreParty()
    party.measure("ada")
    party.join("bob")
    party.join("cyd")
    party.measure("cyd")
    assert party.proposals == []
    assert party.coordinator.waiting_for() == ["bob"]


def test_session_when_links_stand_then_the_plan_carries_their_round_trips() -> None:
    last = formed().proposals[-1]
    assert {edge.between for edge in last.problem.edges} == {
        ("ada", "bob"),
        ("ada", "cyd"),
        ("bob", "cyd"),
    }
    assert all(edge.rtt_s == 0.01 for edge in last.problem.edges)


@pytest.mark.parametrize("seed", range(50))
def test_session_when_decisions_overtake_each_other_then_all_serve(seed: int) -> None:
    party = formed(shuffle=Random(seed))
    assert {follower.state for follower in party.machines.values()} == {State.READY}
    assert set(party.serving) == set(NAMES)


def test_session_when_a_required_link_is_missing_then_no_weight_moves_and_the_error_names_the_pair() -> None:
    party = CoreParty(require=("all",))
    party.broken.add(frozenset(("bob", "cyd")))
    party.measure("ada")
    for name in NAMES[1:]:
        party.join(name)
        party.measure(name)
    assert party.loads == []
    party.advance(LINK_DEADLINE_S)
    assert set(party.closed) == set(NAMES)
    assert "bob to cyd" in party.closed["ada"].sentence  # type: ignore[union-attr]


def test_session_when_nobody_measures_whom_it_requires_then_it_gives_up_and_names_who() -> None:
    party = CoreParty(require=("bob", "cyd"))
    party.measure("ada")
    party.join("bob")
    party.join("cyd")
    party.advance(MEASURE_DEADLINE_S)
    fault = party.closed["ada"]
    assert fault is not None
    assert (fault.code, "bob, whom this session requires" in fault.sentence) == ("DEADLINE_EXCEEDED", True)


def test_session_when_a_member_leaves_before_it_measured_then_it_waits_for_another_without_a_deadline() -> None:
    party = CoreParty()
    party.measure("ada")
    party.join("bob")
    party.measure("bob")
    party.join("cyd")
    party.write_log(("ada", "bob"))
    party.advance(MEASURE_DEADLINE_S + 1)
    assert set(party.closed) == {"cyd"}
    party.join("dan")
    party.measure("dan")
    assert set(party.serving) == {"ada", "bob", "dan"}


def test_session_when_the_model_is_too_large_then_everybody_hears_the_same_sentence() -> None:
    party = formed(blocks=1000)
    faults = {fault for fault in party.closed.values() if fault}
    assert set(party.closed) == set(NAMES)
    assert faults == {Fault("cyd", "FAILED_PRECONDITION", "too large: a smaller model")}


def test_session_when_a_required_member_cant_come_any_more_then_it_ends_in_words() -> None:
    party = CoreParty(require=("all", "bob", "zoe"))
    for name in NAMES[1:]:
        party.join(name)
    assert {fault.sentence.split(":")[0] for fault in party.closed.values() if fault} == {
        "zoe is required but is not among the members, ada, bob, cyd, and all places are taken"
    }
    assert set(party.closed) == set(NAMES)


def test_session_when_started_without_a_required_member_then_it_goes_on_without() -> None:
    party = CoreParty(require=("zoe",))
    party.join("bob")
    party.obey(party.coordinator.start(party.now))
    for name in ("ada", "bob"):
        party.measure(name)
    assert party.proposals[-1].problem.require == frozenset()


def test_session_when_a_stage_dies_then_all_stop_naming_it_and_plan_again_without_it() -> None:
    party = formed()
    before = party.serving["ada"]
    party.kill("bob")
    party.advance(3.0)
    assert "bob" in party.stopped["ada"].sentence
    assert "bob" in party.stopped["cyd"].sentence
    assert party.serving["ada"] == party.serving["cyd"] > before
    assert party.proposals[-1].plan.order == ("ada", "cyd")


def test_follower_when_only_the_link_is_silent_then_it_waits_for_fifteen_seconds() -> None:
    follower = formed().machines["ada"]
    assert follower.handle_timer(20.0, {"bob": LINK_SILENT_S - 1}) == []
    assert [type(o) for o in follower.handle_timer(20.0, {"bob": LINK_SILENT_S})] == [StopServing, Accuse]


def test_session_when_started_early_then_those_present_form_it_and_a_latecomer_is_an_entry_point() -> None:
    party = CoreParty(wanted=3)
    party.measure("ada")
    party.join("bob")
    party.measure("bob")
    assert party.proposals == []
    party.obey(party.coordinator.start(party.now))
    party.pump()
    assert set(party.serving) == {"ada", "bob"}
    party.join("cyd")
    party.measure("cyd")
    assert party.serving["cyd"] == party.serving["ada"]
    assert frozenset(("ada", "cyd")) in party.links
    assert "cyd" not in party.loads


def test_coordinator_when_a_required_member_stops_fetching_then_it_gives_up_and_names_it() -> None:
    party = CoreParty(require=("cyd",))
    coordinator = party.coordinator
    for name in NAMES[1:]:
        coordinator.members_changed((*coordinator.members, name), 0.0)
    outputs: list[CoordinatorOutput] = []
    for name in NAMES:
        outputs += coordinator.measured(name, {}, 0.0)
    ask = next(o for o in outputs if isinstance(o, ComputePlan))
    coordinator.planned(ask.epoch, plan_for(ask), 0.0)
    for pair in (("ada", "bob"), ("bob", "cyd"), ("ada", "cyd")):
        outputs = coordinator.linked(*pair, "direct", 0.01, 0.0)
    again = next(o for o in outputs if isinstance(o, ComputePlan))
    outputs = coordinator.planned(again.epoch, plan_for(again), 0.0)
    assert [type(o) for o in outputs] == [Propose, LetFetch]
    coordinator.progressed("ada", again.epoch, "ready", 0.0)
    coordinator.progressed("bob", again.epoch, "ready", 0.0)
    coordinator.progressed("cyd", again.epoch, "fetching", 100.0)
    assert coordinator.handle_timer(FETCH_SILENCE_S + 1) == []
    gave_up = coordinator.handle_timer(100.0 + FETCH_SILENCE_S + FETCH_SILENCE_S / 4 + 1)
    assert [(type(o), o.fault.member) for o in gave_up if isinstance(o, Dissolve)] == [(Dissolve, "cyd")]


def test_follow_when_a_step_has_no_place_then_it_raises() -> None:
    with pytest.raises(RuntimeError, match="ready"):
        follow(State.READY, Step.LOADED)
    with pytest.raises(RuntimeError, match="closed"):
        follow(State.CLOSED, Step.CLOSE)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("decision", Decision)
def test_decide_when_a_host_is_done_with_a_phase_then_only_what_the_table_has(phase: Phase, decision: Decision) -> None:
    """A plan can be made anew at any time after the first; what is closed stays closed."""
    allowed = {
        Phase.FORMING: {Decision.WAIT, Decision.MEASURE, Decision.DISSOLVE},
        Phase.MEASURING: {Decision.WAIT, Decision.PLAN, Decision.DISSOLVE},
        Phase.PLANNING: {Decision.WAIT, Decision.PLAN, Decision.PROPOSE, Decision.DISSOLVE},
        Phase.LINKING: {Decision.PLAN, Decision.ASK, Decision.FETCH, Decision.DISSOLVE},
        Phase.CHOOSING: {Decision.PLAN, Decision.PROPOSE, Decision.DISSOLVE},
        Phase.FETCHING: {Decision.PLAN, Decision.SERVE, Decision.DISSOLVE},
        Phase.READY: {Decision.PLAN, Decision.DISSOLVE},
        Phase.CLOSED: set[Decision](),
    }
    if decision in allowed[phase]:
        assert isinstance(decide(phase, decision), Phase)
    else:
        with pytest.raises(RuntimeError, match=f"{phase} can't decide to {decision}"):
            decide(phase, decision)


def test_coordinator_when_it_fetches_then_its_timer_is_the_silence_of_whoever_spoke_longest_ago() -> None:
    party = CoreParty(slow={"cyd"}, require=("cyd",))
    party.measure("ada")
    for name in NAMES[1:]:
        party.join(name)
        party.measure(name)
    assert party.coordinator.waiting_for() == ["cyd"]
    assert party.coordinator.next_timer() == FETCH_SILENCE_S
    party.coordinator.progressed("cyd", party.proposals[-1].epoch, "fetching", 50.0)
    assert party.coordinator.next_timer() == 50.0 + FETCH_SILENCE_S
    assert party.coordinator.handle_timer(50.0 + FETCH_SILENCE_S - 0.1) == []
    assert [type(output) for output in party.coordinator.handle_timer(50.0 + FETCH_SILENCE_S)] == [Dissolve]


def test_session_that_was_ready_when_the_rest_cant_hold_the_model_then_it_waits_for_who_was_lost_and_goes_on() -> None:
    party = formed()
    host, now = party.coordinator, party.now
    asked = [one for one in host.members_changed(("ada", "bob"), now) if isinstance(one, ComputePlan)][-1]
    short = host.planned(asked.epoch, Refusal("208 MB short", "", 1, ()), now)
    assert [(type(one), one.fault.sentence) for one in short if isinstance(one, AwaitMemory)] == [
        (AwaitMemory, "208 MB short; lost and not back yet: cyd")
    ]
    assert host.next_timer() == now + SHORT_DEADLINE_S
    host.members_changed(("ada", "bob", "cyd"), now)
    entry = next(member for member in asked.problem["members"] if member["name"] == "bob")
    assert [one for one in host.measured("cyd", {**entry, "name": "cyd"}, now) if isinstance(one, ComputePlan)]


def test_session_that_was_ready_when_nobody_comes_back_for_seven_days_then_it_ends_in_words() -> None:
    party = formed()
    host, began = party.coordinator, party.now

    def falls_short(members: tuple[str, ...], now: float) -> None:
        asked = [one for one in host.members_changed(members, now) if isinstance(one, ComputePlan)]
        entry = {**asked[-1].problem["members"][0], "name": "dan"} if asked else {"name": "dan", "memory_bytes": 1}
        asked += [one for one in host.measured("dan", entry, now) if isinstance(one, ComputePlan)] if not asked else []
        host.planned(asked[-1].epoch, Refusal("208 MB short", "", 1, ()), now)

    falls_short(("ada", "bob"), began)
    falls_short(("ada", "bob", "dan"), began + 86400.0)  # who brings too little
    assert host.next_timer() == began + SHORT_DEADLINE_S
    assert host.handle_timer(began + SHORT_DEADLINE_S - 1.0) == []
    (end,) = host.handle_timer(began + SHORT_DEADLINE_S)
    assert isinstance(end, Dissolve)
    assert end.fault.sentence == "gave up after 7 days: 208 MB short; lost and not back yet: cyd"


def test_successor_when_members_were_lost_before_it_took_over_then_it_names_them_until_they_are_back() -> None:
    knows = Knowledge()
    for name in ("bob", "cyd"):
        knows.measured(name, {"memory_bytes": 1})
    terms = PlanningTerms(members_wanted=4, model={"blocks": 3}, context_tokens=64, concurrency=1)
    heir = Coordinator(name="bob", terms=terms, takeovers=1, started=True, knowledge=knows, away=("dan", "ada"))

    def falls_short(epoch: int) -> list[str]:
        told = heir.planned(epoch, Refusal("short", "", 1, ()), 1.0)
        return [one.fault.sentence for one in told if isinstance(one, AwaitMemory)]

    heir.members_changed(("bob", "cyd"), 0.0)
    (asked,) = [one for one in heir.heard("cyd", 0.1) if isinstance(one, ComputePlan)]
    assert falls_short(asked.epoch) == ["short; lost and not back yet: dan, ada"]
    heir.members_changed(("bob", "cyd", "dan"), 1.0)
    asked = [one for one in heir.measured("dan", {"memory_bytes": 1}, 1.0) if isinstance(one, ComputePlan)][-1]
    assert falls_short(asked.epoch) == ["short; lost and not back yet: ada"]


@pytest.mark.parametrize("how", ["left", "removed"])
def test_session_that_was_ready_when_who_is_gone_cant_come_back_then_it_is_not_named(how: str) -> None:
    party = formed()
    host, now = party.coordinator, party.now
    if how == "left":
        host.lost("cyd", "left", now)
    changed = host.members_changed(("ada", "bob"), now, anew=how == "removed")
    asked = [one for one in changed if isinstance(one, ComputePlan)][-1]
    short = host.planned(asked.epoch, Refusal("208 MB short", "", 1, ()), now)
    assert [one.fault.sentence for one in short if isinstance(one, AwaitMemory)] == ["208 MB short"]


def test_host_that_took_over_when_the_one_before_says_that_it_was_begun_then_nobody_else_is_waited_for() -> None:
    party = CoreParty(wanted=0)
    for name in NAMES:
        if name != "ada":
            party.join(name)
        party.measure(name)
    assert party.proposals == []
    party.obey(party.coordinator.has_begun(party.now))
    party.pump()
    assert {follower.state for follower in party.machines.values()} == {State.READY}
    assert party.coordinator.has_begun(party.now) == []  # what the host says comes back to itself too
