"""Who vouches for bytes: a member, for this unit of this revision, and nobody else."""

import hashlib
from typing import Any

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied
from kafila_sidecar.session.membership.identity import Identity, make_identity
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.sharing.vouching import Voucher, Vouchers
from kafila_sidecar.weights.format.units import Unit

UNIT = Unit("model.safetensors", 100, 200)
DIGEST = hashlib.sha256(b"the bytes").digest()
REVISION = "a" * 40
ADA, BOB = make_identity(), make_identity()


def member(name: str, identity: Identity, index: int) -> Member:
    return Member(name, identity.der, identity.fingerprint, identity.agreement, index + 1, index)


MEMBERS = [member("ada", ADA, 0), member("bob", BOB, 1)]


def vouchers(name: str, identity: Identity, *, revision: str = REVISION, members: Any = MEMBERS) -> Vouchers:
    return Vouchers(identity=identity, name=name, revision=revision, members=lambda: members)


def told(voucher: Voucher) -> ring_pb2.Vouched:
    return ring_pb2.Vouched(by=voucher.by, sha256=voucher.sha256, signature=voucher.signature)


def test_voucher_when_a_member_signed_it_then_taken() -> None:
    made = vouchers("ada", ADA).for_unit(UNIT, DIGEST)
    assert vouchers("bob", BOB).check(UNIT, told(made)) == made == Voucher("ada", DIGEST, made.signature)


@pytest.mark.parametrize(
    ("unit", "changes", "revision"),
    [
        (UNIT._replace(start=101), {}, REVISION),
        (UNIT._replace(end=199), {}, REVISION),
        (UNIT._replace(file="model-2.safetensors"), {}, REVISION),
        (UNIT, {"sha256": hashlib.sha256(b"others").digest()}, REVISION),
        (UNIT, {"sha256": DIGEST[:31]}, REVISION),
        (UNIT, {"by": "bob"}, REVISION),
        (UNIT, {"by": "eve"}, REVISION),
        (UNIT, {"signature": bytes(64)}, REVISION),
        (UNIT, {}, "b" * 40),
    ],
)
def test_voucher_when_it_is_for_anything_else_then_denied(unit: Unit, changes: dict[str, Any], revision: str) -> None:
    vouched = told(vouchers("ada", ADA).for_unit(UNIT, DIGEST))
    for key, value in changes.items():
        setattr(vouched, key, value)
    with pytest.raises(Denied):
        vouchers("bob", BOB, revision=revision).check(unit, vouched)


def test_voucher_when_the_bytes_are_still_those_then_passed_on_else_one_of_ones_own() -> None:
    made = vouchers("ada", ADA).for_unit(UNIT, DIGEST)
    bobs = vouchers("bob", BOB)
    bobs.keep(UNIT, made)
    assert bobs.for_unit(UNIT, DIGEST) == made
    assert bobs.for_unit(UNIT, hashlib.sha256(b"others").digest()).by == "bob"
    without_ada = vouchers("bob", BOB, members=MEMBERS[1:])
    without_ada.keep(UNIT, made)
    assert without_ada.for_unit(UNIT, DIGEST).by == "bob"


def test_signature_over_weights_when_taken_for_another_purpose_then_it_is_none() -> None:
    from kafila_sidecar.session.membership.identity import public_key_of, verify

    made = vouchers("ada", ADA).for_unit(UNIT, DIGEST)
    message = vouchers("ada", ADA)._message(UNIT, DIGEST)
    verify(public_key_of(ADA.der), b"weights", message, made.signature)
    with pytest.raises(Denied):
        verify(public_key_of(ADA.der), b"control", message, made.signature)
