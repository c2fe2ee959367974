"""What a member does about the membership: admit, remove, lock, vote, take over, catch up. No I/O, no clock.

Each call changes the replica and returns what to send to whom, and what happened here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput, Refused
from kafila_sidecar.session.channel.events import Doubted, Event, HostConvicted, MessageFrom, WentAstray
from kafila_sidecar.session.channel.intake import was_answered
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.membership import entries, names
from kafila_sidecar.session.membership.log import LARGEST_LOG_BYTES, LONGEST_LOG
from kafila_sidecar.session.membership.members import Member, Replanning
from kafila_sidecar.session.membership.rivals import LeftBehind
from kafila_sidecar.session.membership.succession import vote

REMOVAL_BYTES = (
    256  # of the log, with its signature; a succession with many votes takes more, and there is one at a time
)


@dataclass(frozen=True, slots=True)
class Letter:
    """A sealed message for these members."""

    readers: tuple[Member, ...]
    sealed: bytes


@dataclass(frozen=True, slots=True)
class Acts:
    """To be carried out in this order: letters, then events."""

    letters: list[Letter] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __add__(self, other: "Acts") -> "Acts":
        return Acts(self.letters + other.letters, self.events + other.events) if self and other else self or other

    def __bool__(self) -> bool:
        """Whether there is anything to be done."""
        return bool(self.letters or self.events)


NOTHING = Acts()


class Upkeep:
    """One member's."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._asked_at = 0  # how long the log was when we last said that we are behind
        self._voted_at: int | None = None  # how long the log was when we last voted
        self._listens = False
        self._shown: set[Member] = set()  # whose guilt was told to all; who came back since is another one

    def write(self, control: ring_pb2.Control) -> Acts:
        """To all others. Raises InvalidInput when it is too large."""
        return Acts([Letter(self._replica.others, self._replica.write(control))])

    # ---- What only the host does; each raises Refused on any other member

    def admit(self, enrol: ring_pb2.EnrolBody, mailbox: int) -> tuple[ring_pb2.AdmittedBody, Acts]:
        """Admits a newcomer under a name like its wish. Raises InvalidInput for bad keys, Refused for a full log."""
        replica, others = self._replica, self._replica.others
        self._require_host("admit members")
        self._require_room(len(others) + 1)
        name = names.fit(enrol.name, (member.name for member in replica.members))
        keys = {"certificate": enrol.certificate, "agreement": enrol.agreement}
        entries.admit(replica.log, replica.identity, name=name, mailbox=mailbox, **keys)
        body = ring_pb2.AdmittedBody(name=name, key=replica.keys.key, log=replica.log.bare)
        return body, self._tell_entries(others) + self._stand()

    def take_back(self, member: Member, mailbox: int) -> Acts:
        """A member that was lost, or was started again, is there. Raises Refused while another one has its name, for
        who left or was put out, and for a full log."""
        replica, others = self._replica, tuple(one for one in self._replica.others if one.name != member.name)
        self._require_host("take members back")
        self._require_room(len(others) + 1)
        try:
            entries.take_back(replica.log, replica.identity, admitted=member.first_index, mailbox=mailbox)
        except InvalidInput as error:
            raise Refused(f"{member.name} can't come back: {error}") from error
        return self._tell_entries(others) + self._stand()

    def remove(self, name: str, reason: str) -> Acts:
        """Removes a member, which is told too; the others get a new key. Raises InvalidInput for no member."""
        replica, others = self._replica, self._replica.others
        self._require_host("remove members")
        if replica.log.member(name) is None:
            raise InvalidInput(f"{name[:40]!r} is not a member of this session")
        key, new_key = replica.keys.draw(other for other in others if other.name != name)
        entries.remove(replica.log, replica.identity, name=name, reason=reason, new_key=new_key)
        replica.keys.take(key)
        return self._tell_entries(others)

    def lock(self, locked: bool) -> Acts:
        """Takes nobody from now on, or again."""
        self._require_host("lock this session")
        self._require_room(len(self._replica.others))
        entries.lock(self._replica.log, self._replica.identity, locked=locked)
        return self._tell_entries(self._replica.others)

    def rule(self, replanning: Replanning) -> Acts:
        """Says what is done with a better plan from now on."""
        self._require_host("say when this session is planned again")
        self._require_room(len(self._replica.others))
        entries.rule(self._replica.log, self._replica.identity, replanning=replanning)
        return self._tell_entries(self._replica.others)

    # ---- What any member does

    def vote(self, successor: str) -> Acts:
        """The host, and who joined before this successor, are lost to this member."""
        replica = self._replica
        heir = replica.log.member(successor)
        if heir is None or replica.is_host or heir.name == replica.log.host or not replica.is_member:
            return NOTHING
        letter = self._vote(heir)
        # A vote is for one place in the log, so that the others have to be there too.
        return Acts([Letter(replica.others, replica.write_entries()), letter]) + self.settle([])

    def give_way(self, fault: LeftBehind) -> Acts:
        """Tells those who are with this member why it stops: who came back to a host that was voted out, or heard its
        answer to those votes, may hear of it from nobody else."""
        return self.write(ring_pb2.Control(entries=ring_pb2.LogEntries(entries=[fault.proof])))

    def call_the_roll(self) -> Acts:
        """Asks all others who is with this host."""
        return Acts([Letter(self._replica.others, self._replica.write_roll_call())])

    def listen(self, listens: bool) -> None:
        """While old mail comes, votes may come before what the host answered: nobody takes over by them meanwhile."""
        self._listens = listens

    def settle(self, heard: Iterable[Event]) -> Acts:
        """What the latest messages call for; nothing, for who is no member any more."""
        acts = NOTHING
        if not self._replica.is_member:
            return acts
        for one in heard:
            match one:
                case Doubted():
                    acts += self.write(self._replica.standing)
                case MessageFrom(sender, control) if control.HasField("goodbye") and self._decides:
                    acts += self.remove(sender, "left")
                case MessageFrom(self._replica.log.host, control) if control.HasField("roll_call"):
                    acts += self.write(ring_pb2.Control(present=control.roll_call))
                case HostConvicted(name, _, proof):
                    acts += self._show(name, proof)
                case WentAstray(name, proof):
                    acts += self._let_go(name, proof)
        return acts + self._take_over() + self._vote_again() + self._go_past_vote() + self._catch_up()

    # ---- Private

    def _show(self, name: str, proof: tuple[ring_pb2.SignedEntry, ...]) -> Acts:
        """Tells everybody what convicts a member, once."""
        member = self._replica.log.member(name)
        if member is None or member in self._shown:
            return NOTHING
        self._shown.add(member)
        return self.write(ring_pb2.Control(entries=ring_pb2.LogEntries(entries=proof)))

    def _let_go(self, name: str, proof: tuple[ring_pb2.SignedEntry, ...]) -> Acts:
        """A member follows another history: the host removes it, others tell the host. One that took over by votes
        which the host had answered may not have heard that in time, and may come back."""
        if not self._replica.is_host:
            return self._show(name, proof)
        entry = ring_pb2.LogEntry.FromString(proof[0].entry)
        reason = "lost" if was_answered(entry, self._replica.log, self._replica.ballots) else "removed"
        is_in = self._decides and self._replica.log.member(name)
        return self.remove(name, reason) if is_in else NOTHING

    @property
    def _decides(self) -> bool:
        return self._replica.is_host and not self._replica.has_resigned

    def _require_host(self, what: str) -> None:
        if self._replica.has_resigned:
            raise Refused(f"{self._replica.self_name}, the host, is leaving this session")
        if not self._replica.is_host:
            raise Refused(f"only the host, {self._replica.log.host}, can {what}")

    def _require_room(self, removals: int) -> None:
        """The log has to have room for everybody's going, or the first one to go would end the session for all."""
        log, more = self._replica.log, 1 + removals
        if len(log) + more > LONGEST_LOG or log.size_bytes + more * REMOVAL_BYTES > LARGEST_LOG_BYTES:
            raise Refused("so many have come and gone that this session's log is full: create a new session")

    def _stand(self) -> Acts:
        """To who has just come: votes under another number than the others' would count for nothing."""
        return self.write(self._replica.standing) if self._replica.ballots.standing else NOTHING

    def _vote(self, heir: Member) -> Letter:
        replica, place, standing = self._replica, self._replica.log.place, self._replica.ballots.standing
        message = ring_pb2.Vote(
            successor=heir.name,
            log_length=place.index,
            standing=standing,
            signature=vote(replica.identity, place, successor=heir, standing=standing),
        )
        replica.ballots.own, self._voted_at = heir.name, place.index
        replica.ballots.cast(replica.me, message, place, replica.log.now)
        return Letter(replica.others, replica.write(ring_pb2.Control(vote=message)))

    def _vote_again(self) -> Acts:
        """The same vote for where the log ends now, if it grew meanwhile and the host is still missed."""
        replica = self._replica
        heir = replica.log.member(replica.ballots.own)
        if heir is None or replica.is_host or heir.name == replica.log.host:
            return NOTHING
        return NOTHING if replica.me.name in replica.ballots.voters else Acts([self._vote(heir)])

    def _go_past_vote(self) -> Acts:
        """The host is heard again and the log grew: says so, since it takes the force from a vote that others kept."""
        if self._voted_at is None or self._voted_at >= len(self._replica.log):
            return NOTHING
        self._voted_at = None
        return self.write(ring_pb2.Control())

    def _take_over(self) -> Acts:
        """Becomes the host when the others' votes or the host's resignation allow it."""
        replica = self._replica
        if self._listens or replica.is_host or replica.log.member(replica.self_name) is None:
            return NOTHING
        proof = replica.ballots.won(replica.me, replica.log.place, replica.log.now)
        if proof is None or self._is_alone(proof) or not self._agrees(proof):
            return NOTHING
        others = replica.others
        key, new_key = replica.keys.draw(member for member in others if member.name != replica.log.host)
        entries.take_over(replica.log, replica.identity, proof=proof, new_key=new_key)
        replica.keys.take(key)
        return self._tell_entries(others)

    def _agrees(self, proof: ring_pb2.TakenOver) -> bool:
        """Whether this member misses the host itself: what others voted while it slept may have been answered since."""
        return proof.reason == "left" or self._replica.self_name in self._replica.ballots.voters

    def _is_alone(self, proof: ring_pb2.TakenOver) -> bool:
        """In a session of two each may be cut off from the other: only the host goes on, unless it was convicted."""
        replica = self._replica
        return proof.reason == "lost" and len(replica.log.now.heirs) == 1 and not replica.ballots.has_convicted

    def _catch_up(self) -> Acts:
        """Tells who is behind, and asks when this member is."""
        letters = [Letter((member,), sealed) for member, sealed in self._replica.take_letters()]
        acts = Acts(letters) if letters else NOTHING
        if self._replica.is_behind and self._asked_at != len(self._replica.log):
            self._asked_at = len(self._replica.log)
            acts += self.write(ring_pb2.Control())  # whoever reads it sees how long our log is
        return acts

    def _tell_entries(self, readers: tuple[Member, ...]) -> Acts:
        """Tells the others, as they were before, of the entry that was just made, and follows it here."""
        events = self._replica.follow(self._replica.log.last_change)
        return Acts([Letter(readers, self._replica.write_entries())], events)
