"""A newcomer whose host had been succeeded when it let it in: the others don't know it, so that somebody has to tell it
to join again."""

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied
from kafila_sidecar.session.admission.doorstep import Doorstep, ProvedMember, never_back
from kafila_sidecar.session.admission.host import AdmissionAnswer
from kafila_sidecar.session.admission.knocker import Knocker, TurnedAway
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.membership.log import replay
from kafila_sidecar.session.membership.members import LARGEST_SESSION
from tests.sidecar.session.trust_world import SESSION, entropy
from tests.sidecar.session.village import Village

VERSIONS = Versions("1", 1, "1")


def door_of(one: Replica) -> Doorstep:
    return Doorstep(
        log=lambda: one.log, name=one.self_name, identity=one.identity, versions=VERSIONS, entropy=entropy("door")
    )


def knocker_of(one: Replica) -> Knocker:
    log = replay(SESSION, one.log.entries)
    return Knocker(log=log, identity=one.identity, versions=VERSIONS, entropy=entropy("knock"), vote_for=lambda _: b"")


def hears_of_it(host: Replica, former: Replica) -> None:
    """The former host knocks at the present one's door."""
    back = proved(door_of(host), knocker_of(former))
    host.learn(back.body.entries, by=back.member)


def turned_away(host: Replica, stray: Replica) -> TurnedAway:
    """A stray knocks, and believes that it can't come back."""
    door, caller = door_of(host), knocker_of(stray)
    stands = proved(door, caller)
    outcome = caller.receive(door.refuse(stands, never_back(host.log, stands.member)).admission)
    assert isinstance(outcome, TurnedAway)
    return outcome


def proved(door: Doorstep, one: Knocker) -> ProvedMember:
    challenge = door.receive(9, one.knock(), 0.0)
    assert isinstance(challenge, AdmissionAnswer)
    proof = one.receive(challenge.admission)
    assert isinstance(proof, ring_pb2.Admission)
    outcome = door.receive(9, proof, 0.0)
    assert isinstance(outcome, ProvedMember)
    return outcome


@pytest.fixture
def village() -> Village:
    """The host was cut off and succeeded, and let eve in without knowing."""
    village = Village("anna", "ben", "carl")
    village.deaf = {"host"}
    for name in ("ben", "carl", "anna"):
        village.do(name, village[name].upkeep.vote("anna"))
    village.deaf = {"anna", "ben", "carl"}
    village.join("eve", by="host")
    village.deaf = set()
    assert village["anna"].replica.is_host
    return village


def test_newcomer_when_nobody_told_the_successor_of_it_then_it_hears_nothing(village: Village) -> None:
    assert door_of(village["anna"].replica).receive(9, knocker_of(village["eve"].replica).knock(), 0.0) is None


def test_newcomer_when_its_host_has_come_back_to_the_successor_then_it_hears_that_it_has_to_join_again(
    village: Village,
) -> None:
    anna, host, eve = (village[name].replica for name in ("anna", "host", "eve"))
    hears_of_it(anna, host)
    heard = turned_away(anna, eve)
    assert heard.for_good
    assert isinstance(heard.error, Denied)
    assert "the host who let eve in had been succeeded by then" in str(heard.error)
    assert "ask for the session's code and join again" in str(heard.error)


@pytest.mark.parametrize(("reason", "is_told"), [("lost", True), ("left", False), ("removed", False)])
def test_newcomer_when_its_host_noted_that_it_went_then_it_is_told_of_if_it_may_come_back(
    village: Village, reason: str, is_told: bool
) -> None:
    anna, host = (village[name].replica for name in ("anna", "host"))
    village["host"].upkeep.remove("eve", reason)
    hears_of_it(anna, host)
    assert [one.name for one in anna.log.strays] == ["eve"] * is_told


def test_newcomer_when_it_hears_that_it_has_to_join_again_then_it_learns_nothing_of_who_came_later(
    village: Village,
) -> None:
    anna, host, eve = (village[name].replica for name in ("anna", "host", "eve"))
    hears_of_it(anna, host)
    until = len(anna.log)
    village.join("mia", by="anna")
    assert anna.log.until_gone(eve.me) == anna.log.bare[:until]
    assert turned_away(anna, eve).for_good


def test_newcomer_when_the_host_changed_again_then_it_hears_what_makes_it_believe_the_present_one(
    village: Village,
) -> None:
    host, ben, eve = (village[name].replica for name in ("host", "ben", "eve"))
    village.join("mia", by="anna")
    village.goodbye("anna")
    assert ben.is_host
    until = len(ben.log)
    village.join("nora", by="ben")
    hears_of_it(ben, host)
    assert ben.log.until_gone(eve.me) == ben.log.bare[:until]
    assert turned_away(ben, eve).for_good


@pytest.mark.parametrize("has_changed_again", [False, True])
def test_newcomer_when_its_host_was_put_out_then_it_hears_no_more_than_that_one_and_believes_it(
    village: Village, has_changed_again: bool
) -> None:
    anna, host, eve = (village[name].replica for name in ("anna", "host", "eve"))
    for one in (anna, village["ben"].replica):
        hears_of_it(one, host)
    took_over = len(anna.log)
    back = anna.log.former("host")
    assert back is not None
    village.do("anna", village["anna"].upkeep.take_back(back.member, 9))
    village.do("anna", village["anna"].upkeep.remove("host", "removed"))
    put_out = len(anna.log)
    village.join("mia", by="anna")
    if has_changed_again:
        village.goodbye("anna")
    now = village["ben" if has_changed_again else "anna"].replica
    assert now.is_host
    assert len(now.log.until_gone(host.me)) == put_out
    assert len(now.log.until_gone(eve.me)) == (put_out if has_changed_again else took_over)
    assert turned_away(now, eve).for_good


def test_member_when_a_former_host_signs_its_admission_too_then_it_hears_nothing_of_the_time_after_its_going(
    village: Village,
) -> None:
    """The two of them know what the entry says that let it in, and put the former host's name under that."""
    anna, host = (village[name].replica for name in ("anna", "host"))
    mia = village.join("mia", by="anna").replica
    entry = anna.log.entries[-1].entry
    village["anna"].upkeep.remove("mia", "removed")
    put_out = len(anna.log)
    former = anna.log.former("host")
    assert former is not None
    signature = host.identity.sign(b"log entry", entry)
    anna.log.hear_former(former, [ring_pb2.SignedEntry(entry=entry, signature=signature)])
    assert mia.me in anna.log.strays
    village.join("nora", by="anna")
    village.do("anna", village["anna"].upkeep.lock(True))
    assert len(anna.log.until_gone(mia.me)) == put_out


def test_newcomer_when_its_host_has_spoken_to_the_successor_then_it_is_known_as_a_stray(village: Village) -> None:
    village.send(village["host"].replica.write_entries(), to=("anna", "ben"))
    for name in ("anna", "ben"):
        assert [one.name for one in village[name].replica.log.strays] == ["eve"]
    assert "eve" not in village["anna"].names


def test_strays_when_entries_are_another_s_or_older_or_no_admissions_then_passed_over(village: Village) -> None:
    anna, host, carl = (village[name].replica for name in ("anna", "host", "carl"))
    former = anna.log.former("host")
    assert former is not None
    village["host"].upkeep.remove("eve", "lost")
    admitting, removing = host.log.entries[-2:]
    forged = ring_pb2.SignedEntry(entry=admitting.entry, signature=carl.identity.sign(b"log entry", admitting.entry))
    broken = ring_pb2.SignedEntry(entry=b"\xff", signature=admitting.signature)
    anna.log.hear_former(former, [*host.log.entries[:-2], removing, forged, broken])
    assert list(anna.log.strays) == []
    anna.log.hear_former(former, [forged, admitting])
    assert [one.name for one in anna.log.strays] == ["eve"]


def test_strays_when_a_former_host_lets_in_without_end_then_the_latest_ones_are_known(village: Village) -> None:
    anna, host = (village[name].replica for name in ("anna", "host"))
    former = anna.log.former("host")
    assert former is not None
    for number in range(LARGEST_SESSION + 3):
        guest = village.join(f"guest{number}", by="host").replica
        anna.log.hear_former(former, host.log.entries)
        assert guest.me.fingerprint in {one.fingerprint for one in anna.log.strays}
        village.people.pop(f"guest{number}")
        village["host"].upkeep.remove(f"guest{number}", "lost")
    assert len(list(anna.log.strays)) == LARGEST_SESSION
