"""Hostile STUN at the checks between two members: from strangers, and from the peer itself, which can sign."""

import os
import random
import struct

import pytest
from aioice.stun import Message

from kafila_sidecar.net import stun
from kafila_sidecar.net.candidates import PEER_REFLEXIVE
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.link.punch import MAX_CHECKED, MAX_LEARNT, Punch
from tests.sidecar.net.link.test_punch import SECRET, A, B, PunchEnd, candidate, two_ends
from tests.sidecar.net.wire import DatagramWire
from tests.support import fuzz


def test_learnt_addresses_when_a_flood_is_replayed_then_they_stay_few_and_the_path_stands() -> None:
    wire = DatagramWire()
    a, b = two_ends(wire)
    a.add(candidate(B))
    b.add(candidate(A))
    wire.run(2)
    request = stun.request(SECRET, "d", 1, os.urandom(12), None)
    for i in range(500):
        b.punch.receive(stun.parse(request), (f"10.7.{i // 250}.{i % 250}", 7), wire.now)
    assert len(b.punch.describe().split("; ")) <= MAX_LEARNT + 1
    wire.run(2)
    assert (a.target, b.target) == (B, A)


def test_candidates_when_far_too_many_come_then_the_surplus_is_ignored() -> None:
    wire = DatagramWire()
    a, _ = two_ends(wire)
    for i in range(5):
        a.add(*(candidate((f"10.{i}.0.{j}", 9)) for j in range(32)))
    assert len(a.punch.describe().split("; ")) == MAX_CHECKED


def asked_and_answered() -> tuple[PunchEnd, list[bytes]]:
    """The dialling end with a check on its way, always of the same transaction, and what the listener may say."""
    end = PunchEnd(DatagramWire(), dials=True, addresses=[A], transactions=lambda: bytes(range(12)))
    (first, _), *_ = end.punch.know([candidate(B)], end.wire.now)
    told = [stun.request(SECRET, stun.LISTENER, 5, bytes(range(12)), number) for number in (None, 3)]
    return end, [*told, stun.answer(SECRET, stun.parse(first), A), first]


def unsigned(data: bytes) -> Message:
    message = stun.parse(data)
    for name in ("MESSAGE-INTEGRITY", "FINGERPRINT"):
        message.attributes.pop(name, None)
    return message


def check_bounds(punch: Punch) -> None:
    assert len(punch._checks) <= MAX_CHECKED
    assert sum(check.kind == PEER_REFLEXIVE for check in punch._checks.values()) <= MAX_LEARNT
    assert all(len(check.open) <= 8 and len(check.samples_s) <= 8 for check in punch._checks.values())


@pytest.mark.fuzz
def test_parse_when_fed_hostile_bytes_then_only_bad_datagram_and_no_growth() -> None:
    end, samples = asked_and_answered()
    genuine = {data[:-8] for data in samples}  # the fingerprint's bytes are not signed

    def read(data: bytes) -> None:
        message = stun.parse(data)
        if data[:-8] not in genuine:
            end.punch.receive(message, ("10.6.6.6", 6), end.wire.now)
            raise AssertionError("it was taken")

    fuzz.fuzz(read, samples, errors=(BadDatagram,))
    assert end.target is None
    assert list(end.punch._checks) == [B]


@pytest.mark.fuzz
def test_punch_when_its_peer_signs_hostile_checks_then_typed_and_no_growth() -> None:
    end, samples = asked_and_answered()
    chance, now, taken = random.Random(fuzz.SEED), end.wire.now, 0

    def read(data: bytes) -> None:
        nonlocal now, taken
        message = unsigned(data)
        try:
            message.add_message_integrity(SECRET.key)
            signed = stun.parse(bytes(message))
        except (ValueError, TypeError, struct.error) as error:  # what was parsed can't be written again
            raise BadDatagram("no message") from error
        now += 0.3
        source = B if chance.random() < 0.7 else (f"10.{chance.randrange(256)}.0.1", chance.randrange(65536))
        try:
            end.punch.receive(signed, source, now)
        finally:
            end.punch.handle_timer(now)
            check_bounds(end.punch)
        taken += 1

    fuzz.fuzz(read, [bytes(unsigned(data)) for data in samples], errors=(BadDatagram,))
    assert taken > fuzz.INPUTS // 50
