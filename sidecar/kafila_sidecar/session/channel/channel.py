"""A session's channel: control messages between members, and who they are. The asyncio driver of `replica` and, on the
host, of `reception`.

Messages travel through the rendezvous and over every attached way; each member tells each of them once. Members that
return get the latest ones again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence

from google.protobuf.message import DecodeError

from kafila_proto import rendezvous_pb2, ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, KafilaError, Refused
from kafila_sidecar.session.admission.host import AdmissionAnswer
from kafila_sidecar.session.channel.events import Event, HostChanged, MemberJoined, RendezvousBack, RoomGone
from kafila_sidecar.session.channel.gossip import Forward, Way
from kafila_sidecar.session.channel.queue import EventQueue
from kafila_sidecar.session.channel.reception import OpenAdmission, Reception
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.channel.upkeep import Acts, Upkeep
from kafila_sidecar.session.membership.identity import Identity
from kafila_sidecar.session.membership.log import Forked
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.seal import is_for_all
from kafila_sidecar.session.rendezvous.attendance import LONGEST_PAUSE_S, sightings
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.session.rendezvous.mailbox import Mailbox
from kafila_sidecar.session.rendezvous.outbox import Outbox

logger = logging.getLogger(__name__)

GOODBYE_DEADLINE_S = 2.0
LONGEST_ABSENCE_S = LONGEST_PAUSE_S + 3.0  # a member's next try to attend, and the call itself


class Channel:
    """Made by `client.found` and `client.Approach.enrol`; lives while `run` runs."""

    def __init__(self, *, mailbox: Mailbox, replica: Replica, open_admission: OpenAdmission) -> None:
        self._mailbox = mailbox
        self._replica = replica
        self._upkeep = Upkeep(replica)
        self._open_admission = open_admission
        self._outbox = Outbox(mailbox)
        self._reception = self._open_reception() if replica.is_host else None
        self._ways: dict[Forward, Way] = {}
        self._way_tasks: dict[Forward, asyncio.Task[None]] = {}
        self._feed = EventQueue()
        self._loop = asyncio.get_running_loop()
        self._attended = True  # the rendezvous answers
        self._others_back_at = 0.0
        self._has_room = True  # and knows the room
        self._group: asyncio.TaskGroup | None = None
        self._closing = asyncio.Event()
        self._fault: KafilaError | None = None

    @property
    def session(self) -> bytes:
        return self._replica.log.session

    @property
    def self_name(self) -> str:
        return self._replica.self_name

    @property
    def host(self) -> str:
        """Who admits, plans and decides: the founder, or after it the latest successor."""
        return self._replica.log.host

    @property
    def founder(self) -> str:
        return self._replica.log.founder

    @property
    def takeovers(self) -> int:
        """How many successors there have been."""
        return self._replica.log.now.takeovers

    @property
    def identity(self) -> Identity:
        return self._replica.identity

    @property
    def terms(self) -> ring_pb2.SessionTerms:
        return self._replica.log.terms

    @property
    def members(self) -> tuple[Member, ...]:
        """From the verified log, in the order of joining."""
        return self._replica.members

    @property
    def rendezvous(self) -> Mailbox:
        """This member's mailbox there, through which it reaches the relay too."""
        return self._mailbox

    def link_key(self, member: Member) -> bytes:
        """What this member and that one share, for `Endpoint.connect`; 32 bytes that nobody else knows."""
        return self._replica.keys.pair(member).link

    @property
    def is_host(self) -> bool:
        return self._replica.is_host

    @property
    def code(self) -> Code | None:
        """By which newcomers join now; the host's only, and only while the room exists."""
        return self._reception.code if self._reception and self._has_room else None

    def is_at(self, code: Code) -> bool:
        """Whether a code's number and address are those of this session's room."""
        return self._has_room and (code.room, code.address) == (self._mailbox.place.room, self._mailbox.address)

    @property
    def joining(self) -> str:
        """ "open", "locked", "unreachable" while the rendezvous does not answer or knows the room no more, or on the
        host "paused": the code was guessed wrongly too often."""
        if self._replica.log.now.locked:
            return "locked"
        if not (self._attended and self._has_room):
            return "unreachable"
        return "paused" if self._reception and self._reception.is_paused else "open"

    async def run(self) -> None:
        """Serves until `leave`, `aclose` or cancellation. Raises Forked when there are two histories of it."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                tasks = [group.create_task(self._outbox.run()), group.create_task(self._attend())]
                for forward, way in self._ways.items():
                    self._way_tasks[forward] = group.create_task(way.run())
                await self._closing.wait()
                for task in (*tasks, *self._way_tasks.values()):
                    task.cancel()
        finally:
            self._group = None
            self._feed.end()
            await self._mailbox.aclose()
        if self._fault:
            raise self._fault

    async def events(self) -> AsyncIterator[Event]:
        """What happens, for one listener, until the channel ends. Unread events are bounded: keep reading."""
        while (event := await self._feed.next()) is not None:
            yield event

    async def send(self, control: ring_pb2.Control) -> None:
        """To all other members, by every way there is; kept for a while when none is open.

        Raises InvalidInput for a message over `seal.LARGEST_CONTROL_BYTES`.
        """
        self._spread(self._replica.write(control), self._replica.others)

    async def receive(self, sealed: bytes) -> None:
        """A sealed message that came over a link: told and passed on at first sight, else dropped."""
        try:
            events = self._replica.receive(sealed)
            if events is not None and is_for_all(sealed):
                self._pass_on(sealed)
            self._tell(events or [])
            self._perform(self._upkeep.settle(events or []))
        except (Forked, Refused) as fault:
            self._fail(fault)
        except (Denied, InvalidInput) as error:
            logger.info("message_dropped code=%s", error.code)
        await self._feed.has_room()

    def attach(self, forward: Forward, peer: str = "") -> None:
        """From now on messages go over this way too; `forward` may raise KafilaError, and is awaited in turn.

        A peer to which the way leads gets the latest ones again while the rendezvous does not answer.
        """
        way = self._ways[forward] = Way(forward, peer)
        member = self._replica.log.member(peer)
        if member is not None and not self._attended:
            for sealed in self._replica.repeat_for(member):
                way.put(sealed)
        if self._group:
            self._way_tasks[forward] = self._group.create_task(way.run())

    def detach(self, forward: Forward) -> None:
        """The way is closed."""
        self._ways.pop(forward, None)
        task = self._way_tasks.pop(forward, None)
        if task:
            task.cancel()

    async def leave(self) -> None:
        """Says goodbye, gives the mailbox up and closes, in a few seconds at most."""
        if self._group is not None and not self._closing.is_set():
            with contextlib.suppress(KafilaError, TimeoutError):
                async with asyncio.timeout(GOODBYE_DEADLINE_S):
                    await self._say_goodbye()
        await self.aclose()

    async def aclose(self) -> None:
        """Ends `run`. Others see a departure, not a goodbye."""
        self._closing.set()
        if self._group is None:
            self._feed.end()
            await self._mailbox.aclose()

    # ---- What the host decides; each raises Refused on any other member

    def remove(self, name: str, reason: str) -> None:
        """Removes a member, and gives the others a new key; the reason is "left", "lost" or "removed"."""
        self._perform(self._upkeep.remove(name, reason))

    def kick(self, name: str) -> None:
        """Removes a member for good: there is a new code too. Raises InvalidInput for no member, or for the host."""
        self.remove(name, "removed")
        self.new_code()

    def new_code(self) -> Code:
        """A new code in place of the old one; joining goes on if it was paused."""
        if self._reception is None:
            raise Refused(f"only the host, {self.host}, can give this session a new code")
        self._reception.new_code()
        return self._reception.code

    def lock(self, locked: bool) -> None:
        """Takes nobody from now on, or again."""
        if locked != self._replica.log.now.locked or not self.is_host:
            self._perform(self._upkeep.lock(locked))

    def vote(self, successor: str) -> None:
        """Any member: the host, and who joined before this successor, are lost to this one."""
        self._perform(self._upkeep.vote(successor))

    # ---- Out

    def _perform(self, acts: Acts) -> None:
        for letter in acts.letters:
            self._spread(letter.sealed, letter.readers)
        self._tell(acts.events)

    async def _say_goodbye(self) -> None:
        self._spread(self._replica.write_goodbye(), self._replica.others)
        await self._outbox.emptied()
        for way in list(self._ways.values()):
            await way.emptied()
        self._feed.end()  # the end of our own stream is no event
        await self._mailbox.leave()

    def _spread(self, sealed: bytes, members: Sequence[Member]) -> None:
        """By mail to these members, and by every way; what is for one member only by the ways that lead there."""
        self._mail(sealed, members)
        if is_for_all(sealed):
            self._pass_on(sealed)
            return
        readers = {member.name for member in members}
        for way in self._ways.values():
            if way.peer in readers:
                way.put(sealed)

    def _mail(self, sealed: bytes, members: Iterable[Member]) -> None:
        parcel = ring_pb2.Parcel(envelope=ring_pb2.Sealed.FromString(sealed))
        self._outbox.put((member.mailbox for member in members), parcel.SerializeToString())

    def _pass_on(self, sealed: bytes) -> None:
        for way in self._ways.values():
            way.put(sealed)

    def _tell(self, events: Iterable[Event]) -> None:
        for one in events:
            self._feed.tell([one])
            if isinstance(one, MemberJoined):
                self._look_round()  # its stream may have ended before its admission came to us
            if isinstance(one, HostChanged) and self.is_host:
                self._reception = self._open_reception()

    def _look_round(self) -> None:
        """Tells who is back and, unless others are still on their way back too, whose stream ended."""
        if not self._attended or self._closing.is_set():
            return
        self._feed.tell(self._replica.returned(self._mailbox.attending))
        if self._loop.time() >= self._others_back_at:
            self._feed.tell(self._replica.departed(self._mailbox.attending))

    def _fail(self, fault: KafilaError) -> None:
        self._fault = fault
        self._closing.set()

    # ---- In

    async def _attend(self) -> None:
        self._look_round()
        async for sighting in sightings(self._mailbox):
            if isinstance(sighting, rendezvous_pb2.Event):
                await self._on_event(sighting)
                continue
            self._attended = isinstance(sighting, RendezvousBack)
            self._has_room = not isinstance(sighting, RoomGone)
            if self._attended:
                self._await_others()
            self._feed.tell([sighting])
            self._look_round()

    def _await_others(self) -> None:
        """They may have lost the rendezvous too, and come back each in its own time."""
        self._others_back_at = self._loop.time() + LONGEST_ABSENCE_S
        self._loop.call_at(self._others_back_at, self._look_round)

    async def _on_event(self, event: rendezvous_pb2.Event) -> None:
        match event.WhichOneof("event"):
            case "arrived":
                self._repeat_for(event.arrived)
                self._look_round()
            case "departed":
                if self._reception:
                    self._reception.departed(event.departed)
                self._look_round()
            case "mail":
                await self._on_mail(event.mail)

    def _repeat_for(self, mailbox: int) -> None:
        for member in self._replica.others:
            if member.mailbox == mailbox:
                for sealed in self._replica.repeat_for(member):
                    self._mail(sealed, [member])

    async def _on_mail(self, mail: rendezvous_pb2.Mail) -> None:
        try:
            parcel = ring_pb2.Parcel.FromString(mail.body)
        except DecodeError:
            logger.info("mail_dropped bytes=%d", len(mail.body))
            return
        if parcel.HasField("envelope"):
            await self.receive(parcel.envelope.SerializeToString())
        elif self._reception and parcel.HasField("admission"):
            self._on_newcomer(self._reception, mail.sender, parcel.admission)

    def _on_newcomer(self, reception: Reception, mailbox: int, admission: ring_pb2.Admission) -> None:
        others = self._replica.others
        events = reception.receive(mailbox, admission, self._loop.time())
        if events:
            self._perform(self._upkeep.admitted(others, events))

    def _open_reception(self) -> Reception:
        return Reception(
            replica=self._replica,
            room=self._mailbox.place.room,
            address=self._mailbox.address,
            open_admission=self._open_admission,
            answer=self._answer,
        )

    def _answer(self, answer: AdmissionAnswer) -> None:
        self._outbox.put([answer.mailbox], ring_pb2.Parcel(admission=answer.admission).SerializeToString())
