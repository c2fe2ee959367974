"""A second entry for a place of the log that is taken: who is to blame for it, and who has to give way. Pure.

A host signs one entry for a place and builds the next on it, and who takes over signs that for where its own log ends.
So an honest member's key is under one history only. What other members follow, they say in each envelope: the hash of
the last entry that they know. That can't be taken back either.

- The host's key is under both: it is convicted, and is followed no more (`ForkedByHost`).
- Somebody took over at that place. If most of those who are members now may be with it, this member is left behind by
  them: nobody is to blame, and it stops (`Forked`).
- The host itself may say that they are: then it gives way, and so does whoever is with it (`LeftBehind`, `Orphaned`).
- Most of the others may show a successor its own entry back, and say that they go without it: they had heard the host
  answer those votes in time. Then the successor gives way (`LeftBehind`), and may come back.
- If they are not, since the voters have followed this history past that place or are too few by now, the one who took
  over has left the session by its own signature, and nobody else has (`Astray`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied
from kafila_sidecar.session.membership.members import Member, Membership


class Forked(Denied):
    """There are two signed histories of this session, and most members are with the other: this one can't go on."""


class LeftBehind(Forked):
    """The entry `proof` shows with whom they are."""

    def __init__(self, sentence: str, proof: ring_pb2.SignedEntry) -> None:
        super().__init__(sentence)
        self.proof = proof


class Orphaned(Forked):
    """They had gone on before this member was admitted, so that it is none of theirs: only a host's word admits."""


class ForkedByHost(Forked):
    """The host signed both of them."""


class Astray(Denied):
    """`name` signed that it took over in a history which this session does not follow: it can come back only if the
    host had answered those votes, which it may have missed."""

    def __init__(self, sentence: str, name: str) -> None:
        super().__init__(sentence)
        self.name = name


@dataclass(frozen=True, slots=True)
class Accession:
    """The entry by which the present host took over, and its place."""

    index: int
    signed: ring_pb2.SignedEntry


class Heads:
    """How far members follow this history, by their own signed word; the latest of each counts."""

    def __init__(self) -> None:
        self._said: dict[bytes, tuple[int, bytes]] = {}  # by fingerprint: length of its log, hash of the last entry

    def say(self, member: Member, length: int, head: bytes) -> None:
        """A member's log is so long, and ends with this entry."""
        if length >= self.of(member)[0]:
            self._said[member.fingerprint] = length, head

    def forget(self, member: Member) -> None:
        """It is no member any more."""
        self._said.pop(member.fingerprint, None)

    def of(self, member: Member) -> tuple[int, bytes]:
        """How long its log is, and the hash of the last entry; 0 for who said nothing yet."""
        return self._said.get(member.fingerprint, (0, b""))


class Refusals:
    """Who shows a host the entry by which it took over, and signs that its own log goes without that."""

    def __init__(self) -> None:
        self._by: dict[bytes, set[Member]] = {}  # by entry

    def hear(self, sender: Member, length: int, entries: Iterable[ring_pb2.SignedEntry], own: Accession) -> None:
        """What a member whose log is so long says."""
        if length <= own.index and any(one.entry == own.signed.entry for one in entries):
            self._by.setdefault(own.signed.entry, set()).add(sender)

    def are_most(self, own: Accession, others: Iterable[Member], past: Iterable[Member]) -> bool:
        """Whether more than half of the others refuse it. `past`: who is known to follow it by now."""
        there = set(others)
        return 2 * len(there & self._by.get(own.signed.entry, set()) - set(past)) > len(there)


@dataclass(frozen=True, slots=True)
class Takeover:
    """A well-proved taking over at the place `index`, which this history has another entry for."""

    index: int
    successor: Member
    voters: frozenset[Member]


def judge(takeover: Takeover, now: Membership, past: Iterable[Member]) -> Denied:
    """What to refuse it for. `past`: who of the members now is known to follow this history beyond that place."""
    successor = takeover.successor
    those_with_it = ({successor} | takeover.voters) & set(now.heirs) - set(past)
    if len(those_with_it) > 1 and 2 * len(those_with_it) > len(now.heirs):
        names = ", ".join(sorted(member.name for member in those_with_it))
        return Forked(
            f"the membership log is forked at entry {takeover.index}: {successor.name} took over from {now.host}, and"
            f" {names} are with it: leave this session and join theirs"
        )
    sentence = f"{successor.name} took over at entry {takeover.index}, which this session has gone past"
    return Astray(sentence, successor.name)
