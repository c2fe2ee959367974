"""The rendezvous: the server's own core, reached over connections that break as gRPC's do.

A connection whose machine vanished is missed after some 15 s at the server, and as late at the client; a process that
dies, or a server that stops, is noticed at once.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from kafila_proto import rendezvous_pb2 as pb
from kafila_rendezvous.config import PROTOCOL, RendezvousLimits
from kafila_rendezvous.errors import RendezvousError
from kafila_rendezvous.pings import EVERY_S, PATIENCE_S
from kafila_rendezvous.rooms.events import Arrived, Departed, Event, Mail, Present
from kafila_rendezvous.rooms.room import FIRST_MAILBOX, Key, Rooms
from kafila_rendezvous.rooms.secret import Secrets
from kafila_sidecar.errors import KafilaError, Unavailable, from_code
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.dial import CALL_DEADLINE_S
from kafila_sidecar.session.rendezvous.mailbox import MailboxPlace
from tests.sim.clock import Life, SimLoop, SimProcess
from tests.sim.internet import SimInternet

ADDRESS = RendezvousAddress("10.0.0.200", 7770, insecure=True)
REFUSED_S = 0.05  # until a connection to a machine without the server is refused
DELAY_S = 0.015
NOTICE_S = EVERY_S + PATIENCE_S

NOWHERE = MailboxPlace(0, 0, 0, b"")

T = TypeVar("T")


def gone() -> Unavailable:
    return Unavailable("the rendezvous does not answer: check its address and your network")


@dataclass(eq=False, slots=True)
class Attended:
    """One open stream of a mailbox, at the server."""

    key: Key
    number: int
    box: "SimMailbox"
    unsent: list[pb.Event]
    network: int  # which its machine was in then
    is_over: bool = False
    missed_since_s: float | None = None  # by the server
    mute_since_s: float | None = None  # as its client sees it


class SimServer:
    """The server."""

    def __init__(self, internet: SimInternet, loop: SimLoop, chance: random.Random) -> None:
        self.internet = internet
        self.loop = loop
        self.rooms = Rooms(RendezvousLimits(), Secrets(b"key"))
        self._serials = chance.getrandbits
        self._streams: dict[int, Attended] = {}
        self._timer: asyncio.TimerHandle | None = None
        internet.listen(self.look)

    # ---- Calls, as the server answers them

    def create(self, machine: str) -> MailboxPlace:
        key = self.rooms.create(
            protocol=PROTOCOL, address=machine, capacity=0, serial=self._serials(64), now=self.loop.now
        )
        return self._place(key, key.mailbox)

    def join(self, machine: str, room: int) -> MailboxPlace:
        key = self.rooms.join(protocol=PROTOCOL, address=machine, room=room, now=self.loop.now)
        return self._place(key, FIRST_MAILBOX)

    def attend(self, box: "SimMailbox") -> Attended:
        key = Key(box.place.room, box.place.mailbox)
        number = self.rooms.attend(key, box.place.secret, address=box.me.name, now=self.loop.now)
        stream = Attended(key, number, box, [], self.internet.network_of(box.me.name))
        self._streams[number] = stream
        self._send(stream)
        self.settle()
        return stream

    def detach(self, stream: Attended) -> None:
        if self._streams.pop(stream.number, None) is not None:
            self.rooms.detach(stream.key, stream.number, self.loop.now)
            self.settle()

    def settle(self) -> None:
        """Streams that have something to send, or have to end, do so."""
        for number in sorted(self.rooms.take_woken()):
            if stream := self._streams.get(number):
                self._send(stream)
        self.rooms.take_changes()
        due = self.rooms.next_timer()
        if self._timer:
            self._timer.cancel()
        self._timer = None if due is None else self.loop.outside(due - self.loop.now, self._on_timer)

    def look(self) -> None:
        """Something changed: what could not be sent may be, and who can't be reached may be missed."""
        for stream in list(self._streams.values()):
            if not self.internet.rendezvous_is_up:
                self.detach(stream)
            elif stream.box.me.life is Life.DEAD and self.is_connected(stream):
                self.loop.outside(DELAY_S, self.detach, stream)
            elif not self._reaches(stream):
                if stream.missed_since_s is None:
                    stream.missed_since_s = self.loop.now
                    self.loop.outside(NOTICE_S, self._miss, stream, self.loop.now)
                continue
            stream.missed_since_s = None
            if stream.unsent:
                unsent, stream.unsent = stream.unsent, []
                for event in unsent:
                    self._deliver(stream, event)

    @property
    def attending(self) -> list[str]:
        """Machines that run and have not ended a stream of theirs, once for each."""
        streams = self._streams.values()
        return [one.box.me.name for one in streams if one.box.me.life is Life.RUNS and not one.is_over]

    def is_open(self, stream: Attended) -> bool:
        return stream.number in self._streams

    # ---- Private

    def is_connected(self, stream: Attended) -> bool:
        """Whether what either end says comes to the other; connections don't follow a machine to another network."""
        machine = stream.box.me.name
        return self.internet.reaches_rendezvous(machine) and stream.network == self.internet.network_of(machine)

    def _reaches(self, stream: Attended) -> bool:
        return self.is_connected(stream) and stream.box.me.life is Life.RUNS

    def _miss(self, stream: Attended, since_s: float) -> None:
        if stream.missed_since_s == since_s and stream.number in self._streams:
            self.detach(stream)
            if self.is_connected(stream):
                stream.box.later(DELAY_S, stream.box.broke, stream, gone())

    def _send(self, stream: Attended) -> None:
        try:
            while (event := self.rooms.first(stream.key, stream.number)) is not None:
                self._deliver(stream, _message(event))
                self.rooms.sent(stream.key, stream.number)
        except RendezvousError as error:
            self._streams.pop(stream.number, None)
            stream.box.later(DELAY_S, stream.box.broke, stream, from_code(error.code, str(error)))

    def _deliver(self, stream: Attended, event: pb.Event) -> None:
        if self.is_connected(stream):
            stream.box.later(DELAY_S, stream.box.came, stream, event)
        else:
            stream.unsent.append(event)

    def _on_timer(self) -> None:
        self.rooms.handle_timer(self.loop.now)
        self.settle()

    def _place(self, key: Key, host: int) -> MailboxPlace:
        self.settle()
        return MailboxPlace(key.room, key.mailbox, host=host, secret=self.rooms.secret(key))


class SimMailbox:
    """As `Mailbox`, at one machine."""

    def __init__(self, server: SimServer, me: SimProcess, place: MailboxPlace) -> None:
        self.address = ADDRESS
        self.place = place
        self.attending: set[int] = set()
        self.udp = pb.UdpPlace()
        self.me = me
        self._server = server
        self._loop = server.loop
        self._last_at = 0.0
        self._stream: Attended | None = None
        self._events: asyncio.Queue[pb.Event | KafilaError] = asyncio.Queue()
        self._is_closed = False
        self._network = server.internet.network_of(me.name)  # from where it is connected
        self._reading: asyncio.Task[pb.Event] | None = None
        self._put_off: list[pb.Event] = []
        self._is_handed_over = False
        server.internet.listen(self._look)

    async def attend(self) -> None:
        self._end_stream()
        self._events = asyncio.Queue()
        self._network = self._server.internet.network_of(self.me.name)
        self._stream = await self._call(lambda: self._server.attend(self))
        try:
            async with asyncio.timeout(CALL_DEADLINE_S):
                await self.next()
        except TimeoutError:
            raise gone() from None

    async def next(self) -> pb.Event:
        if self._is_handed_over and self._put_off:
            return self._put_off.pop(0)
        reading, self._reading = self._reading, None
        return await (reading or self._read())

    async def next_until(self, when: float) -> pb.Event | None:
        if self._reading is None:
            self._reading = self._loop.create_task(self._read(), name="read a mailbox")
        done, _ = await asyncio.wait([self._reading], timeout=max(0.0, when - self._loop.now))
        return await self.next() if done else None

    def put_off(self, event: pb.Event) -> None:
        if event.HasField("mail"):
            self._put_off.append(event)

    def hand_over(self) -> None:
        self._is_handed_over = True

    async def _read(self) -> pb.Event:
        event = await self._events.get()
        if isinstance(event, KafilaError):
            raise event
        match event.WhichOneof("event"):
            case "present":
                self.attending = set(event.present.mailboxes)
            case "arrived":
                self.attending.add(event.arrived)
            case "departed":
                self.attending.discard(event.departed)
        return event

    async def post(self, to: Iterable[int], body: bytes) -> None:
        key, wanted = Key(self.place.room, self.place.mailbox), list(to)

        def posted() -> None:
            self._server.rooms.post(key, self.place.secret, to=wanted, body=body, now=self._loop.now)

        await self._call(posted)

    async def leave(self) -> None:
        await self.give_up(self.place)

    async def give_up(self, place: MailboxPlace) -> None:
        key = Key(place.room, place.mailbox)
        await self._call(lambda: self._server.rooms.leave(key, place.secret, self._loop.now))

    async def aclose(self) -> None:
        self._is_closed = True
        self._end_stream()

    # ---- For the server

    def later(self, delay_s: float, call: Callable[..., object], *arguments: object) -> None:
        """In the order in which it was sent."""
        self._last_at = max(self._last_at + 1e-7, self._loop.now + delay_s)
        self.me.call_at(self._last_at, call, *arguments)

    def came(self, stream: Attended, event: pb.Event) -> None:
        if stream is self._stream or self._stream is None:
            self._events.put_nowait(event)

    def broke(self, stream: Attended, error: KafilaError) -> None:
        if stream is self._stream and not stream.is_over:
            stream.is_over = True
            self._events.put_nowait(error)

    # ---- Private

    def _look(self) -> None:
        """This end of the connection notices too."""
        stream = self._stream
        if stream is None or stream.is_over or self._is_closed:
            return
        if not self._server.internet.rendezvous_is_up:
            self.later(REFUSED_S, self.broke, stream, gone())
        elif not self._server.is_connected(stream):
            if stream.mute_since_s is None:
                stream.mute_since_s = self._loop.now
                self._loop.call_later(NOTICE_S, self._miss, stream, self._loop.now, context=self.me.context)
        else:
            stream.mute_since_s = None
            if not self._server.is_open(stream):
                self.later(REFUSED_S, self.broke, stream, gone())

    def _miss(self, stream: Attended, since_s: float) -> None:
        if stream.mute_since_s == since_s:
            self.broke(stream, gone())

    async def _call(self, call: Callable[[], T]) -> T:
        """There and back; the server's own refusals come as the errors that a client makes of them."""
        if not self._server.internet.rendezvous_is_up:
            await asyncio.sleep(REFUSED_S)
            raise gone()
        await asyncio.sleep(DELAY_S)
        internet = self._server.internet
        if not internet.reaches_rendezvous(self.me.name) or self._network != internet.network_of(self.me.name):
            await asyncio.sleep(CALL_DEADLINE_S)
            raise gone()
        try:
            answer = call()
        except RendezvousError as error:
            await asyncio.sleep(DELAY_S)
            raise from_code(error.code, str(error)) from None
        finally:
            self._server.settle()
        if not isinstance(answer, Attended):
            await asyncio.sleep(DELAY_S)
        return answer

    def _end_stream(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        stream, self._stream = self._stream, None
        if stream is not None and not stream.is_over:
            stream.is_over = True
            if self._server.is_connected(stream):
                self._loop.outside(DELAY_S, self._server.detach, stream)


async def enter(server: SimServer, me: SimProcess, room: int) -> SimMailbox:
    """As `enter_room`."""
    place = await SimMailbox(server, me, NOWHERE)._call(lambda: server.join(me.name, room))
    return await enter_again(server, me, place)


async def enter_again(server: SimServer, me: SimProcess, place: MailboxPlace) -> SimMailbox:
    """As `enter_again`."""
    mailbox = SimMailbox(server, me, place)
    try:
        await mailbox.attend()
    except BaseException:
        await mailbox.aclose()
        raise
    return mailbox


def _message(event: Event) -> pb.Event:
    match event:
        case Present(mailboxes):
            return pb.Event(present=pb.Present(mailboxes=mailboxes))
        case Arrived(mailbox):
            return pb.Event(arrived=mailbox)
        case Departed(mailbox):
            return pb.Event(departed=mailbox)
        case Mail(sender, body):
            return pb.Event(mail=pb.Mail(sender=sender, body=body))
