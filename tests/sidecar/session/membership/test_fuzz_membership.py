"""Hostile bytes to the membership log, the seals, and what members write: nobody joins, goes, or takes over."""

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.session.channel.intake import KEPT_ENTRIES
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.channel.upkeep import Upkeep
from kafila_sidecar.session.channel.waiting import MOST_MESSAGES
from kafila_sidecar.session.membership import rekey
from kafila_sidecar.session.membership.log import Log, replay
from tests.sidecar.session.trust_world import SESSION, go, new_host, newcomer, parsed
from tests.sidecar.session.village import Village
from tests.support.fuzz import INPUTS, fuzz

pytestmark = pytest.mark.fuzz

GOODBYE = ring_pb2.Control(goodbye=ring_pb2.Goodbye(resignation=bytes(64)))


def three() -> tuple[Replica, Replica, Replica]:
    host = new_host()
    anna, ben = newcomer(host, "anna"), newcomer(host, "ben")
    anna.receive(host.write_entries())
    return host, anna, ben


def entries_of(replica: Replica, start: int) -> ring_pb2.Control:
    return ring_pb2.Control(entries=ring_pb2.LogEntries(entries=replica.log.entries[start:]))


def vote_of(replica: Replica) -> ring_pb2.Control:
    _, letter = Upkeep(replica).vote("anna").letters
    sealed = letter.sealed
    envelope = ring_pb2.Envelope.FromString(replica.keys.open(ring_pb2.Sealed.FromString(sealed), replica.members))
    return ring_pb2.Control.FromString(envelope.control)


def long_log() -> Log:
    """A log with every kind of entry."""
    village = Village("anna", "ben", "eve")
    village.do("host", village["host"].upkeep.remove("eve", "removed"))
    village.do("host", village["host"].upkeep.lock(True))
    village.goodbye("host")
    village.join("carl", by="anna")
    return village["anna"].replica.log


def test_log_when_entries_are_hostile_then_none_gets_in() -> None:
    log = long_log()
    logs = [replay(SESSION, log.entries[:length]) for length in range(1, len(log))]

    def offer(data: bytes) -> None:
        signed = parsed(ring_pb2.SignedEntry, data)
        for known, genuine in zip(logs, log.entries[1:], strict=True):
            try:
                checked = known.check(signed)
            except InvalidInput:
                continue
            assert checked is None or signed.entry == genuine.entry

    fuzz(offer, [signed.SerializeToString() for signed in log.entries])
    assert [len(known) for known in logs] == list(range(1, len(log)))


@pytest.mark.parametrize("index", range(7))
def test_log_when_an_entry_is_changed_under_its_signature_then_refused(index: int) -> None:
    log = long_log()
    known = replay(SESSION, log.entries[:index]) if index else Log(SESSION)
    genuine = log.entries[index]

    def offer(data: bytes) -> None:
        checked = known.check(ring_pb2.SignedEntry(entry=data, signature=genuine.signature))
        assert checked is None or data == genuine.entry

    assert fuzz(offer, [genuine.entry], seed=index, inputs=INPUTS // 7) >= 1


def test_replica_when_sealed_messages_are_hostile_then_nothing_is_told() -> None:
    host, anna, _ = three()
    samples = [anna.write(go(1)), anna.keys.seal_for(anna.members[0], anna._sign(go(2)), writer=1)]
    for sample in samples:
        assert host.receive(sample)

    def receive(data: bytes) -> None:
        assert not host.receive(data)
        assert len(host._early) <= MOST_MESSAGES

    fuzz(receive, samples)
    assert len(host.log) == 3


def test_replica_when_a_member_seals_hostile_envelopes_then_nothing_is_told_of_others() -> None:
    host, anna, _ = three()
    samples = [anna._sign(control) for control in (go(1), GOODBYE, entries_of(anna, 1))]

    def receive(data: bytes) -> None:
        for one in host.receive(anna.keys.seal(data, number=1)) or []:
            assert getattr(one, "sender", None) == "anna"

    assert fuzz(receive, samples) >= 1
    assert len(host.log) == 3
    assert len(host._seen) <= 2


def test_replica_when_a_member_signs_hostile_controls_then_nobody_joins_goes_or_takes_over() -> None:
    host, anna, ben = three()
    samples = [control.SerializeToString() for control in (vote_of(anna), GOODBYE, entries_of(anna, 0))]

    def receive(data: bytes) -> None:
        sealed = anna.write(parsed(ring_pb2.Control, data))
        for replica in (host, ben):
            replica.receive(sealed)
            replica.take_letters()
            assert Upkeep(replica).settle([]).events == []
            assert len(replica._intake._early) <= KEPT_ENTRIES

    assert fuzz(receive, samples) >= 1
    for replica in (host, ben):
        assert (replica.log.host, [member.name for member in replica.members]) == ("host", ["host", "anna", "ben"])


def test_rekey_when_hostile_then_it_gives_no_other_key() -> None:
    _, anna, _ = three()
    key, data = anna.keys.draw(anna.members)

    def unwrap(hostile: bytes) -> None:
        assert anna.keys.unwrap(hostile, 1) == key

    assert fuzz(unwrap, [data]) >= 1
    with pytest.raises(InvalidInput):
        anna.keys.unwrap(bytes(rekey.LARGEST_REKEY_BYTES + 1), 1)
