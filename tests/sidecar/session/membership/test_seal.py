"""Sealing, signatures and the window of seen numbers."""

import random

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput
from kafila_sidecar.session.membership.identity import make_identity
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.seal import (
    LARGEST_CONTROL_BYTES,
    LARGEST_SEALED_BYTES,
    WINDOW,
    ReplayWindow,
    Sealer,
    is_for_all,
    read_sealed,
    sign_envelope,
    verify_envelope,
)
from tests.sidecar.session.trust_world import KEY, SESSION, entropy, go

IDENTITY = make_identity()
SENDER = Member("anna", IDENTITY.der, IDENTITY.fingerprint, IDENTITY.agreement, mailbox=2, index=1)


def envelope(control: ring_pb2.Control | None = None) -> ring_pb2.Envelope:
    return sign_envelope(
        IDENTITY,
        session=SESSION,
        sender="anna",
        sequence=3,
        log_length=2,
        log_head=bytes(32),
        control=control or go(1),
    )


def test_seal_when_opened_with_the_key_then_same_bytes_and_no_nonce_twice() -> None:
    sealer = Sealer(KEY, b"context", entropy())
    one, two = sealer.seal(b"plain"), sealer.seal(b"plain")
    assert one.nonce != two.nonce
    assert sealer.open(one) == sealer.open(two) == b"plain"


def test_open_when_key_context_or_bytes_differ_then_denied() -> None:
    sealed = Sealer(KEY, b"context", entropy()).seal(b"plain")
    with pytest.raises(Denied):
        Sealer(b"\x01" * 32, b"context", entropy()).open(sealed)
    with pytest.raises(Denied):
        Sealer(KEY, b"another", entropy()).open(sealed)
    for nonce, ciphertext in (
        (bytes(12), sealed.ciphertext),
        (b"", sealed.ciphertext),
        (sealed.nonce, b""),
        (sealed.nonce, sealed.ciphertext[:-1]),
    ):
        with pytest.raises(Denied):
            Sealer(KEY, b"context", entropy()).open(ring_pb2.Sealed(nonce=nonce, ciphertext=ciphertext))


@pytest.mark.parametrize(
    ("field", "value"),
    [("sender", "ben"), ("sequence", 4), ("log_length", 9), ("log_head", b"h" * 32), ("control", b"")],
)
def test_verify_when_any_field_differs_then_denied(field: str, value: object) -> None:
    changed = envelope()
    assert verify_envelope(changed, session=SESSION, sender=SENDER) == go(1)
    setattr(changed, field, value)
    with pytest.raises(Denied):
        verify_envelope(changed, session=SESSION, sender=SENDER)


def test_verify_when_session_differs_then_denied() -> None:
    with pytest.raises(Denied):
        verify_envelope(envelope(), session=bytes(16), sender=SENDER)


def test_sign_when_control_is_too_large_then_invalid_and_largest_fits_into_mail() -> None:
    def plan(size: int) -> ring_pb2.Control:
        return ring_pb2.Control(plan=ring_pb2.PlanProposal(plan_json="x" * size))

    overhead = plan(LARGEST_CONTROL_BYTES).ByteSize() - LARGEST_CONTROL_BYTES
    largest = envelope(plan(LARGEST_CONTROL_BYTES - overhead))
    parcel = ring_pb2.Parcel(envelope=Sealer(KEY, b"", entropy()).seal(largest.SerializeToString()))
    assert parcel.ByteSize() <= LARGEST_SEALED_BYTES
    with pytest.raises(InvalidInput):
        envelope(plan(LARGEST_CONTROL_BYTES))


def test_read_sealed_when_it_is_too_large_then_invalid_before_it_is_opened() -> None:
    sealed = ring_pb2.Sealed(nonce=bytes(12), ciphertext=bytes(LARGEST_SEALED_BYTES + 1))
    with pytest.raises(InvalidInput):
        read_sealed(sealed.SerializeToString())


def test_is_for_all_when_sealed_for_the_group_or_for_one_then_told_apart() -> None:
    for key, for_all in ((1, True), (7, True), (0, False)):
        assert is_for_all(ring_pb2.Sealed(nonce=bytes(12), ciphertext=b"x", key=key).SerializeToString()) is for_all


@pytest.mark.parametrize("seed", range(10))
def test_seen_when_numbers_come_in_any_order_then_same_as_a_set_within_the_window(seed: int) -> None:
    chance = random.Random(seed)
    seen, known, highest = ReplayWindow(), set[int](), 0
    for _ in range(3000):
        number = max(1, highest + chance.randint(-WINDOW - 50, chance.choice([2, 2, 2 * WINDOW])))
        expected = number in known or highest - number >= WINDOW
        assert seen.has(number) == expected
        if not expected:
            seen.add(number)
            known.add(number)
            highest = max(highest, number)
    assert seen._bits.bit_length() <= WINDOW


def test_seen_when_a_sender_leaps_then_bounded_and_old_numbers_are_taken_as_seen() -> None:
    seen = ReplayWindow()
    seen.add(1)
    seen.add(2**64 - 1)
    assert seen.has(1)
    assert not seen.has(2**64 - 2)
    assert seen._bits.bit_length() <= WINDOW
