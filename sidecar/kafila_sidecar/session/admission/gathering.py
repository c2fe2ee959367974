"""A member that comes back: knocks at everybody in the room until a host takes it back, and answers those who come back
too. Where none of them is in a live session, the host goes on once half of the others are here; a host that stays away
is succeeded by votes, as in a live session. No I/O, no clock.

Half of the others with the host leave too few for a successor, and a successor's majority too few for the host. One
alone can't succeed its host, which need not wait for it as soon as anybody who was lost before is here.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, KafilaError
from kafila_sidecar.session.admission.doorstep import STEPS, Doorstep, ProvedMember
from kafila_sidecar.session.admission.host import AdmissionAnswer
from kafila_sidecar.session.admission.knocker import AlsoWaits, Knocker, KnockOutcome, MovedTo, TurnedAway, Welcomed
from kafila_sidecar.session.admission.pake import Entropy
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.membership.identity import Identity
from kafila_sidecar.session.membership.log import Log
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.succession import check_succession, check_vote, is_majority, vote


@dataclass(frozen=True, slots=True)
class GatheringPace:
    """How long is listened and waited, in seconds."""

    listen_s: float = 2.0  # whoever comes back listens first: the others may have gone on
    knock_s: float = 3.0  # how often at everybody who has not taken this member back
    host_missed_s: float = 15.0  # so long the host is waited for before somebody else may take its place


@dataclass(frozen=True, slots=True)
class Lead:
    """This member goes on as the host: it was the last one, or `proof` makes it the successor. `back`: who is here;
    `left`: who said goodbye."""

    log: Log
    proof: ring_pb2.TakenOver | None
    back: tuple[ProvedMember, ...]
    left: tuple[str, ...] = ()


Outcome = Welcomed | Lead | MovedTo | TurnedAway
Output = AdmissionAnswer | Outcome


class Homecoming:
    """One stay in a room. Times are seconds of a monotonic clock, given as `now`."""

    def __init__(
        self,
        *,
        log: Log,
        name: str,
        identity: Identity,
        versions: Versions,
        entropy: Entropy,
        pace: GatheringPace,
        now: float,
        leaves: bool = False,
    ) -> None:
        """`log`: this member's own, which grows by what others prove to know. `leaves`: it only says goodbye."""
        self._leaves = leaves
        self._log = log
        self._name = name
        self._identity = identity
        self._versions = versions
        self._entropy = entropy
        self.doorstep = Doorstep(
            log=lambda: self._log, name=name, identity=identity, versions=versions, entropy=entropy
        )
        self._pace = pace
        self._began = now
        self._knocked_at = now
        self._attending: set[int] = set()
        self._met: set[int] = set()  # who was knocked at since all were
        self._knockers: dict[int, Knocker] = {}
        self._proved: dict[str, ProvedMember] = {}  # by name
        self._lost_here: set[int] = set()  # mailboxes of who was lost before and comes back too
        self._left: dict[str, None] = {}  # by name, who said goodbye
        self._heard: dict[int, str] = {}  # mailbox -> who comes back there too
        self._was_challenged = False
        self._has_listened = False
        self.refusal = ""  # why the host does not take this member back for the time being

    @property
    def is_alone(self) -> bool:
        """Nobody else is in this room, or members of the session are: so it is the right one, as far as is known. Who
        answers by a name that is not known may be anybody."""
        return not self._attending or bool(self._here) or self._was_challenged

    @property
    def meets_nobody(self) -> bool:
        """Nobody in this room has spoken for the session yet."""
        return not self._here and not self._was_challenged

    @property
    def missing(self) -> list[str]:
        """Members who are not here, as far as is known."""
        here = {self._name, *self._here, *self._left}
        return [member.name for member in self._log.members if member.name not in here]

    def attending(self, mailboxes: Iterable[int], now: float) -> list[Output]:
        """Who is in the room besides: whoever is new is knocked at; who comes again and again, only in its turn."""
        before, self._attending = self._attending, set(mailboxes)
        for mailbox in before - self._attending:
            self._departed(mailbox)
        return [*self._knock(sorted(self._attending - before - self._met)), *self._lead(now)]

    def receive(self, mailbox: int, admission: ring_pb2.Admission, now: float) -> list[Output]:
        """A step of somebody else's, as a knocker's or as an answerer's."""
        if admission.WhichOneof("step") in STEPS:
            if self._leaves:
                return []
            return self._answer(self.doorstep.receive(mailbox, admission, now), now)
        knocker = self._knockers.get(mailbox)
        if knocker is None:
            return []
        try:
            outcome = knocker.receive(admission)
        except KafilaError:
            return []  # it is knocked at again, later
        return self._follow(mailbox, outcome)

    def next_timer(self) -> float:
        """When `handle_timer` is due."""
        return self._knocks_at if self._has_listened else min(self._listens_until, self._knocks_at)

    def handle_timer(self, now: float) -> list[Output]:
        """Knocks again at everybody: whoever did not answer may be the host by now."""
        self._has_listened = self._has_listened or now >= self._listens_until
        outputs = self._lead(now)
        if now >= self._knocks_at:
            self._knocked_at = now
            self._met.clear()
            outputs += self._knock(sorted(self._attending))
        return outputs

    # ---- Private

    @property
    def _listens_until(self) -> float:
        return self._began + self._pace.listen_s

    @property
    def _knocks_at(self) -> float:
        return self._knocked_at + self._pace.knock_s

    @property
    def _here(self) -> set[str]:
        return {*self._proved, *self._heard.values()}

    def _departed(self, mailbox: int) -> None:
        self.doorstep.departed(mailbox)
        self._knockers.pop(mailbox, None)
        self._heard.pop(mailbox, None)
        self._lost_here.discard(mailbox)
        self._proved = {name: proved for name, proved in self._proved.items() if proved.mailbox != mailbox}

    def _knock(self, mailboxes: Sequence[int]) -> list[Output]:
        self._met |= set(mailboxes)
        return [AdmissionAnswer(mailbox, self._knocker(mailbox).knock()) for mailbox in mailboxes]

    def _knocker(self, mailbox: int) -> Knocker:
        knocker = self._knockers[mailbox] = Knocker(
            log=self._log,
            identity=self._identity,
            versions=self._versions,
            entropy=self._entropy,
            vote_for=self._vote_for,
            leaves=self._leaves,
        )
        return knocker

    def _follow(self, mailbox: int, outcome: KnockOutcome) -> list[Output]:
        match outcome:
            case ring_pb2.Admission():
                self._was_challenged |= self._knockers[mailbox].knows_answerer
                return [AdmissionAnswer(mailbox, outcome)]
            case AlsoWaits(name):
                self._heard[mailbox] = name
                return []
            case TurnedAway(error, _):
                self.refusal = str(error)
        return [outcome]

    def _answer(self, answer: AdmissionAnswer | ProvedMember | None, now: float) -> list[Output]:
        match answer:
            case None:
                return []
            case AdmissionAnswer():
                return [answer]
        member = self._log.member(answer.member.name)
        if member is None or member.fingerprint != answer.member.fingerprint:
            return self._meet_lost(answer, now)
        self._learn(answer)
        if answer.body.leaves:
            return self._let_go(answer, now)
        self._proved[member.name] = answer
        return self._lead(now) or [self.doorstep.wait(answer)]

    def _meet_lost(self, proved: ProvedMember, now: float) -> list[Output]:
        """It is no member before the host takes it back; that this one leads is what it waits for."""
        if self._log.may_return(proved.member) and not proved.body.leaves:
            self._lost_here.add(proved.mailbox)
        return self._lead(now)

    def _let_go(self, proved: ProvedMember, now: float) -> list[Output]:
        """It is not waited for any more; the host alone can say that it heard so."""
        if self._log.host != self._name:
            return [self.doorstep.wait(proved)]
        self._left[proved.member.name] = None
        return [self.doorstep.refuse(proved, Denied(f"{proved.member.name} has left this session")), *self._lead(now)]

    def _learn(self, proved: ProvedMember) -> None:
        """What the other one's log has beyond this one's."""
        try:
            for signed in proved.body.entries:
                self._log.append(signed)
        except KafilaError:
            return  # another history: whoever is the host decides

    def _lead(self, now: float) -> list[Output]:
        back = tuple(self._proved.values())
        if self._leaves or self._log.member(self._name) is None or (self._attending and not self._has_listened):
            return []
        if self._log.host == self._name:
            left = tuple(name for name in self._left if self._log.member(name) is not None)
            others = len(self._log.members) - 1
            enough = 2 * (len(back) + len(left)) >= others or (others == 1 and self._lost_here)
            return [Lead(self._log, None, back, left)] if enough else []
        proof = self._proof(now)
        return [Lead(self._log, proof, back)] if proof else []

    def _vote_for(self, name: str) -> bytes:
        """For the first one here of those who may succeed a host that stays away."""
        successor = self._log.member(name)
        is_missed = self._knocked_at >= self._began + self._pace.host_missed_s and self._log.host not in self._here
        if successor is None or not is_missed or name != self._heir(name):
            return b""
        return vote(self._identity, self._log.place, successor=successor, standing=0)

    def _heir(self, besides: str) -> str:
        here = {*self._here, self._name, besides}
        return next((member.name for member in self._log.now.heirs if member.name in here), "")

    def _votes_for(self, me: Member) -> Iterator[tuple[str, bytes]]:
        """What is no vote of this member's, here and now, spoils none of the others."""
        for name, proved in self._proved.items():
            signature = proved.body.vote
            with contextlib.suppress(Denied):
                check_vote(self._log.place, voter=proved.member, successor=me, standing=0, signature=signature)
                yield name, signature

    def _proof(self, now: float) -> ring_pb2.TakenOver | None:
        """That this member is the successor, if it is."""
        me, log = self._log.now.members[self._name], self._log
        is_missed = now >= self._began + self._pace.host_missed_s and log.host not in self._here
        is_one_of_two = len(log.now.heirs) == 1  # each may be cut off from the other: only the host goes on
        if not is_missed or is_one_of_two or self._heir(self._name) != self._name:
            return None
        votes = dict(self._votes_for(me))
        votes[me.name] = vote(self._identity, log.place, successor=me, standing=0)
        if not is_majority(len(votes), log.now):
            return None
        ballots = [ring_pb2.Ballot(voter=name, signature=signature) for name, signature in sorted(votes.items())]
        proof = ring_pb2.TakenOver(successor=me.name, reason="lost", ballots=ballots)
        try:
            check_succession(proof, log.place, log.now, me)
        except Denied:
            return None
        return proof
