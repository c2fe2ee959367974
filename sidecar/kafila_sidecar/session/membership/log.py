"""The membership log: a hash chain of entries, each signed by the host, that every member keeps and checks.

Entry i names the SHA-256 of entry i-1, so whoever holds one entry holds all before it. A second entry for an index
that is taken is refused; for what, `rivals` says.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, Refused, Unavailable
from kafila_sidecar.session.membership.admitted import PURPOSE, read_admitted
from kafila_sidecar.session.membership.identity import public_key_of, verify
from kafila_sidecar.session.membership.members import (
    REASONS,
    Change,
    Gone,
    Joined,
    Locking,
    Member,
    Membership,
    Rejoined,
    Replanning,
    Ruling,
    TookOver,
)
from kafila_sidecar.session.membership.rivals import Accession, ForkedByHost, Heads, Takeover, judge
from kafila_sidecar.session.membership.strays import Strays
from kafila_sidecar.session.membership.succession import LogPlace, check_succession

SESSION_BYTES = 16
DIGEST_BYTES = 32
LARGEST_ENTRY_BYTES = 16 * 1024
LONGEST_LOG = 1000  # entries
LARGEST_LOG_BYTES = 192 * 1024  # of entries and signatures: a newcomer gets them in one message


class Gap(Unavailable):
    """The entry `index` came before the ones that it builds on; it may be offered again later."""

    def __init__(self, index: int, length: int) -> None:
        super().__init__(f"log entry {index} came before entry {length}")
        self.index = index


@dataclass(frozen=True, slots=True)
class Checked:
    """An entry that fits: hand it to `Log.take`, nothing in between."""

    signed: ring_pb2.SignedEntry
    change: Change
    terms: ring_pb2.SessionTerms | None  # of the founding entry


@dataclass(frozen=True, slots=True)
class Former:
    """Who was a member, and the index of the entry that removed it."""

    member: Member
    removed_at: int


class Log:
    """The entries, each verified as it came, and what follows from them. `strays` doesn't: no entry here names them, so
    that they are not in a replayed log."""

    def __init__(self, session: bytes) -> None:
        self.session = session
        self.terms = ring_pb2.SessionTerms()
        self.founder = ""
        self.strays = Strays(session)
        self.last_change: Change = Locking(False)  # none yet
        self._entries: list[ring_pb2.SignedEntry] = []
        self._digests = [b""]  # SHA-256 of the entry before each place
        self._heads = Heads()
        self._history = [Membership()]  # before each entry, and now
        self._bytes = 0
        self._first: dict[int, Member] = {}  # by the index of the entry that admitted it first
        self._lost: dict[bytes, str] = {}  # name by fingerprint of those who are no members, but may return

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """Of all entries with their signatures."""
        return self._bytes

    @property
    def known(self) -> tuple[Member, ...]:
        """Everybody who is or ever was a member, as they were admitted."""
        return tuple(self._first.values())

    def may_return(self, member: Member) -> bool:
        """Whether somebody who was admitted once may be a member again: nobody who left, or was put out."""
        return member.fingerprint in self._lost or self._is_member(member)

    @property
    def away(self) -> tuple[str, ...]:
        """Who was lost and may return, in the order of going."""
        return tuple(self._lost.values())

    def is_out(self, fingerprint: bytes) -> bool:
        """Whether this certificate was a member's who left, or was put out."""
        return any(one.fingerprint == fingerprint and not self.may_return(one) for one in self.known)

    def until_gone(self, member: Member) -> list[ring_pb2.SignedEntry]:
        """All entries up to the one by which a member went last, or all; without the keys that went with them.

        A stray gets what proves that its host was succeeded: up to the entry by which the present host, whose word it
        needs, took over; and no more than that host itself gets, if it went for good, since that proves it too.
        """
        host = self.strays.host_of(member)
        until = self._going_of(member)
        if not until and host is not None and self.accession is not None:
            until = self.accession.index + 1
            until = until if self.may_return(host) else min(until, self._going_of(host))
        return self.bare[:until]

    def head_at(self, length: int) -> bytes:
        """SHA-256 of the last of the first `length` entries; empty for none."""
        return self._digests[length]

    @property
    def entries(self) -> tuple[ring_pb2.SignedEntry, ...]:
        return tuple(self._entries)

    @property
    def bare(self) -> list[ring_pb2.SignedEntry]:
        """All entries without the keys that went with them, for who gets the present one."""
        return [ring_pb2.SignedEntry(entry=signed.entry, signature=signed.signature) for signed in self._entries]

    @property
    def now(self) -> Membership:
        """What holds after all entries."""
        return self._history[-1]

    @property
    def host(self) -> str:
        """Who admits: the founder, or the latest successor."""
        return self.now.host

    @property
    def members(self) -> tuple[Member, ...]:
        """Those who belong to the session now, in the order of joining."""
        return tuple(self.now.members.values())

    @property
    def place(self) -> LogPlace:
        """Where the next entry goes."""
        return self.place_at(len(self))

    def place_at(self, index: int) -> LogPlace:
        """Where the entry at `index` went, or will go."""
        return LogPlace(self.session, index, self._digests[index])

    def is_of_this_host(self, index: int) -> bool:
        """Whether the one who is the host now was it when the log had so many entries."""
        return 0 < index <= len(self) and self._history[index].host_member == self.now.host_member

    @property
    def head(self) -> bytes:
        """SHA-256 of the last entry, 32 bytes; empty while there is none."""
        return self._digests[-1]

    def member(self, name: str) -> Member | None:
        return self.now.members.get(name)

    def former(self, name: str) -> Former | None:
        """Who had this name last and is no member now."""
        if name in self.now.members:
            return None
        for index in range(len(self) - 1, 0, -1):
            if member := self._history[index].members.get(name):
                return Former(member, index)
        return None

    def former_host(self, index: int) -> Former | None:
        """Who came, or came back, by the entry `index`, was the host when it was removed, and is no member now."""
        for at in range(len(self) - 1, index, -1):
            host = self._history[at].host_member
            if host.index == index and host.name not in self.now.members:
                return Former(host, at)
        return None

    def was_host(self, former: Former) -> bool:
        """Whether that one was the host when it was removed."""
        return self._history[former.removed_at].host == former.member.name

    @property
    def accession(self) -> Accession | None:
        """How the present host became it; None for the founder."""
        hosts = [at.host for at in self._history]
        changed = (index for index in range(len(self) - 1, 0, -1) if hosts[index] != hosts[index + 1])
        return next((Accession(index, self._entries[index]) for index in changed), None)

    def let_in_by(self, host: bytes) -> list[ring_pb2.SignedEntry]:
        """The entries by which those came in while the one with this fingerprint was the host who are members, or may
        return; without keys."""
        bare = self.bare
        newcomers = [one.first_index for one in self.known if one.first_index and self.may_return(one)]
        return [bare[index] for index in newcomers if self._history[index].host_member.fingerprint == host]

    def hear_former(self, former: Former, entries: Iterable[ring_pb2.SignedEntry]) -> None:
        """What somebody signed who is no member now: if it was the host, whom it let in since."""
        if self.was_host(former):
            self.strays.hear(former.member, former.removed_at, entries)

    def before(self, index: int) -> Membership:
        """What held before the entry at `index`."""
        return self._history[index]

    def follows(self, member: Member, length: int, head: bytes) -> bool:
        """Notes a member's signed word of how long its log is and how it ends. False if that is another history."""
        self._heads.say(member, length, head)
        return length > len(self) or self._digests[length] == head

    def is_past(self, member: Member, index: int) -> bool:
        """Whether a member is known to follow this history beyond the place `index`."""
        length, head = self._heads.of(member)
        return index < length <= len(self) and self._digests[length] == head

    def append(self, signed: ring_pb2.SignedEntry) -> Change | None:
        """Takes one entry and says what it changes; None when it is known already. Raises as `check` does."""
        checked = self.check(signed)
        if checked is None:
            return None
        self.take(checked)
        return checked.change

    def check(self, signed: ring_pb2.SignedEntry) -> Checked | None:
        """What an entry would change; None when it is known already.

        Raises Denied for a signature that is not the host's, Gap when entries before it are missing, InvalidInput for
        an entry that makes no sense; for another history ForkedByHost, Forked or Astray.
        """
        entry = _parse(signed.entry)
        if entry.session != self.session:
            raise Denied("a log entry belongs to another session")
        if entry.index < len(self):
            if self._entries[entry.index].entry == signed.entry:
                return None
            self._refuse_rival(entry, signed)
        verify(public_key_of(self._signer_of(entry)), PURPOSE, signed.entry, signed.signature)
        self._check_place(entry)
        terms = entry.founded.terms if entry.HasField("founded") else None
        return Checked(signed, self._change(entry), terms)

    def take(self, checked: Checked) -> None:
        """Appends what `check` has just found to fit."""
        self._entries.append(checked.signed)
        self._digests.append(hashlib.sha256(checked.signed.entry).digest())
        self._history.append(self.now.after(checked.change))
        self.last_change = checked.change
        self._bytes += len(checked.signed.entry) + len(checked.signed.signature)
        match checked.change:
            case Joined(member):
                self._first[member.index] = member
            case Rejoined(member):
                self._lost.pop(member.fingerprint, None)
                self._heads.forget(member)
            case Gone(member, reason) | TookOver(member, reason):
                self._heads.forget(member)
                if reason == "lost":
                    self._lost[member.fingerprint] = member.name
        if checked.terms is not None:
            self.terms, self.founder = checked.terms, self.now.host

    def _going_of(self, member: Member) -> int:
        """How long the log was when it had gone last: more than it is for a member, 0 for who never was one."""
        was = [any(one.fingerprint == member.fingerprint for one in at.members.values()) for at in self._history]
        return max((index + 1 for index, is_in in enumerate(was) if is_in), default=0)

    def _signer_of(self, entry: ring_pb2.LogEntry) -> bytes:
        """The certificate (DER) whose key has to have signed: the founder's own at first, then the host's.

        A successor signs its own taking over, for which it has to have the proof at that very place.
        """
        if entry.HasField("founded") != (entry.index == 0):
            raise InvalidInput("a membership log is founded by its first entry, and by no other")
        if not self._entries:
            return entry.founded.host.certificate
        if not entry.HasField("taken_over") or entry.index > len(self):
            return self.now.host_member.certificate
        return self._successor(entry).certificate

    def _successor(self, entry: ring_pb2.LogEntry) -> Member:
        """Who takes over by this entry; raises Denied unless it may, at that very place."""
        before = self._history[entry.index]
        successor = before.members.get(entry.taken_over.successor)
        if successor is None or successor.name == before.host:
            raise Denied("a log entry makes somebody the host who can't be")
        check_succession(entry.taken_over, self.place_at(entry.index), before, successor)
        return successor

    def _refuse_rival(self, entry: ring_pb2.LogEntry, signed: ring_pb2.SignedEntry) -> None:
        """Raises what another entry for a place that is taken is refused for."""
        if self._is_signed_by_host(signed):
            raise self._forked_by_host(entry.index)
        if not entry.HasField("taken_over") or entry.index == 0:
            raise Denied("a log entry for a place that is taken is not signed by the host")
        before, taken = self._history[entry.index], entry.taken_over
        successor = self._successor(entry)
        verify(public_key_of(successor.certificate), PURPOSE, signed.entry, signed.signature)
        if taken.reason == "left" and before.host_member == self.now.host_member:
            raise self._forked_by_host(entry.index)  # it resigned there, and went on
        voters = frozenset(before.members[ballot.voter] for ballot in taken.ballots)
        past = [member for member in self.now.heirs if self.is_past(member, entry.index)]
        raise judge(Takeover(entry.index, successor, voters), self.now, past)

    def _is_signed_by_host(self, signed: ring_pb2.SignedEntry) -> bool:
        try:
            verify(public_key_of(self.now.host_member.certificate), PURPOSE, signed.entry, signed.signature)
        except Denied:
            return False
        return True

    def _forked_by_host(self, index: int) -> ForkedByHost:
        return ForkedByHost(f"the membership log is forked at entry {index}: {self.host}, the host, signed two of them")

    def _check_place(self, entry: ring_pb2.LogEntry) -> None:
        """Raises Gap or ForkedByHost unless the signed entry is the next one."""
        if entry.index > len(self):
            raise Gap(entry.index, len(self))
        if entry.previous != self.head:
            raise self._forked_by_host(entry.index)
        if len(self) >= LONGEST_LOG or self._bytes >= LARGEST_LOG_BYTES:
            raise Refused(f"the session's log is full at {len(self)} entries: create a new session")

    def _change(self, entry: ring_pb2.LogEntry) -> Change:
        match entry.WhichOneof("change"):
            case "founded":
                return Joined(self._admitted(entry.founded.host, 0))
            case "admitted":
                return Joined(self._admitted(entry.admitted, entry.index))
            case "removed":
                return self._removed(entry.removed)
            case "taken_over":
                taken = entry.taken_over
                _check_digest(taken.rekey)
                successor = self.now.members[taken.successor]
                return TookOver(self.now.host_member, taken.reason, taken.rekey, successor, taken.standing)
            case "locked":
                return Locking(entry.locked.locked)
            case "replanning":
                return Ruling(_replanning(entry.replanning.replanning))
            case "returned":
                return self._returned(entry.returned, entry.index)
            case _:
                raise InvalidInput(f"log entry {entry.index} changes nothing")

    def _admitted(self, admitted: ring_pb2.Admitted, index: int) -> Member:
        member = read_admitted(admitted, index)
        if admitted.name.casefold() in {name.casefold() for name in self.now.members}:
            raise InvalidInput(f"log entry {index} admits a second member named {admitted.name}")
        if member.fingerprint in {one.fingerprint for one in self.known}:
            raise InvalidInput(f"log entry {index} admits a certificate that was admitted before")
        return member

    def _returned(self, returned: ring_pb2.Returned, index: int) -> Rejoined:
        first = self._first.get(returned.admitted)
        if first is None:
            raise InvalidInput(f"log entry {index} lets somebody return who never was a member")
        if not self.may_return(first):
            raise InvalidInput(f"log entry {index} lets {first.name} return, who left or was removed for good")
        is_member = self._is_member(first)
        if not is_member and first.name.casefold() in {name.casefold() for name in self.now.members}:
            raise InvalidInput(f"log entry {index} lets {first.name} return, whose name is another member's now")
        back = replace(first, mailbox=returned.mailbox, index=index, admitted=first.index)
        return Rejoined(back, was_member=is_member)

    def _is_member(self, one: Member) -> bool:
        member = self.member(one.name)
        return member is not None and member.fingerprint == one.fingerprint

    def _removed(self, removed: ring_pb2.Removed) -> Gone:
        member = self.member(removed.name)
        if member is None:
            raise InvalidInput("a log entry removes somebody who is no member")
        if member.name == self.host:
            raise InvalidInput("a log entry removes the host itself, whom only a successor can replace")
        if removed.reason not in REASONS:
            raise InvalidInput(f"a log entry removes {member.name} for a reason that is not one of {REASONS}")
        _check_digest(removed.rekey)
        return Gone(member, removed.reason, removed.rekey)


def replay(session: bytes, entries: Iterable[ring_pb2.SignedEntry]) -> Log:
    """A log from all its entries; raises as `Log.check` does, and InvalidInput when there are none."""
    log = Log(session)
    for signed in entries:
        log.append(signed)
    if not len(log):
        raise InvalidInput("the membership log has no entries")
    return log


def _replanning(text: str) -> Replanning:
    try:
        return Replanning(text)
    except ValueError:
        raise InvalidInput(f"{text[:20]!r} is nothing that is done with a better plan") from None


def _check_digest(digest: bytes) -> None:
    if len(digest) != DIGEST_BYTES:
        raise InvalidInput("a log entry removes somebody without a new key for the others")


def _parse(data: bytes) -> ring_pb2.LogEntry:
    if len(data) > LARGEST_ENTRY_BYTES:
        raise InvalidInput(f"a log entry of {len(data)} bytes is over {LARGEST_ENTRY_BYTES} bytes")
    try:
        return ring_pb2.LogEntry.FromString(data)
    except DecodeError as error:
        raise InvalidInput("a log entry can't be read") from error
