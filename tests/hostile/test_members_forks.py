"""No message of one member ends the session for the others: not a vote for a place that all have gone past, not a
second history, whoever signs it, wherever in the log."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Refused
from kafila_sidecar.session.channel.events import MemberRemoved
from kafila_sidecar.session.membership.succession import CONVICTED, LogPlace, resign
from tests.hostile.evil_member import EvilVillage
from tests.sidecar.session.trust_world import go
from tests.sidecar.session.village import told

NAMES = ("anna", "ben", "carl", "dora", "eve")


def of_size(size: int, evil: str) -> EvilVillage:
    """A session with a past: members that came, a lock, and one that was removed."""
    village = EvilVillage(*NAMES[: size - 1], "gone", evil=evil)
    host = village["host"].upkeep
    village.do("host", host.remove("gone", "removed"))
    village.do("host", host.lock(True))
    village.do("host", host.lock(False))
    for name in village.honest:
        village.say(name, go(1))
    return village


def another(village: EvilVillage, place: LogPlace) -> ring_pb2.SignedEntry:
    """An entry for a place that is not the one there, if there is one."""
    locks = [village.signed(place, locked=ring_pb2.Locked(locked=locked)) for locked in (True, False)]
    there = [signed.entry for signed in village[village.evil].replica.log.entries]
    return next(signed for signed in locks if signed.entry not in there)


def others(village: EvilVillage) -> set[str]:
    return set(village.honest) - {"gone"}


@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("which", ["first", "last", "removed"])
def test_member_when_it_takes_over_at_any_place_of_the_log_then_the_others_go_on(size: int, which: str) -> None:
    evil = {"first": "anna", "last": NAMES[size - 2], "removed": "gone"}[which]
    for number in range(len(of_size(size, evil).places())):
        village = of_size(size, evil)
        village.spread(village.takeover(village.places()[number]))
        village.assert_goes_on(others(village))
        assert village["host"].replica.is_host


@pytest.mark.parametrize("size", [2, 3, 6])
def test_first_joiner_when_its_own_vote_was_a_majority_once_then_it_is_removed_by_name(size: int) -> None:
    village = of_size(size, "anna")
    village.spread(village.takeover(village.places()[1]))
    for name in others(village):
        assert MemberRemoved("anna", "removed") in village[name].told
    village.assert_goes_on(others(village))


@pytest.mark.parametrize("size", [3, 6])
def test_member_when_only_others_hear_its_takeover_then_the_host_is_told_and_removes_it(size: int) -> None:
    village = of_size(size, "anna")
    village.spread(village.takeover(village.places()[1]), to=("ben",))
    assert MemberRemoved("anna", "removed") in village["host"].told
    village.assert_goes_on(others(village))


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("size", [3, 6])
def test_votes_when_a_standing_voided_them_then_good_for_nothing_at_any_time(size: int, grows: bool) -> None:
    """Honest members missed the host for a moment; the first joiner keeps their votes for later."""
    village = of_size(size, "anna")
    voters = [name for name in village.honest if name not in ("host", "gone")]
    village.deaf.add("host")
    for name in voters:
        village.miss_host(name, "anna")
    village.returns("host")
    village.miss_host(voters[0], "anna")  # which the host answers
    assert village["host"].replica.ballots.standing >= 1
    village.kept = [one for one in village.kept if one.standing == 0]
    if grows:
        village.join("late")
    village.spread(village.takeover(village.kept[0].place))
    assert village["host"].replica.is_host
    village.assert_goes_on(others(village))


def test_votes_when_the_host_never_heard_them_then_its_next_entry_takes_their_force() -> None:
    village = of_size(6, "anna")
    village.deaf.add("host")
    for name in ("ben", "carl", "dora", "eve"):
        village.miss_host(name, "anna")
    village.deaf.discard("host")
    village.do("host", village["host"].upkeep.lock(True))
    assert village["host"].replica.ballots.standing == 0
    village.spread(village.takeover(village.kept[0].place))
    village.assert_goes_on(others(village))
    assert MemberRemoved("anna", "removed") in village["host"].told


def test_votes_when_the_voters_have_gone_past_them_then_a_newcomer_is_not_brought_down_either() -> None:
    village = of_size(6, "anna")
    village.deaf.add("host")
    for name in ("ben", "carl", "dora"):
        village.miss_host(name, "anna")
    village.returns("host")
    village.join("late")  # the voters have said nothing since
    village.spread(village.takeover(village.kept[0].place), to=("late",))
    village.assert_goes_on(others(village))


@pytest.mark.parametrize("size", [2, 3, 6])
def test_host_when_it_signs_a_second_history_at_any_place_then_the_others_go_on_without_it(size: int) -> None:
    for number in range(len(of_size(size, "host").places())):
        village = of_size(size, "host")
        place = village.places()[number]
        village.spread(another(village, place))
        if number == len(village.places()) - 1:
            village.spread(village.signed(place, locked=ring_pb2.Locked(locked=False)))
        village.follow_up()
        village.assert_goes_on(others(village))
        assert village["anna"].replica.is_host
        assert MemberRemoved("host", "lost") in village["anna"].told


def test_host_when_it_tells_two_histories_to_two_halves_then_they_find_out_and_most_go_on() -> None:
    village = of_size(6, "host")
    place = village.places()[-1]
    for locked, half in ((True, ("anna", "ben", "carl")), (False, ("dora", "eve"))):
        village.spread(village.signed(place, locked=ring_pb2.Locked(locked=locked)), to=half)
    village.say("dora", go(2))  # names the entry that its log ends with
    village.follow_up()
    village.assert_goes_on({"anna", "ben", "carl"})
    assert village["anna"].replica.is_host
    for name in ("dora", "eve"):  # who close by themselves, when nobody takes over there
        assert village[name].replica.ballots.has_convicted


def test_host_when_convicted_then_neither_standing_nor_entries_of_its_save_it() -> None:
    village = of_size(6, "host")
    place = village.places()[1]
    village.spread(village.signed(place, locked=ring_pb2.Locked(locked=True)))
    evil = village["host"].replica
    for number in (1, CONVICTED - 1, CONVICTED):
        village.send(evil.write(ring_pb2.Control(standing=ring_pb2.Standing(number=number))), village.honest)
    village.do("host", village["host"].upkeep.lock(True))
    village.follow_up()
    village.assert_goes_on(others(village))
    assert village["eve"].replica.log.host == "anna"


def test_host_when_it_resigns_and_signs_on_then_convicted() -> None:
    village = of_size(6, "host")
    place = village.places()[-1]
    resignation = resign(village.identity, place)
    village.do("host", village["host"].upkeep.lock(True))
    village.evil = "anna"  # its accomplice uses it
    village["anna"].replica.log  # noqa: B018
    taken = ring_pb2.TakenOver(successor="anna", reason="left", resignation=resignation)
    village.spread(village.signed(place, taken_over=taken), to=("ben", "carl", "dora", "eve"))
    assert all(village[name].replica.ballots.has_convicted for name in ("ben", "carl", "dora", "eve"))
    assert village.ended == set()


@pytest.mark.parametrize("evil", ["anna", "eve", "gone"])
def test_member_when_it_votes_as_if_the_host_were_convicted_then_nothing_follows(evil: str) -> None:
    village = of_size(6, evil)
    replica = village[evil].replica
    heir = village["ben"].replica.log.now.heirs[0]
    message = ring_pb2.Vote(
        successor=heir.name, log_length=replica.log.place.index, standing=CONVICTED, signature=bytes(64)
    )
    village.send(replica.write(ring_pb2.Control(vote=message)), village.honest)
    village.assert_goes_on(others(village))
    assert village["host"].replica.is_host


@pytest.mark.parametrize("evil", ["host", "anna", "eve", "gone"])
def test_member_when_it_sends_every_old_message_again_then_nothing_changes(evil: str) -> None:
    village = of_size(6, evil)
    entries = village[evil].replica.log.entries
    length = len(village["ben"].replica.log)
    for start in range(len(entries)):
        village.spread(*entries[start:])
        village.spread(*reversed(entries[start:]))
    assert len(village["ben"].replica.log) == length
    village.assert_goes_on(others(village))


def test_log_when_somebody_comes_and_goes_without_end_then_joining_ends_and_the_session_does_not() -> None:
    village = EvilVillage("anna", evil="nobody")
    host = village["host"].upkeep

    def come_and_go() -> None:
        for _ in range(600):
            village.join("eve")
            village.do("host", host.remove("eve", "left"))

    with pytest.raises(Refused, match="create a new session"):
        come_and_go()
    village.do("host", host.remove("anna", "left"))
    assert village["host"].names == ["host"]


# ---- Any schedule


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(0, 3)),
        st.tuples(st.just("lock"), st.booleans()),
        st.tuples(st.just("miss"), st.sets(st.sampled_from(NAMES), max_size=5)),
        st.tuples(st.just("take over"), st.integers(0, 30)),
        st.tuples(st.just("sign"), st.integers(0, 30)),
        st.tuples(st.just("replay"), st.integers(0, 30)),
    ),
    max_size=10,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(size=st.sampled_from([3, 6]), evil=st.sampled_from(["host", "anna", "ben", "gone"]), steps=STEPS)
def test_session_when_one_member_does_what_it_likes_then_it_never_ends_for_the_others(
    size: int, evil: str, steps: list[tuple[str, object]]
) -> None:
    village = of_size(size, evil)
    for kind, what in steps:
        act(village, kind, what)
        village.follow_up()
        assert village.ended == set()
    hosts = {village[name].replica.log.host for name in village.honest if _belongs(village, name)}
    assert len(hosts) == 1
    village.assert_goes_on({name for name in village.honest if _belongs(village, name)})


def _belongs(village: EvilVillage, name: str) -> bool:
    """An honest member that was not outvoted while it was away."""
    return not told(village[name], MemberRemoved, lambda event: event.name == name)  # type: ignore[attr-defined]


def act(village: EvilVillage, kind: str, what: object) -> None:
    host = village[village.honest[0]].replica.log.host
    honest_host = host if host != village.evil else None
    match kind, what:
        case "join", int(number) if honest_host and f"guest{number}" not in village.people:
            village.join(f"guest{number}", by=honest_host)
        case "lock", bool(locked) if honest_host:
            village.do(honest_host, village[honest_host].upkeep.lock(locked))
        case "miss", set(voters) if honest_host:
            village.deaf.add(honest_host)
            for name in sorted(voters & set(village.people) - {village.evil}):
                village.miss_host(name, village.evil)
            village.returns(honest_host)
            for name in village.honest:
                if _belongs(village, name):
                    village.say(name, go(3))
        case "take over", int(number):
            places = village.places()
            village.spread(village.takeover(places[number % len(places)]))
        case "sign", int(number):
            places = village.places()
            village.spread(village.signed(places[number % len(places)], locked=ring_pb2.Locked(locked=True)))
        case "replay", int(number):
            village.spread(*village[village.evil].replica.log.entries[number:])
