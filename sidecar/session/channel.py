"""A session's channel: control messages between members, and who they are. The asyncio driver of `circle` and `desk`.

Messages travel through the rendezvous and over every attached way; each member tells each of them once. Members that
return to the rendezvous get the latest ones again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable

from google.protobuf.message import DecodeError
from kafila_proto import rendezvous_pb2, ring_pb2

from sidecar.errors import Denied, InvalidInput, KafilaError
from sidecar.session.admission import Answer, Desk, Enrol
from sidecar.session.attendance import sightings
from sidecar.session.circle import Circle
from sidecar.session.code import Code
from sidecar.session.feed import Feed
from sidecar.session.gossip import Forward, Way
from sidecar.session.identity import Identity
from sidecar.session.log import Forked, Member
from sidecar.session.news import MemberJoined, MessageFrom, News, RendezvousBack
from sidecar.session.postbox import Postbox
from sidecar.session.poster import Poster

logger = logging.getLogger(__name__)

GOODBYE_DEADLINE_S = 2.0


class Channel:
    """Made by `client.found` and `client.Approach.enrol`; lives while `run` runs."""

    def __init__(self, *, postbox: Postbox, circle: Circle, code: Code | None = None, desk: Desk | None = None) -> None:
        self.code = code  # on the host only
        self._postbox = postbox
        self._circle = circle
        self._desk = desk
        self._poster = Poster(postbox)
        self._ways: dict[Forward, Way] = {}
        self._way_tasks: dict[Forward, asyncio.Task[None]] = {}
        self._feed = Feed()
        self._attended = True  # the rendezvous answers
        self._group: asyncio.TaskGroup | None = None
        self._closing = asyncio.Event()
        self._fault: KafilaError | None = None

    @property
    def session(self) -> bytes:
        return self._circle.log.session

    @property
    def self_name(self) -> str:
        return self._circle.self_name

    @property
    def host(self) -> str:
        return self._circle.log.host

    @property
    def identity(self) -> Identity:
        return self._circle.identity

    @property
    def terms(self) -> ring_pb2.SessionTerms:
        return self._circle.log.terms

    @property
    def members(self) -> tuple[Member, ...]:
        """From the verified log, in the order of joining."""
        return self._circle.members

    @property
    def rendezvous(self) -> Postbox:
        """This member's mailbox there, through which it reaches the relay too."""
        return self._postbox

    @property
    def link_key(self) -> bytes:
        """For `Endpoint.connect`."""
        return self._circle.link_key

    @property
    def is_admitter(self) -> bool:
        return self._circle.is_admitter

    async def run(self) -> None:
        """Serves until `leave`, `aclose` or cancellation. Raises Forked when the admitter signed two histories."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                tasks = [group.create_task(self._poster.run()), group.create_task(self._attend())]
                for forward, way in self._ways.items():
                    self._way_tasks[forward] = group.create_task(way.run())
                await self._closing.wait()
                for task in (*tasks, *self._way_tasks.values()):
                    task.cancel()
        finally:
            self._group = None
            self._feed.end()
            await self._postbox.aclose()
        if self._fault:
            raise self._fault

    async def events(self) -> AsyncIterator[News]:
        """What happens, for one listener, until the channel ends. Unread news is bounded: keep reading."""
        while (news := await self._feed.next()) is not None:
            yield news

    async def send(self, control: ring_pb2.Control) -> None:
        """To all other members, by every way there is; kept for a while when none is open.

        Raises InvalidInput for a message over `seal.LARGEST_CONTROL_BYTES`.
        """
        self._spread(self._circle.write(control), self._circle.others)

    async def receive(self, sealed: bytes) -> None:
        """A sealed message that came over a link: told and passed on at first sight, else dropped."""
        try:
            news = self._circle.receive(sealed)
        except Forked as fork:
            self._fail(fork)
        except (Denied, InvalidInput) as error:
            logger.info("message_dropped code=%s", error.code)
        else:
            if news is not None:
                self._pass_on(sealed)
                self._tell(news)
                await self._feed.has_room()

    def attach(self, forward: Forward) -> None:
        """From now on messages go over this way too; `forward` may raise KafilaError, and is awaited in turn."""
        way = self._ways[forward] = Way(forward)
        if self._group:
            self._way_tasks[forward] = self._group.create_task(way.run())

    def detach(self, forward: Forward) -> None:
        """The way is closed."""
        self._ways.pop(forward, None)
        task = self._way_tasks.pop(forward, None)
        if task:
            task.cancel()

    async def remove(self, name: str, reason: str) -> None:
        """Removes a member from the log; the reason is "left", "lost" or "removed". Raises Refused unless host."""
        self._remove(name, reason)

    def close_admission(self) -> None:
        """Newcomers that know the code are told that this session takes nobody any more."""
        if self._desk:
            self._desk.close()

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
            await self._postbox.aclose()

    # ---- Out

    async def _say_goodbye(self) -> None:
        await self.send(ring_pb2.Control(goodbye=ring_pb2.Goodbye()))
        await self._poster.emptied()
        for way in list(self._ways.values()):
            await way.emptied()
        self._feed.end()  # the end of our own stream is no news
        await self._postbox.leave()

    def _remove(self, name: str, reason: str) -> None:
        others = self._circle.others  # the removed one is told too
        removed = self._circle.remove(name, reason)
        self._spread(self._circle.write_last_entry(), others)
        self._feed.tell([removed])

    def _spread(self, sealed: bytes, members: Iterable[Member]) -> None:
        self._mail(sealed, members)
        self._pass_on(sealed)

    def _mail(self, sealed: bytes, members: Iterable[Member]) -> None:
        parcel = ring_pb2.Parcel(envelope=ring_pb2.Sealed.FromString(sealed))
        self._poster.put((member.mailbox for member in members), parcel.SerializeToString())

    def _pass_on(self, sealed: bytes) -> None:
        for way in self._ways.values():
            way.put(sealed)

    def _tell(self, news: Iterable[News]) -> None:
        for one in news:
            self._feed.tell([one])
            if isinstance(one, MemberJoined):
                self._look_round()  # its stream may have ended before its admission came to us
            if isinstance(one, MessageFrom) and one.control.HasField("goodbye") and self.is_admitter:
                self._remove(one.sender, "left")

    def _look_round(self) -> None:
        """Tells whose stream ended and who is back, as far as the rendezvous says it now."""
        if self._attended:
            self._feed.tell(self._circle.attending(self._postbox.attending))

    def _fail(self, fault: KafilaError) -> None:
        self._fault = fault
        self._closing.set()

    # ---- In

    async def _attend(self) -> None:
        self._look_round()
        async for sighting in sightings(self._postbox):
            if isinstance(sighting, rendezvous_pb2.Event):
                await self._on_event(sighting)
                continue
            self._attended = isinstance(sighting, RendezvousBack)
            self._feed.tell([sighting])
            self._look_round()

    async def _on_event(self, event: rendezvous_pb2.Event) -> None:
        match event.WhichOneof("event"):
            case "arrived":
                self._repeat_for(event.arrived)
                self._look_round()
            case "departed":
                if self._desk:
                    self._desk.departed(event.departed)
                self._look_round()
            case "mail":
                await self._on_mail(event.mail)

    def _repeat_for(self, mailbox: int) -> None:
        for member in self._circle.others:
            if member.mailbox == mailbox:
                for sealed in self._circle.repeat_for(member):
                    self._mail(sealed, [member])

    async def _on_mail(self, mail: rendezvous_pb2.Mail) -> None:
        try:
            parcel = ring_pb2.Parcel.FromString(mail.body)
        except DecodeError:
            logger.info("mail_dropped bytes=%d", len(mail.body))
            return
        if parcel.HasField("envelope"):
            await self.receive(parcel.envelope.SerializeToString())
        elif self._desk and parcel.HasField("admission"):
            self._on_newcomer(self._desk, mail.sender, parcel.admission)

    # ---- Admission, on the host

    def _on_newcomer(self, desk: Desk, mailbox: int, admission: ring_pb2.Admission) -> None:
        if mailbox in {member.mailbox for member in self.members}:
            return
        outcome = desk.receive(mailbox, admission, asyncio.get_running_loop().time())
        if isinstance(outcome, Answer):
            self._answer(outcome)
        else:
            self._admit(desk, outcome)

    def _admit(self, desk: Desk, enrol: Enrol) -> None:
        others = self._circle.others
        try:
            body, joined = self._circle.admit(
                wish=enrol.body.name, certificate=enrol.body.certificate, mailbox=enrol.mailbox
            )
        except KafilaError as error:
            self._answer(desk.refuse(enrol.mailbox, error))
            return
        self._answer(desk.admit(enrol.mailbox, body))
        self._spread(self._circle.write_last_entry(), others)
        self._tell([joined])

    def _answer(self, answer: Answer) -> None:
        self._poster.put([answer.mailbox], ring_pb2.Parcel(admission=answer.admission).SerializeToString())
