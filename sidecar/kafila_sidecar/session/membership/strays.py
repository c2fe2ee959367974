"""Whom a host let in after it had been succeeded, and did not know that yet. No I/O, no clock.

They are no members of the session that went on, and nobody there knows them but by the former host's entries. Whoever
hears of those can tell them to join again, which nobody else may ever do.
"""

from collections.abc import Iterable, Iterator

from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput
from kafila_sidecar.session.membership.admitted import PURPOSE, read_admitted
from kafila_sidecar.session.membership.identity import public_key_of, verify
from kafila_sidecar.session.membership.members import LARGEST_SESSION, Member


class Strays:
    """The latest ones, in bounded number."""

    def __init__(self, session: bytes) -> None:
        self._session = session
        self._found: dict[bytes, tuple[Member, Member]] = {}  # by fingerprint: the stray, and the host that let it in

    def __iter__(self) -> Iterator[Member]:
        return (stray for stray, _ in self._found.values())

    def host_of(self, member: Member) -> Member | None:
        """Who let it in; None for no stray."""
        stray, host = self._found.get(member.fingerprint, (None, None))
        return host if stray == member else None

    def hear(self, host: Member, place: int, entries: Iterable[ring_pb2.SignedEntry]) -> None:
        """Entries of a host that was succeeded at this place; those that say or prove nothing of the kind are passed
        over."""
        for signed in entries:
            try:
                stray = self._let_in(host, place, signed)
            except (Denied, InvalidInput, DecodeError):
                continue
            if stray is not None:
                self._found.pop(stray.fingerprint, None)
                self._found[stray.fingerprint] = stray, host
        while len(self._found) > LARGEST_SESSION:
            del self._found[next(iter(self._found))]

    def _let_in(self, host: Member, place: int, signed: ring_pb2.SignedEntry) -> Member | None:
        entry = ring_pb2.LogEntry.FromString(signed.entry)
        if entry.session != self._session or entry.index < place or not entry.HasField("admitted"):
            return None
        verify(public_key_of(host.certificate), PURPOSE, signed.entry, signed.signature)
        return read_admitted(entry.admitted, entry.index)
