"""How the session outlives its host: resignations, votes, and when they make somebody the successor.

One member alone can depose nobody: a host that did not resign is replaced only by more than half of the others,
and each of them votes by what it sees itself. Votes are for one place in the log and one number of the host's
standing, so that none of them is good twice.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied
from kafila_sidecar.session.membership.identity import Identity, public_key_of, verify
from kafila_sidecar.session.membership.members import Member, Membership

CONVICTED = (1 << 32) - 1  # the standing of a host that signed two histories: its word voids no vote

_RESIGNATION = b"resignation"
_VOTE = b"succession vote"


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where in which log the next entry goes; whoever signs it signs everything before."""

    session: bytes
    index: int
    previous: bytes  # SHA-256 of the entry before, 32 bytes

    @property
    def data(self) -> bytes:
        return self.session + struct.pack(">I", self.index) + self.previous


def resign(identity: Identity, place: LogPlace) -> bytes:
    """The host's signature under its own going, 64 bytes."""
    return identity.sign(_RESIGNATION, place.data)


def vote(identity: Identity, place: LogPlace, *, successor: Member, standing: int) -> bytes:
    """A member's signature for a successor, 64 bytes."""
    return identity.sign(_VOTE, _vote_statement(place, successor, standing))


def check_vote(place: LogPlace, *, voter: Member, successor: Member, standing: int, signature: bytes) -> None:
    """Raises Denied for what the voter did not sign."""
    verify(public_key_of(voter.certificate), _VOTE, _vote_statement(place, successor, standing), signature)


def check_succession(taken: ring_pb2.TakenOver, place: LogPlace, membership: Membership, successor: Member) -> None:
    """Raises Denied unless the host resigned, or enough members voted for this successor at this place."""
    if taken.reason not in ("left", "lost"):
        raise Denied("a succession has no reason")
    if taken.reason == "left":
        if successor != membership.heirs[0]:
            raise Denied(f"{successor.name} is not the first in order to succeed {membership.host}")
        certificate = membership.host_member.certificate
        verify(public_key_of(certificate), _RESIGNATION, place.data, taken.resignation)
        return
    voters = {ballot.voter: ballot.signature for ballot in taken.ballots}
    for name, signature in voters.items():
        voter = membership.members.get(name)
        if voter is None or name == membership.host:
            raise Denied("a vote for a successor is from somebody who has none")
        check_vote(place, voter=voter, successor=successor, standing=taken.standing, signature=signature)
    if not is_majority(len(voters), membership):
        raise Denied(f"{len(voters)} votes are not more than half of the {len(membership.heirs)} members")


def is_majority(votes: int, membership: Membership) -> bool:
    """More than half of all members but the host."""
    return 2 * votes > len(membership.heirs)


class Ballots:
    """The votes and the resignation that one member has heard, for the place where its log ends."""

    def __init__(self) -> None:
        self.standing = 0  # the host's latest
        self.own = ""  # for whom this member voted, while it misses the host
        self._resignation = b""
        self._votes: dict[str, tuple[str, bytes]] = {}  # voter -> successor, signature
        self._early: dict[str, tuple[str, bytes]] = {}  # by those who know of a conviction that this one does not

    @property
    def voters(self) -> frozenset[str]:
        """Whose votes count here and now."""
        return frozenset(self._votes)

    @property
    def has_convicted(self) -> bool:
        """This member holds the proof that the host signed two histories."""
        return self.standing == CONVICTED

    def stood(self, number: int) -> None:
        """The host is there: what was voted under a lower number is void."""
        if self.standing < number < CONVICTED:
            self.standing = number
            self._votes.clear()

    def has_voided(self, standing: int) -> bool:
        """Whether the host has answered what was voted under this number."""
        return standing < self.standing < CONVICTED

    def convict(self) -> None:
        """The host signed two histories: whatever it says, it has to be succeeded."""
        self.standing, self._votes, self._early = CONVICTED, self._early, {}

    def host_spoke(self) -> None:
        """This member misses the host no more."""
        if not self.has_convicted:
            self.own = ""

    def resigned(self, resignation: bytes) -> None:
        """The host says goodbye."""
        self._resignation = resignation

    def cast(self, voter: Member, message: ring_pb2.Vote, place: LogPlace, membership: Membership) -> None:
        """Takes a vote; raises Denied when it is none, or not for here and now."""
        successor = membership.members.get(message.successor)
        if successor is None or membership.host in (voter.name, successor.name):
            raise Denied("a vote is for somebody who can't succeed, or by the host itself")
        if message.log_length != place.index or message.standing not in (self.standing, CONVICTED):
            raise Denied(f"{voter.name}'s vote is for another time")
        check_vote(place, voter=voter, successor=successor, standing=message.standing, signature=message.signature)
        votes = self._votes if message.standing == self.standing else self._early
        votes[voter.name] = (successor.name, message.signature)

    def log_grew(self, *, new_host: bool) -> None:
        """Votes were for the place before; a resignation may be for the new one."""
        self._votes.clear()
        self._early.clear()
        if new_host:
            self.standing, self._resignation, self.own = 0, b"", ""

    def won(self, heir: Member, place: LogPlace, membership: Membership) -> ring_pb2.TakenOver | None:
        """The proof that `heir` is the successor now, if there is one."""
        for taken in self._proofs(heir):
            try:
                check_succession(taken, place, membership, heir)
            except Denied:
                continue
            return taken
        return None

    def _proofs(self, heir: Member) -> Iterable[ring_pb2.TakenOver]:
        if self._resignation:
            yield ring_pb2.TakenOver(successor=heir.name, reason="left", resignation=self._resignation)
        votes = {voter: signature for voter, (name, signature) in self._votes.items() if name == heir.name}
        if votes:
            ballots = [ring_pb2.Ballot(voter=voter, signature=signature) for voter, signature in sorted(votes.items())]
            yield ring_pb2.TakenOver(successor=heir.name, reason="lost", standing=self.standing, ballots=ballots)


def _vote_statement(place: LogPlace, successor: Member, standing: int) -> bytes:
    return place.data + struct.pack(">I", standing) + successor.fingerprint
