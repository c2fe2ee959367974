"""Coming back, attacked by who knows every member: one who was put out, a member of bad will, and a log that fills."""

from collections.abc import Callable, Iterable

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, NotFound, Refused, Unavailable
from kafila_sidecar.session.admission.doorstep import MOST_KNOCKS, Doorstep, ProvedMember
from kafila_sidecar.session.admission.gathering import GatheringPace, Homecoming, Lead
from kafila_sidecar.session.admission.host import AdmissionAnswer
from kafila_sidecar.session.admission.knocker import Knocker, TurnedAway
from kafila_sidecar.session.admission.returns import MOST_AT_ONCE, RETURN_EVERY_S, Returns
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.channel.upkeep import Upkeep
from kafila_sidecar.session.membership.log import LONGEST_LOG, Log, replay
from tests.sidecar.session.trust_world import SESSION, entropy, new_host, newcomer

VERSIONS = Versions("1", 1, "1")
PACE = GatheringPace()


def answering(one: Replica, log: Log) -> Doorstep:
    """At a door where somebody answers, the host or not."""
    return Doorstep(
        log=lambda: log, name=one.self_name, identity=one.identity, versions=VERSIONS, entropy=entropy("door")
    )


def knocking(one: Replica) -> Knocker:
    log = replay(SESSION, one.log.entries)
    return Knocker(
        log=log, identity=one.identity, versions=VERSIONS, entropy=entropy("knock"), vote_for=lambda _: b"a vote"
    )


def proved(door: Doorstep, one: Knocker, mailbox: int = 9) -> ProvedMember:
    challenge = door.receive(mailbox, one.knock(), 0.0)
    assert isinstance(challenge, AdmissionAnswer)
    proof = one.receive(challenge.admission)
    assert isinstance(proof, ring_pb2.Admission)
    outcome = door.receive(mailbox, proof, 0.0)
    assert isinstance(outcome, ProvedMember)
    return outcome


@pytest.fixture
def people() -> tuple[Replica, Replica, Replica]:
    """The host, and two who slept while eve was there."""
    host = new_host()
    return host, newcomer(host, "ada"), newcomer(host, "eve")


# ---- Somebody answers in the host's place


@pytest.mark.parametrize("error", [Denied("you were removed"), NotFound("this session is over")], ids=["out", "over"])
@pytest.mark.parametrize("was_removed", [False, True], ids=["a member", "who was put out"])
def test_member_when_another_one_says_that_it_is_out_then_it_goes_on_knocking(
    people: tuple[Replica, Replica, Replica], error: Denied | NotFound, was_removed: bool
) -> None:
    host, ada, eve = people
    known = replay(SESSION, host.log.entries)
    if was_removed:
        Upkeep(host).remove("eve", "removed")
    ada = Replica(identity=ada.identity, self_name="ada", log=host.log, key=bytes(32), entropy=entropy())
    door, one = answering(eve, known), knocking(ada)
    refused = door.refuse(proved(door, one), error)
    with pytest.raises(Denied):
        one.receive(refused.admission)
    bare = ring_pb2.RefusedBody(refusal=ring_pb2.Refusal(code=error.code, sentence="\x1b[2Jready"))
    said = door._seal(proved(door, again := knocking(ada)).keys, bare)
    outcome = again.receive(ring_pb2.Admission(refused=said))
    assert isinstance(outcome, TurnedAway)
    assert not outcome.for_good
    assert not isinstance(outcome.error, Denied | NotFound)
    assert "\x1b" not in str(outcome.error)


@pytest.mark.parametrize("reason", ["left", "removed"])
def test_member_when_the_log_says_that_it_is_out_then_it_believes_whoever_shows_it(
    people: tuple[Replica, Replica, Replica], reason: str
) -> None:
    host, ada, _ = people
    Upkeep(host).remove("ada", reason)
    until = len(host.log)
    newcomer(host, "mia")
    door, one = answering(host, host.log), knocking(ada)
    stands = proved(door, one)
    refused = door.refuse(stands, Denied("ada left this session or was removed from it"))
    outcome = one.receive(refused.admission)
    assert isinstance(outcome, TurnedAway)
    assert outcome.for_good
    assert len(host.log.until_gone(stands.member)) == until < len(host.log)  # and it learns nothing of who came later


def test_member_when_the_host_says_that_the_session_is_over_then_that_is_for_good(
    people: tuple[Replica, Replica, Replica],
) -> None:
    host, ada, _ = people
    Upkeep(host).remove("ada", "lost")
    newcomer(host, "mia")
    door, one = answering(host, host.log), knocking(ada)
    outcome = one.receive(door.refuse(proved(door, one), NotFound("this session is over")).admission)
    assert isinstance(outcome, TurnedAway)
    assert outcome.for_good


def test_log_when_who_was_put_out_asks_for_it_at_the_door_then_it_hears_nothing_of_the_time_after(
    people: tuple[Replica, Replica, Replica],
) -> None:
    host, ada, eve = people
    known = replay(SESSION, host.log.entries)
    Upkeep(host).remove("eve", "removed")
    newcomer(host, "mia")
    ada = Replica(identity=ada.identity, self_name="ada", log=host.log, key=bytes(32), entropy=entropy())
    stands = proved(answering(eve, known), knocking(ada))
    assert (list(stands.body.entries), stands.body.vote) == ([], b"")
    posing = answering(
        Replica(identity=eve.identity, self_name="eve", log=known, key=bytes(32), entropy=entropy()), known
    )
    posing._name = "host"
    challenge = posing.receive(9, (one := knocking(ada)).knock(), 0.0)
    assert isinstance(challenge, AdmissionAnswer)
    with pytest.raises(Denied):
        one.receive(challenge.admission)
    honest = proved(answering(host, known), knocking(ada))
    assert len(honest.body.entries) == len(host.log) - len(known)


@pytest.mark.parametrize(("name", "stays"), [("nobody", False), ("host", True)])
def test_room_when_only_who_answers_by_a_name_that_is_not_known_is_there_then_left_for_another(
    people: tuple[Replica, Replica, Replica], name: str, stays: bool
) -> None:
    host, ada, eve = people
    back = returning(ada, host.log)
    (knock,) = answers(back.attending([7], 0.0))
    door = answering(host if stays else eve, host.log)
    door._name = name
    challenge = door.receive(2, knock.admission, 0.0)
    assert isinstance(challenge, AdmissionAnswer)
    back.receive(7, challenge.admission, 0.0)
    assert back.is_alone is stays


def test_knocks_when_a_stranger_comes_and_goes_without_end_then_it_is_knocked_at_in_its_turn_only(
    people: tuple[Replica, Replica, Replica],
) -> None:
    host, ada, _ = people
    back, knocks, seconds = returning(ada, host.log), 0, 60
    for tick in range(seconds * 50):
        now = tick / 50
        knocks += len(answers(back.attending([7] if tick % 2 else [], now)))
        while back.next_timer() <= now:
            knocks += len(answers(back.handle_timer(now)))
    assert 0 < knocks <= 2 * seconds / PACE.knock_s + 1
    assert len(answers(back.attending([7, 8, 9], float(seconds)))) >= 2  # others are knocked at when they come


# ---- Who waits together


def test_successor_when_one_of_those_here_gives_no_vote_but_bytes_then_the_others_are_enough() -> None:
    host = new_host()
    ada, *others = (newcomer(host, name) for name in ("ada", "bob", "cyd", "eve"))
    heir = returning(ada, host.log)
    for mailbox, one in enumerate(others, 2):
        wrong = one.self_name == "eve"
        knock = Knocker(
            log=replay(SESSION, host.log.entries),
            identity=one.identity,
            versions=VERSIONS,
            entropy=entropy(one.self_name),
            vote_for=(lambda _: b"junk") if wrong else returning(one, host.log, missed=True)._vote_for,
        )
        outputs = heir.receive(mailbox, knock.knock(), 1.0)
        proof = knock.receive(answers(outputs)[0].admission)
        assert isinstance(proof, ring_pb2.Admission)
        heir.receive(mailbox, proof, 1.0)
    (lead,) = [one for one in heir.handle_timer(PACE.host_missed_s + 5.0) if isinstance(one, Lead)]
    assert lead.proof is not None
    assert sorted(ballot.voter for ballot in lead.proof.ballots) == ["ada", "bob", "cyd"]


def returning(one: Replica, log: Log, *, missed: bool = False) -> Homecoming:
    """`missed`: it has waited for the host for long enough, and hears the heir."""
    made = Homecoming(
        log=replay(SESSION, log.entries),
        name=one.self_name,
        identity=one.identity,
        versions=VERSIONS,
        entropy=entropy(one.self_name),
        pace=PACE,
        now=0.0,
    )
    if missed:
        made.handle_timer(PACE.host_missed_s + 1.0)
    return made


def answers(outputs: Iterable[object]) -> list[AdmissionAnswer]:
    return [one for one in outputs if isinstance(one, AdmissionAnswer)]


# ---- One member that comes back without end


def test_returns_when_one_member_comes_back_without_end_then_the_log_lasts_for_days_and_others_come_back(
    people: tuple[Replica, Replica, Replica],
) -> None:
    _, ada, eve = people
    returns, taken, day = Returns(), 0, 86_400
    for second in range(0, day, 3):
        try:
            returns.check(eve.me, float(second))
        except Unavailable:
            continue
        returns.note(eve.me, float(second))
        taken += 1
    assert taken <= MOST_AT_ONCE + day / RETURN_EVERY_S < LONGEST_LOG / 2
    returns.check(ada.me, float(day))
    with pytest.raises(Unavailable, match="eve came back too often"):
        returns.check(eve.me, day - 3.0)


def test_knocks_when_who_was_put_out_knocks_in_all_names_then_a_place_is_left_for_each_mailbox(
    people: tuple[Replica, Replica, Replica],
) -> None:
    host, ada, _ = people
    door = answering(host, host.log)
    for mailbox in range(2, MOST_KNOCKS + 1):  # all places of a room but the host's and one
        assert door.receive(mailbox, knocking(ada).knock(), 0.0) is not None
    proved(door, knocking(ada), mailbox=MOST_KNOCKS + 1)


def test_take_back_when_the_log_is_almost_full_then_refused_and_everybody_can_still_go() -> None:
    host = new_host()
    eve = newcomer(host, "eve")
    newcomer(host, "ada")
    upkeep = Upkeep(host)
    upkeep.take_back(eve.me, 9)
    with pytest.raises(Refused, match="full"):
        without_end(lambda: upkeep.take_back(eve.me, 9))
    assert LONGEST_LOG / 10 < len(host.log) < LONGEST_LOG
    upkeep.remove("eve", "removed")
    upkeep.remove("ada", "lost")


def without_end(call: Callable[[], object]) -> None:
    while True:
        call()
