"""The members as one of them sees them: the log, who sent what, what was delivered. No I/O, no clock.

`write` makes sealed messages and `receive` takes them, whichever way they came, in any order, any number of times:
each is told once. Who was admitted later than a message was written is not told it.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput
from kafila_sidecar.session.channel.events import (
    Doubted,
    Event,
    HostChanged,
    HostConvicted,
    HostMissed,
    KnowsItIsOut,
    MemberJoined,
    MemberRemoved,
    MessageFrom,
    Spoke,
)
from kafila_sidecar.session.channel.intake import LogIntake
from kafila_sidecar.session.channel.waiting import Waiting
from kafila_sidecar.session.membership.identity import Identity
from kafila_sidecar.session.membership.keyring import Early, Keyring
from kafila_sidecar.session.membership.log import Former, Log
from kafila_sidecar.session.membership.members import (
    Change,
    Joined,
    Locking,
    Member,
    Rejoined,
    Removal,
    Ruling,
    TookOver,
)
from kafila_sidecar.session.membership.rivals import Forked, ForkedByHost, LeftBehind, Refusals
from kafila_sidecar.session.membership.seal import (
    Entropy,
    ReplayWindow,
    read_envelope,
    read_sealed,
    sign_envelope,
    verify_envelope,
)
from kafila_sidecar.session.membership.succession import Ballots, resign

KEPT_MESSAGES = 64  # of our own, for members that come back
NUMBERS_EACH_TIME = 1 << 32  # of messages, for a member that comes or comes back
REPEATED_ENTRIES = 4  # a new log entry travels with those before it, so that one lost message is no gap


class HostForked(ForkedByHost):
    """The message proves that the host signed two histories. `told`: all that it tells, that included."""

    def __init__(self, sentence: str, told: list[Event]) -> None:
        super().__init__(sentence)
        self.told = told


def heard_first(events: list[Event]) -> list[Event]:
    """Whose messages follow upon a removal was there before it has effect: it may leave another one to vote for, and a
    host that is heard just then is not to be voted out. Who came in by these events was not there before."""
    came = {event.member.name for event in events if isinstance(event, MemberJoined)}
    changed = next((at for at, event in enumerate(events) if isinstance(event, MemberRemoved)), len(events))
    speakers = [event.sender for event in events[changed:] if isinstance(event, MessageFrom)]
    return [*(Spoke(name) for name in dict.fromkeys(speakers) if name not in came), *events]


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of our own, and how long our log was."""

    log_length: int
    envelope: bytes
    is_vote: bool


class Replica:
    """One member's view of one session."""

    def __init__(self, *, identity: Identity, self_name: str, log: Log, key: bytes, entropy: Entropy) -> None:
        self.identity = identity
        self.self_name = self_name
        self.log = log
        self.keys = Keyring(identity=identity, session=log.session, number=log.now.key_number, key=key, entropy=entropy)
        self.me = log.now.members[self_name]  # as it was admitted; it may be removed
        self.ballots = Ballots()
        self.has_resigned = False
        self.present: set[str] = set()  # who has answered this host's latest roll call
        self.stood: dict[bytes, int] = {}  # by fingerprint: the host's standing when that member came back last
        self._roll_call = 0
        self._sequence = self.me.index * NUMBERS_EACH_TIME  # nobody takes what it writes for what it wrote before
        self._seen: dict[bytes, ReplayWindow] = {}  # by certificate fingerprint
        self._sent: deque[Sent] = deque(maxlen=KEPT_MESSAGES)
        self._early = Waiting()
        self._intake = LogIntake(log=log, keys=self.keys, ballots=self.ballots, me=self.me, follow=self.follow)
        self._behind: dict[str, int] = {}  # by member: how long our log was when we last told it the rest
        self._apart: dict[str, int] = {}  # by member on another history: how long our log was when we showed it ours
        self._out: Counter[bytes] = Counter()  # what came from who is none any more, by fingerprint
        self._letters: list[tuple[Member, bytes]] = []
        self._refusals = Refusals()

    @property
    def members(self) -> tuple[Member, ...]:
        return self.log.members

    @property
    def others(self) -> tuple[Member, ...]:
        return tuple(member for member in self.log.members if member.name != self.self_name)

    @property
    def is_host(self) -> bool:
        return self.log.host == self.self_name

    @property
    def is_member(self) -> bool:
        """False once the log has removed this one; it holds no newer key then, and decides nothing."""
        return self.log.member(self.self_name) is not None

    # ---- Out

    def write(self, control: ring_pb2.Control) -> bytes:
        """A sealed message from this member to all others. Raises InvalidInput when it is too large."""
        return self._write(control, self.keys.number)

    def write_entries(self) -> bytes:
        """A sealed message with the log's newest entries, which everybody can read who is or was a member till now."""
        replaced = isinstance(self.log.last_change, Removal) and self.is_member  # who was removed got no new key
        return self._write(self._entries_since(len(self.log) - 1 - REPEATED_ENTRIES), self.keys.number - replaced)

    def write_roll_call(self) -> bytes:
        """Asks who is with this host now."""
        self._roll_call += 1
        self.present.clear()
        return self.write(ring_pb2.Control(roll_call=ring_pb2.RollCall(number=self._roll_call)))

    def write_goodbye(self) -> bytes:
        """This member's last message; the host's is a resignation too, after which it signs no entry."""
        self.has_resigned = self.is_host
        resignation = resign(self.identity, self.log.place) if self.is_host else b""
        return self.write(ring_pb2.Control(goodbye=ring_pb2.Goodbye(resignation=resignation)))

    def repeat_for(self, member: Member) -> list[bytes]:
        """What a member that was away may have missed: the log (from the host) and our latest messages to it.

        Sealed for it alone, since it may have missed a key too.
        """
        log = [self._sign(self._entries_since(member.index))] if self.is_host else []
        envelopes = log + [sent.envelope for sent in self._sent if sent.log_length > member.index]
        return [self.keys.seal_for(member, envelope, writer=self.me.index) for envelope in envelopes]

    # ---- In

    def receive(self, sealed: bytes) -> list[Event] | None:
        """What a sealed message tells; None when it needs no passing on: it was seen before, or can't be read yet.

        Raises Denied for what no member wrote, InvalidInput for nonsense, HostForked when it convicts the host, and
        Forked when most members went on with another history.
        """
        had_convicted = self.ballots.has_convicted
        events = self._receive(sealed)
        if events is not None:
            events = heard_first(events)
        if events and self.ballots.has_convicted and not had_convicted:
            sentence = next(one.sentence for one in events if isinstance(one, HostConvicted))
            raise HostForked(sentence, events)
        return events

    def learn(self, entries: Iterable[ring_pb2.SignedEntry], by: Member) -> list[Event]:
        """What follows from what a member that comes back knows of the log beyond this one's; or, of a host that was
        succeeded, whom it let in since."""
        former = self.log.former(by.name)
        if former is not None and former.member.fingerprint == by.fingerprint:
            self.log.hear_former(former, entries)
        return self._intake.learn(entries)

    def take_letters(self) -> list[tuple[Member, bytes]]:
        """Sealed messages for one member each, whose log turned out to be shorter than the host's."""
        letters, self._letters = self._letters, []
        return letters

    @property
    def is_behind(self) -> bool:
        """Messages came that this member can't read before it hears more of the log."""
        return len(self._early) > 0

    def follow(self, change: Change) -> list[Event]:
        """What follows from a change that the log has just taken."""
        self.ballots.log_grew(new_host=isinstance(change, TookOver) or self._is_hosts_return(change))
        events = [*self._events_of(change)]
        for sealed in self._early.take():
            try:
                events += self._receive(sealed) or []
            except Forked:
                raise
            except (Denied, InvalidInput):
                continue  # never was a member's
        return events

    @property
    def standing(self) -> ring_pb2.Control:
        """What the host answers to a vote against it."""
        return ring_pb2.Control(standing=ring_pb2.Standing(number=self.ballots.standing))

    # ---- Private

    def _receive(self, sealed: bytes) -> list[Event] | None:
        message = read_sealed(sealed)
        if not message.key and message.pair < len(self.log) and message.pair not in {one.index for one in self.members}:
            return self._hear_former_host(message)
        try:
            host = None if self.is_host else self.log.now.host_member
            return self._take(read_envelope(self.keys.open(message, self.members, signs_own_return=host)))
        except Early:
            self._early.put(sealed)
            return None

    def _write(self, control: ring_pb2.Control, key_number: int) -> bytes:
        envelope = self._sign(control)
        self._sent.append(Sent(len(self.log), envelope, control.HasField("vote")))
        return self.keys.seal(envelope, number=key_number)

    def _sign(self, control: ring_pb2.Control) -> bytes:
        self._sequence += 1
        envelope = sign_envelope(
            self.identity,
            session=self.log.session,
            sender=self.self_name,
            sequence=self._sequence,
            log_length=len(self.log),
            log_head=self.log.head,
            control=control,
        )
        return envelope.SerializeToString()

    def _entries_since(self, index: int) -> ring_pb2.Control:
        return ring_pb2.Control(entries=ring_pb2.LogEntries(entries=self.log.entries[max(0, index + 1) :]))

    def _take(self, envelope: ring_pb2.Envelope) -> list[Event] | None:
        if envelope.sender == self.self_name:
            return None  # an echo
        sender = self.log.member(envelope.sender)
        if sender is None:
            if envelope.log_length <= len(self.log):
                return self._hear_out(envelope)
            raise Early("a message's sender may be admitted by an entry on its way")
        if envelope.log_length <= sender.index:
            raise Denied(f"a message was written before {sender.name} came, or came back")
        seen = self._seen.setdefault(sender.fingerprint, ReplayWindow())
        if seen.has(envelope.sequence):
            return None
        control = verify_envelope(envelope, session=self.log.session, sender=sender)
        came_back = envelope.sequence >= (sender.index + 1) * NUMBERS_EACH_TIME
        is_news = control.HasField("entries") and sender.name == self.log.host  # which say that it is back
        if came_back and not is_news and envelope.log_length > len(self.log):
            raise Early(f"{sender.name} came back, by an entry on its way")
        seen.add(envelope.sequence)
        self._hear_refusal(sender, envelope.log_length, control)
        if not self.log.follows(sender, envelope.log_length, envelope.log_head):
            self._show(sender, envelope.log_length)
        elif self.is_host and envelope.log_length < len(self.log):
            self._catch_up(sender, envelope.log_length)
        own = self.log.member(self.self_name)
        if own is None or envelope.log_length <= own.index:
            return []
        return self._heard(sender, control, envelope.sequence)

    def _catch_up(self, member: Member, log_length: int) -> None:
        """Tells a member the entries that it did not know, once for each length of our log."""
        if self._behind.get(member.name) != len(self.log):
            self._behind[member.name] = len(self.log)
            envelope = self._sign(self._entries_since(log_length - 1))
            self._letters.append((member, self.keys.seal_for(member, envelope, writer=self.me.index)))

    def _hear_out(self, envelope: ring_pb2.Envelope) -> list[Event]:
        """Somebody who is no member says something: told by the host once that one knows it, which it can't take back;
        raises Denied else."""
        former = self.log.former(envelope.sender)
        if former is not None and (self.is_host or self.log.was_host(former)):
            control = verify_envelope(envelope, session=self.log.session, sender=former.member)
            knew = self.log.is_past(former.member, former.removed_at)
            if not knew:
                self.log.follows(former.member, envelope.log_length, envelope.log_head)
            if self.is_host and not knew and self.log.is_past(former.member, former.removed_at):
                return [KnowsItIsOut(former.member.name)]
            self._tell_out(former, control)
        raise Denied("a sealed message comes from somebody who is no member")

    def _hear_former_host(self, message: ring_pb2.Sealed) -> list[Event]:
        """A letter to this member by somebody who is none any more. A host that does not know that it was succeeded
        may have a key of its own by now, so that nothing else of it can be read. Raises Denied."""
        former = self.log.former_host(message.pair)
        if former is None:
            raise Denied("a message was sealed by somebody who is no member any more")
        envelope = read_envelope(self.keys.open(message, (former.member,)))
        if envelope.sender != former.member.name:
            raise Denied("a letter is not by who sealed it")
        return self._hear_out(envelope)

    def _tell_out(self, former: Former, control: ring_pb2.Control) -> None:
        """The host tells who was removed and does not know it, since it slept or was cut off, how the log went on: on
        its first message, the second, fourth, eighth and so on, since an answer may be lost. A host that was succeeded
        hears it from anybody, since it may have put out meanwhile who is the host now; and whom it let in meanwhile is
        noted."""
        self.log.hear_former(former, control.entries.entries)
        self._out[former.member.fingerprint] += 1
        if self._out[former.member.fingerprint].bit_count() == 1:
            rest = self._sign(self._entries_since(former.removed_at - 1 - REPEATED_ENTRIES))
            self._letters.append((former.member, self.keys.seal_for(former.member, rest, writer=self.me.index)))
            self.keys.forget(former.member)

    def _show(self, member: Member, log_length: int) -> None:
        """Tells a member that follows another history how ours goes there, once for each length of our log."""
        if self._apart.get(member.name) != len(self.log):
            self._apart[member.name] = len(self.log)
            envelope = self._sign(self._entries_since(log_length - 1 - REPEATED_ENTRIES))
            self._letters.append((member, self.keys.seal_for(member, envelope, writer=self.me.index)))

    def _hear_refusal(self, sender: Member, log_length: int, control: ring_pb2.Control) -> None:
        """Raises LeftBehind once most of the others have shown this host that they went on without its succession."""
        own = self.log.accession if self.is_host and control.HasField("entries") else None
        if own is None:
            return
        self._refusals.hear(sender, log_length, control.entries.entries, own)
        past = [one for one in self.others if self.log.is_past(one, own.index)]
        if self._refusals.are_most(own, self.others, past):
            raise LeftBehind("the others stayed with the host that this machine had taken over from", own.signed)

    def _heard(self, sender: Member, control: ring_pb2.Control, number: int) -> list[Event]:
        """Takes what concerns the log here; everything else is told."""
        body = control.WhichOneof("body")
        from_host = sender.name == self.log.host
        if from_host and body != "goodbye":
            self._miss_host_no_more()
        match body:
            case "entries":
                if from_host and self.ballots.has_convicted:
                    return []  # it would move on the place that the others vote for
                return [Spoke(sender.name), *self._intake.take(control.entries.entries, sender.name)]
            case "vote":
                return self._take_vote(sender, control.vote)
            case "standing":
                if from_host:
                    self.ballots.stood(control.standing.number)
            case "present" if control.present.number == self._roll_call:
                self.present.add(sender.name)
            case "goodbye":
                if from_host:
                    self.ballots.resigned(control.goodbye.resignation)
        return [MessageFrom(sender.name, control, number)]

    def _miss_host_no_more(self) -> None:
        """Nobody who hears later of what was said hears of a vote for its successor."""
        self.ballots.host_spoke()
        if not self.ballots.own:
            kept = [sent for sent in self._sent if not sent.is_vote]
            self._sent.clear()
            self._sent.extend(kept)

    def _take_vote(self, sender: Member, message: ring_pb2.Vote) -> list[Event]:
        """Raises Denied for a vote that is none. One for a place that this host's log has gone past, on its way since,
        counts no more; but its voter has ended the epoch, so that the host answers it all the same."""
        is_late = self.is_host and self.log.is_of_this_host(message.log_length)
        index = message.log_length if is_late else len(self.log)
        self.ballots.cast(sender, message, self.log.place_at(index), self.log.before(index))
        if not self.is_host:
            return [HostMissed(sender.name)]
        self.ballots.stood(self.ballots.standing + 1)
        return [Doubted(sender.name)]

    def _events_of(self, change: Change) -> Iterable[Event]:
        match change:
            case Joined(member):
                yield MemberJoined(member)
            case Locking() | Ruling():
                return
            case Rejoined(member, was_member):
                yield from self._came_back(member, was_member=was_member)
            case _:
                self._forget(change.member)
                yield MemberRemoved(change.member.name, change.reason)
                if isinstance(change, TookOver):
                    yield HostChanged(change.successor.name)

    def _came_back(self, member: Member, *, was_member: bool) -> Iterable[Event]:
        """Who was started again is another one than it was: it knows nothing of what was said to it."""
        self._forget(member)
        self.stood[member.fingerprint] = self.ballots.standing
        if was_member:
            yield MemberRemoved(member.name, "lost")
        yield MemberJoined(member)
        if member.name == self.log.host:
            yield HostChanged(member.name)

    def _is_hosts_return(self, change: Change) -> bool:
        return isinstance(change, Rejoined) and change.member.name == self.log.host

    def _forget(self, member: Member) -> None:
        self._seen.pop(member.fingerprint, None)
        self._behind.pop(member.name, None)
        self._apart.pop(member.name, None)
        self.keys.forget(member)
