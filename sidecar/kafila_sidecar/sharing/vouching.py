"""Who says what a unit's bytes are: the member that brought them into the session signs their SHA-256. No I/O."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied
from kafila_sidecar.session.membership.identity import Identity, public_key_of, verify
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.weights.format.units import Unit

PURPOSE = b"weights"
DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Voucher:
    """`by`: the member that took the bytes from outside the session, or had them when it came."""

    by: str
    sha256: bytes
    signature: bytes


class Vouchers:
    """One member's: makes its own, checks others', and keeps those to pass on with the bytes."""

    def __init__(
        self, *, identity: Identity, name: str, revision: str, members: Callable[[], Sequence[Member]]
    ) -> None:
        self._identity = identity
        self._name = name
        self._revision = revision
        self._members = members
        self._kept: dict[Unit, Voucher] = {}

    def for_unit(self, unit: Unit, sha256: bytes) -> Voucher:
        """Whoever vouched for these bytes, if it is a member still; else this member does."""
        kept = self._kept.get(unit)
        if kept is not None and kept.sha256 == sha256 and self._certificate(kept.by):
            return kept
        return Voucher(self._name, sha256, self._identity.sign(PURPOSE, self._message(unit, sha256)))

    def check(self, unit: Unit, told: ring_pb2.Vouched) -> Voucher:
        """Raises Denied for what no member signed."""
        certificate = self._certificate(told.by)
        if certificate is None or len(told.sha256) != DIGEST_BYTES:
            raise Denied(f"nobody in the session vouches for {unit.file} from byte {unit.start}")
        verify(public_key_of(certificate), PURPOSE, self._message(unit, told.sha256), told.signature)
        return Voucher(told.by, told.sha256, told.signature)

    def keep(self, unit: Unit, voucher: Voucher) -> None:
        """The unit came with it."""
        self._kept[unit] = voucher

    def given_by(self, member: str) -> list[Unit]:
        """What came with this member's word."""
        return [unit for unit, voucher in self._kept.items() if voucher.by == member]

    def givers_of(self, units: Sequence[Unit]) -> set[str]:
        """Who vouched for any of these."""
        return {self._kept[unit].by for unit in units if unit in self._kept}

    def kept_of(self, file: str) -> list[Unit]:
        """What of a file came from members."""
        return [unit for unit in self._kept if unit.file == file]

    def forget(self, units: Sequence[Unit]) -> None:
        """They are not here any more."""
        for unit in units:
            self._kept.pop(unit, None)

    def _certificate(self, name: str) -> bytes | None:
        return next((member.certificate for member in self._members() if member.name == name), None)

    def _message(self, unit: Unit, sha256: bytes) -> bytes:
        return b"".join(
            (
                counted(self._revision),
                counted(unit.file),
                unit.start.to_bytes(8, "big"),
                unit.end.to_bytes(8, "big"),
                sha256,
            )
        )


def counted(text: str) -> bytes:
    """With its length in bytes before it, in two bytes."""
    encoded = text.encode()
    return len(encoded).to_bytes(2, "big") + encoded
