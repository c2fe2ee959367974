"""The members as one of them sees them: the log, who sent what, what was delivered. No I/O, no clock.

`write` makes sealed messages and `receive` takes them, whichever way they came, in any order, any number of times:
each is told once. Who was admitted later than a message was written is not told it.
"""

import hmac
import logging
from collections import deque
from collections.abc import Iterable

from google.protobuf.message import DecodeError
from kafila_proto import ring_pb2

from sidecar.errors import Denied, InvalidInput, Refused
from sidecar.session import log as membership
from sidecar.session import names
from sidecar.session.identity import Identity
from sidecar.session.log import Change, Forked, Gap, Joined, Log, Member
from sidecar.session.news import MemberDeparted, MemberJoined, MemberRemoved, MemberReturned, MessageFrom, News
from sidecar.session.pake import Entropy
from sidecar.session.seal import Sealer, Seen, open_envelope, sign_envelope, verify_envelope

logger = logging.getLogger(__name__)

KEPT_MESSAGES = 64  # of our own, for members that come back
KEPT_EARLY = 64  # messages and entries that came before the log entry which they need


class Circle:
    """One member's view of one session."""

    def __init__(self, *, identity: Identity, self_name: str, log: Log, key: bytes, entropy: Entropy) -> None:
        self.identity = identity
        self.self_name = self_name
        self.log = log
        self._key = key
        self._entropy = entropy
        self._sealer = Sealer(key, b"kafila control" + log.session, entropy)
        self._sequence = 0
        self._seen: dict[bytes, Seen] = {}  # by certificate fingerprint
        self._sent: deque[tuple[int, bytes]] = deque(maxlen=KEPT_MESSAGES)  # (log length, sealed)
        self._early: deque[ring_pb2.Envelope] = deque(maxlen=KEPT_EARLY)
        self._early_entries: dict[int, ring_pb2.SignedEntry] = {}
        self._absent: set[str] = set()  # members whose stream at the rendezvous ended

    @property
    def members(self) -> tuple[Member, ...]:
        return self.log.members

    @property
    def others(self) -> tuple[Member, ...]:
        return tuple(member for member in self.log.members if member.name != self.self_name)

    @property
    def link_key(self) -> bytes:
        """The secret below this session's links, 32 bytes; every pair derives its own from it."""
        return hmac.digest(self._key, b"kafila links" + self.log.session, "sha256")

    @property
    def is_admitter(self) -> bool:
        return self.log.host == self.self_name

    def write(self, control: ring_pb2.Control) -> bytes:
        """A sealed message from this member to all others. Raises InvalidInput when it is too large."""
        sealed = self._seal(control)
        self._sent.append((len(self.log), sealed))
        return sealed

    def write_last_entry(self) -> bytes:
        """A sealed message with the log's newest entry."""
        return self.write(self._entries_since(len(self.log) - 2))

    def repeat_for(self, member: Member) -> list[bytes]:
        """What a member that was away may have missed: the log (from the admitter) and our latest messages to it."""
        log = [self._seal(self._entries_since(member.index))] if self.is_admitter else []
        return log + [sealed for log_length, sealed in self._sent if log_length > member.index]

    def receive(self, sealed: bytes) -> list[News] | None:
        """What a sealed message tells; None when it was seen before, so that it needs no passing on.

        Raises Denied for what no member wrote, InvalidInput for nonsense, Forked when the log is forked.
        """
        try:
            envelope = open_envelope(self._sealer, ring_pb2.Sealed.FromString(sealed))
        except DecodeError as error:
            raise InvalidInput("a sealed message can't be read") from error
        return self._take(envelope)

    def admit(self, *, wish: str, certificate: bytes, mailbox: int) -> tuple[ring_pb2.AdmittedBody, MemberJoined]:
        """Admits a newcomer under a name close to its wish. Raises Refused, or InvalidInput for a bad certificate."""
        self._require_admitter("admit")
        name = names.fit(wish, (member.name for member in self.members))
        membership.admit(self.log, self.identity, name=name, certificate=certificate, mailbox=mailbox)
        joined = MemberJoined(self.log.members[-1])
        return ring_pb2.AdmittedBody(name=name, key=self._key, log=self.log.entries), joined

    def remove(self, name: str, reason: str) -> MemberRemoved:
        """Removes a member. Raises Refused unless this member is the admitter, InvalidInput for no member."""
        self._require_admitter("remove")
        member = self.log.member(name)
        if member is None:
            raise InvalidInput(f"{name[:40]!r} is not a member of this session")
        membership.remove(self.log, self.identity, name=name, reason=reason)
        self._forget(member)
        return MemberRemoved(name, reason)

    def attending(self, mailboxes: Iterable[int]) -> list[News]:
        """The rendezvous says who attends: tells who is absent now and who is back."""
        present = set(mailboxes)
        news: list[News] = []
        for member in self.others:
            here, was_here = member.mailbox in present, member.name not in self._absent
            if was_here and not here:
                self._absent.add(member.name)
                news.append(MemberDeparted(member.name))
            elif here and not was_here:
                self._absent.discard(member.name)
                news.append(MemberReturned(member.name))
        return news

    def _seal(self, control: ring_pb2.Control) -> bytes:
        self._sequence += 1
        envelope = sign_envelope(
            self.identity,
            session=self.log.session,
            sender=self.self_name,
            sequence=self._sequence,
            log_length=len(self.log),
            control=control,
        )
        return self._sealer.seal(envelope.SerializeToString()).SerializeToString()

    def _entries_since(self, index: int) -> ring_pb2.Control:
        return ring_pb2.Control(entries=ring_pb2.LogEntries(entries=self.log.entries[index + 1 :]))

    def _require_admitter(self, what: str) -> None:
        if not self.is_admitter:
            raise Refused(f"only the host, {self.log.host}, can {what} members")

    def _take(self, envelope: ring_pb2.Envelope) -> list[News] | None:
        if envelope.sender == self.self_name:
            return None  # an echo
        sender = self.log.member(envelope.sender)
        if sender is None:
            self._keep_early(envelope)
            return None
        seen = self._seen.setdefault(sender.fingerprint, Seen())
        if seen.has(envelope.sequence):
            return None
        control = verify_envelope(envelope, session=self.log.session, sender=sender)
        seen.add(envelope.sequence)
        own = self.log.member(self.self_name)
        if own is None or envelope.log_length <= own.index:
            return []
        if control.WhichOneof("body") == "entries":
            return self._take_entries(control.entries.entries)
        return [MessageFrom(sender.name, control)]

    def _keep_early(self, envelope: ring_pb2.Envelope) -> None:
        """Keeps a message whose sender's admission may be on its way."""
        if envelope.log_length <= len(self.log):
            raise Denied("a sealed message comes from somebody who is no member")
        self._early.append(envelope)

    def _take_entries(self, entries: Iterable[ring_pb2.SignedEntry]) -> list[News]:
        """Takes entries up to the first that is refused; raises Forked when they fork the log."""
        news: list[News] = []
        for signed in entries:
            try:
                news += self._take_entry(signed)
            except Forked:
                raise
            except (Denied, InvalidInput, Refused) as error:
                logger.warning("entry_refused code=%s", error.code)
                break
        return news

    def _take_entry(self, signed: ring_pb2.SignedEntry) -> list[News]:
        try:
            change = self.log.append(signed)
        except Gap as gap:
            self._early_entries[gap.index] = signed
            if len(self._early_entries) > KEPT_EARLY:
                del self._early_entries[max(self._early_entries)]
            return []
        if change is None:
            return []
        following = self._early_entries.pop(len(self.log), None)
        news = [self._told(change), *self._take_kept()]
        return news if following is None else news + self._take_entry(following)

    def _take_kept(self) -> list[News]:
        """What the messages tell that waited for the log to grow."""
        kept, self._early = self._early, deque(maxlen=KEPT_EARLY)
        news: list[News] = []
        for envelope in kept:
            try:
                news += self._take(envelope) or []
            except (Denied, InvalidInput):
                continue  # never was a member's
        return news

    def _told(self, change: Change) -> News:
        if isinstance(change, Joined):
            return MemberJoined(change.member)
        self._forget(change.member)
        return MemberRemoved(change.member.name, change.reason)

    def _forget(self, member: Member) -> None:
        self._seen.pop(member.fingerprint, None)
        self._absent.discard(member.name)
