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
    door = door_of(anna)
    back = proved(door, knocker_of(host))
    anna.learn(back.body.entries, by=back.member)
    caller = knocker_of(eve)
    stray = proved(door, caller)
    assert stray.member.fingerprint == eve.identity.fingerprint
    heard = caller.receive(door.refuse(stray, never_back(anna.log, stray.member)).admission)
    assert isinstance(heard, TurnedAway)
    assert heard.for_good
    assert isinstance(heard.error, Denied)
    assert "ask for the session's code and join again" in str(heard.error)


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
