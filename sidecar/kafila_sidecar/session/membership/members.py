"""Who belongs to a session: plain values, and how an entry of the log changes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

LARGEST_SESSION = 64  # members; the planner's limit
REASONS = ("left", "lost", "removed")


@dataclass(frozen=True, slots=True)
class Member:
    """A member as the log pins it; `fingerprint` is the certificate's SHA-256, 32 bytes."""

    name: str
    certificate: bytes = field(repr=False)
    fingerprint: bytes = field(repr=False)
    agreement: bytes = field(repr=False)  # X25519 public key, 32 bytes
    mailbox: int
    index: int  # of the entry that admitted it, or by which it returned last
    admitted: int = -1  # of the one that admitted it first; -1: `index`

    @property
    def first_index(self) -> int:
        """Of the entry that admitted it first: whoever comes back is the same member."""
        return self.index if self.admitted < 0 else self.admitted


@dataclass(frozen=True, slots=True)
class Joined:
    """An entry that admitted a member; the first one founded the session."""

    member: Member


@dataclass(frozen=True, slots=True)
class Rejoined:
    """An entry by which a member that was lost, or was started again, is one from now on. `was_member`: until now."""

    member: Member
    was_member: bool


@dataclass(frozen=True, slots=True)
class Gone:
    """An entry that removed a member; the reason is one of `REASONS`. `rekey`: SHA-256 of the new key's message."""

    member: Member
    reason: str
    rekey: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class TookOver:
    """An entry by which `successor` became the host in place of `member`, who is removed."""

    member: Member
    reason: str
    rekey: bytes = field(repr=False)
    successor: Member
    standing: int  # the number that its votes were given under


@dataclass(frozen=True, slots=True)
class Locking:
    """An entry that locked or unlocked the session."""

    locked: bool


class Replanning(StrEnum):
    """What is done with a better plan."""

    ASK = "ask"  # people are told
    AUTO = "auto"  # and it is taken when it gains enough
    NEVER = "never"  # nothing


@dataclass(frozen=True, slots=True)
class Ruling:
    """An entry that says what is done with a better plan."""

    replanning: Replanning


Removal = Gone | TookOver
Change = Joined | Rejoined | Removal | Locking | Ruling


@dataclass(frozen=True, slots=True)
class Membership:
    """What a log says up to some entry."""

    members: Mapping[str, Member] = field(default_factory=lambda: MappingProxyType({}))  # in the order of joining
    host: str = ""  # the host's name: the founder, or the latest successor
    locked: bool = False
    replanning: Replanning | None = None  # None: as the terms say
    key_number: int = 1  # of the session's key
    takeovers: int = 0  # how often somebody began to be the host anew: each succession, and each return of the host

    @property
    def host_member(self) -> Member:
        return self.members[self.host]

    @property
    def heirs(self) -> tuple[Member, ...]:
        """Who may succeed the host, the first one first."""
        return tuple(member for member in self.members.values() if member.name != self.host)

    def after(self, change: Change) -> "Membership":
        """What holds once the change is made."""
        match change:
            case Joined(member):
                members = MappingProxyType({**self.members, member.name: member})
                return replace(self, members=members, host=self.host or member.name)
            case Rejoined(member):
                return self._with_again(member)
            case Locking(locked):
                return replace(self, locked=locked)
            case Ruling(replanning):
                return replace(self, replanning=replanning)
            case Gone(member):
                return self._without(member)
            case TookOver(member, successor=successor):
                return replace(self._without(member), host=successor.name, takeovers=self.takeovers + 1)

    def _with_again(self, member: Member) -> "Membership":
        others = {name: other for name, other in self.members.items() if name != member.name}
        members = MappingProxyType({**others, member.name: member})
        return replace(self, members=members, takeovers=self.takeovers + (member.name == self.host))

    def _without(self, member: Member) -> "Membership":
        members = {name: other for name, other in self.members.items() if name != member.name}
        return replace(self, members=MappingProxyType(members), key_number=self.key_number + 1)
