"""Hostile bytes to every decoder of trust: only typed errors, nothing is believed, nothing grows."""

import random
from collections.abc import Callable, Iterator

import pytest
from google.protobuf.message import DecodeError
from kafila_proto import ring_pb2

from sidecar.errors import KafilaError
from sidecar.session.address import parse_address
from sidecar.session.admission import Desk, Versions
from sidecar.session.code import Code, parse_code
from sidecar.session.identity import public_key_of
from sidecar.session.log import Log, replay
from sidecar.session.newcomer import Newcomer
from sidecar.session.pake import Guesses
from tests.sidecar.session.trust_world import SESSION, MemoryStore, entropy, go, new_host, newcomer

INPUTS = 2000
CODE = Code(7, ("ocean", "velvet", "lamp"))


def mutations(good: bytes, seed: int, inputs: int = INPUTS) -> Iterator[bytes]:
    """Random bytes, cuts, and good bytes with some of them changed, added or dropped."""
    chance = random.Random(seed)
    for number in range(inputs):
        if number % 4 == 0 or not good:
            yield chance.randbytes(chance.randint(0, 200))
            continue
        bad = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(bad) + 1)
            match chance.randrange(3):
                case 0:
                    bad[place : place + 1] = chance.randbytes(1)
                case 1:
                    bad[place:place] = chance.randbytes(chance.randint(1, 8))
                case 2:
                    del bad[place : place + chance.randint(1, 20)]
            if not bad:
                break
        yield bytes(bad)


def refused(read: Callable[[bytes], object], data: bytes) -> bool:
    """True when `read` raised a typed error; any other error fails the test."""
    try:
        read(data)
    except KafilaError:
        return True
    return False


def test_circle_when_sealed_messages_are_hostile_then_all_refused() -> None:
    host = new_host()
    anna = newcomer(host, "anna")
    good = anna.write(go(1))
    told = [data for data in mutations(good, 1) if not refused(host.receive, data)]
    assert [data for data in told if ring_pb2.Sealed.FromString(data) != ring_pb2.Sealed.FromString(good)] == []


def test_circle_when_a_members_envelopes_are_hostile_then_only_typed_errors() -> None:
    host = new_host()
    anna = newcomer(host, "anna")
    ring = ring_pb2.Sealed.FromString(anna.write(go(1)))
    good = anna._sealer.open(ring)
    for data in mutations(good, 2):
        sealed = anna._sealer.seal(data).SerializeToString()
        if not refused(host.receive, sealed):
            assert len(host._early) <= 64
    assert len(host.log) == 2


def test_log_when_entries_are_hostile_then_none_gets_in() -> None:
    host = new_host()
    newcomer(host, "anna")
    first, second = host.log.entries
    log = replay(SESSION, [first])

    def offer(data: bytes) -> None:
        log.append(ring_pb2.SignedEntry(entry=data, signature=second.signature))

    for data in mutations(second.entry, 3):
        assert refused(offer, data) or data == second.entry

    def found(data: bytes) -> None:
        Log(SESSION).append(ring_pb2.SignedEntry(entry=data, signature=first.signature))

    for data in mutations(first.entry, 4):
        assert refused(found, data) or data == first.entry


def test_certificates_when_hostile_then_typed() -> None:
    for data in mutations(new_host().identity.der, 5):
        refused(public_key_of, data)


def test_desk_and_newcomer_when_steps_are_hostile_then_nobody_is_enrolled() -> None:
    store = MemoryStore()
    desk = Desk(
        code=CODE,
        guesses=Guesses(store),
        versions=Versions("1", "1"),
        offer=ring_pb2.OfferBody,
        may_admit=lambda: None,
        entropy=entropy(),
    )
    start = Newcomer(CODE, entropy("other")).start().SerializeToString()
    for number, data in enumerate(mutations(start, 6, inputs=400)):  # SPAKE2 takes 10 ms
        try:
            step = ring_pb2.Admission.FromString(data)
        except DecodeError:
            continue
        outcome = desk.receive(number % 100, step, float(number))
        assert hasattr(outcome, "admission")
        waiting = Newcomer(CODE, entropy("third"))
        if number % 20 == 0:
            waiting.start()
        refused(lambda _, step=step, waiting=waiting: waiting.receive(step), b"")  # type: ignore[misc]
        assert waiting.state in ("new", "started", "confirming")
    assert len(desk._exchanges) <= 64


@pytest.mark.parametrize("read", [parse_code, parse_address])
def test_text_when_hostile_then_typed(read: Callable[[str], object]) -> None:
    good = b"7-ocean-velvet-lamp@192.0.2.7:7770#abcdefghij234567klmn"
    for data in mutations(good, 7, inputs=600):
        refused(lambda text: read(text.decode("utf-8", "replace")), data)
