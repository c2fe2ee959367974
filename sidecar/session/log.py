"""The membership log: a hash chain of entries, each signed by the admitter, that every member keeps and checks.

Entry i names the SHA-256 of entry i-1, so whoever holds one entry holds all before it. A second entry for an index
that is taken is a fork, and is refused.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError
from kafila_proto import ring_pb2

from sidecar.errors import Denied, InvalidInput, Refused, Unavailable
from sidecar.session import names
from sidecar.session.identity import Identity, fingerprint, public_key_of, verify

SESSION_BYTES = 16
LARGEST_ENTRY_BYTES = 16 * 1024
LONGEST_LOG = 400  # entries; a newcomer gets them in one message
REASONS = ("left", "lost", "removed")

_PURPOSE = b"log entry"


class Forked(Denied):
    """The admitter signed two histories: nothing it says can be trusted any more."""


class Gap(Unavailable):
    """The admitter's entry `index` came before the ones that it builds on; it may be offered again later."""

    def __init__(self, index: int, length: int) -> None:
        super().__init__(f"log entry {index} came before entry {length}")
        self.index = index


@dataclass(frozen=True, slots=True)
class Member:
    """A member as the log pins it; `fingerprint` is the certificate's SHA-256, 32 bytes."""

    name: str
    certificate: bytes = field(repr=False)
    fingerprint: bytes = field(repr=False)
    mailbox: int
    host: bool
    index: int  # of the entry that admitted it


@dataclass(frozen=True, slots=True)
class Joined:
    """An entry that admitted a member."""

    member: Member


@dataclass(frozen=True, slots=True)
class Gone:
    """An entry that removed a member; the reason is one of `REASONS`."""

    member: Member
    reason: str


Change = Joined | Gone


class Log:
    """The entries, each verified as it came, and what follows from them."""

    def __init__(self, session: bytes) -> None:
        self.session = session
        self.terms = ring_pb2.SessionTerms()
        self.host = ""
        self._entries: list[ring_pb2.SignedEntry] = []
        self._members: dict[str, Member] = {}
        self._fingerprints: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[ring_pb2.SignedEntry, ...]:
        return tuple(self._entries)

    @property
    def members(self) -> tuple[Member, ...]:
        """Those who belong to the session now, in the order of joining."""
        return tuple(self._members.values())

    def member(self, name: str) -> Member | None:
        return self._members.get(name)

    def append(self, signed: ring_pb2.SignedEntry) -> Change | None:
        """Takes one entry and says what it changes; None when it is known already.

        Raises Denied for a signature that is not the admitter's, Forked for a fork, Gap when entries before it are
        missing, InvalidInput for an entry that makes no sense.
        """
        entry = _parse(signed.entry)
        if entry.session != self.session:
            raise Denied("a log entry belongs to another session")
        if entry.index < len(self) and self._entries[entry.index].entry == signed.entry:
            return None
        verify(public_key_of(self._admitter_of(entry)), _PURPOSE, signed.entry, signed.signature)
        self._check_place(entry)
        change = self._check_change(entry)
        self._apply(entry, signed, change)
        return change

    def _check_place(self, entry: ring_pb2.LogEntry) -> None:
        """Raises Gap or Forked unless the signed entry is the next one."""
        if entry.index > len(self):
            raise Gap(entry.index, len(self))
        if entry.index < len(self) or entry.previous != self._head():
            raise Forked(f"the membership log is forked at entry {entry.index}: leave this session and make a new one")
        if len(self) >= LONGEST_LOG:
            raise Refused(f"the session's log is full at {LONGEST_LOG} entries: create a new session")

    def _check_change(self, entry: ring_pb2.LogEntry) -> Change:
        match entry.WhichOneof("change"):
            case "founded":
                return Joined(self._checked(entry.founded.host, 0, host=True))
            case "admitted":
                return Joined(self._checked(entry.admitted, entry.index, host=False))
            case "removed":
                return self._checked_removal(entry.removed)
            case _:
                raise InvalidInput(f"log entry {entry.index} changes nothing")

    def _head(self) -> bytes:
        return hashlib.sha256(self._entries[-1].entry).digest() if self._entries else b""

    def _admitter_of(self, entry: ring_pb2.LogEntry) -> bytes:
        """The certificate (DER) whose key has to have signed: the founder's own at first, then the host's."""
        if entry.HasField("founded") != (entry.index == 0):
            raise InvalidInput("a membership log is founded by its first entry, and by no other")
        if not self._entries:
            return entry.founded.host.certificate
        host = self._members.get(self.host)
        if host is None:
            raise Denied("the host has left this session, so nobody can change its members")
        return host.certificate

    def _checked(self, admitted: ring_pb2.Admitted, index: int, *, host: bool) -> Member:
        public_key_of(admitted.certificate)
        pin = fingerprint(admitted.certificate)
        if not names.is_legal(admitted.name):
            raise InvalidInput(f"log entry {index} admits a member under an illegal name")
        if admitted.name.casefold() in {name.casefold() for name in self._members}:
            raise InvalidInput(f"log entry {index} admits a second member named {admitted.name}")
        if pin in self._fingerprints:
            raise InvalidInput(f"log entry {index} admits a certificate that was admitted before")
        return Member(admitted.name, admitted.certificate, pin, admitted.mailbox, host, index)

    def _checked_removal(self, removed: ring_pb2.Removed) -> Gone:
        member = self._members.get(removed.name)
        if member is None:
            raise InvalidInput("a log entry removes somebody who is no member")
        if removed.reason not in REASONS:
            raise InvalidInput(f"a log entry removes {member.name} for a reason that is not one of {REASONS}")
        return Gone(member, removed.reason)

    def _apply(self, entry: ring_pb2.LogEntry, signed: ring_pb2.SignedEntry, change: Change) -> None:
        self._entries.append(signed)
        if isinstance(change, Gone):
            del self._members[change.member.name]
            return
        self._members[change.member.name] = change.member
        self._fingerprints.add(change.member.fingerprint)
        if change.member.host:
            self.host = change.member.name
            self.terms = entry.founded.terms


def replay(session: bytes, entries: Iterable[ring_pb2.SignedEntry]) -> Log:
    """A log from all its entries; raises as `Log.append` does, and InvalidInput when there are none."""
    log = Log(session)
    for signed in entries:
        log.append(signed)
    if not len(log):
        raise InvalidInput("the membership log has no entries")
    return log


def found_log(identity: Identity, *, session: bytes, terms: ring_pb2.SessionTerms, name: str, mailbox: int) -> Log:
    """A log of one entry, signed by the host."""
    host = ring_pb2.Admitted(name=name, certificate=identity.der, mailbox=mailbox)
    log = Log(session)
    _extend(log, identity, ring_pb2.LogEntry(founded=ring_pb2.Founded(terms=terms, host=host)))
    return log


def admit(log: Log, identity: Identity, *, name: str, certificate: bytes, mailbox: int) -> ring_pb2.SignedEntry:
    """Signs and appends the admission of a member; raises as `Log.append` does."""
    admitted = ring_pb2.Admitted(name=name, certificate=certificate, mailbox=mailbox)
    return _extend(log, identity, ring_pb2.LogEntry(admitted=admitted))


def remove(log: Log, identity: Identity, *, name: str, reason: str) -> ring_pb2.SignedEntry:
    """Signs and appends the removal of a member; raises as `Log.append` does."""
    return _extend(log, identity, ring_pb2.LogEntry(removed=ring_pb2.Removed(name=name, reason=reason)))


def _extend(log: Log, identity: Identity, change: ring_pb2.LogEntry) -> ring_pb2.SignedEntry:
    change.index = len(log)
    change.session = log.session
    change.previous = hashlib.sha256(log.entries[-1].entry).digest() if len(log) else b""
    entry = change.SerializeToString(deterministic=True)
    signed = ring_pb2.SignedEntry(entry=entry, signature=identity.sign(_PURPOSE, entry))
    log.append(signed)
    return signed


def _parse(data: bytes) -> ring_pb2.LogEntry:
    if len(data) > LARGEST_ENTRY_BYTES:
        raise InvalidInput(f"a log entry of {len(data)} bytes is over {LARGEST_ENTRY_BYTES} bytes")
    try:
        return ring_pb2.LogEntry.FromString(data)
    except DecodeError as error:
        raise InvalidInput("a log entry can't be read") from error
