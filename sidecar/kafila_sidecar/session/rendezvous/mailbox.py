"""One mailbox at a rendezvous: its calls with deadlines, its stream, and who else attends."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import grpc

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import rendezvous_pb2_grpc as pb_grpc
from kafila_rendezvous.config import PROTOCOL
from kafila_rendezvous.rooms.secret import SECRET_BYTES
from kafila_rendezvous.udp.token import KEY_BYTES
from kafila_sidecar.errors import NotFound, Unavailable
from kafila_sidecar.net.nat.stun_servers import checked_place
from kafila_sidecar.net.relay.end import Token
from kafila_sidecar.net.relay.stream import RelayStream
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import LARGEST_ROOM
from kafila_sidecar.session.rendezvous.dial import CALL_DEADLINE_S, answered, dial, no_answer

MOST_ATTENDING = 1024  # mailboxes that are remembered; an honest room has fewer
MOST_PUT_OFF = 64  # pieces of mail
MOST_TOKEN_BYTES = 512  # it is shown in a datagram, with some 50 bytes around it
LONGEST_TOKEN_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class MailboxPlace:
    """Which mailbox, whose answers newcomers wait for, and the proof that it is ours."""

    room: int
    mailbox: int
    host: int
    secret: bytes = field(repr=False)


class Mailbox:
    """Made by `open_room` or `enter_room`. One reader at a time calls `attend` and `next`."""

    def __init__(self, channel: grpc.aio.Channel, address: RendezvousAddress, place: MailboxPlace) -> None:
        self.address = address
        self.place = place
        self.attending: set[int] = set()  # the others
        self.udp = pb.UdpPlace()  # where STUN and relay answer; without a port there is neither
        self._channel = channel
        self._stub = _stub(channel)
        self._stream: grpc.aio.UnaryStreamCall | None = None
        self._reading: asyncio.Task[pb.Event] | None = None
        self._put_off: deque[pb.Event] = deque(maxlen=MOST_PUT_OFF)
        self._is_handed_over = False

    async def attend(self) -> None:
        """Opens the stream anew and learns who attends; raises NotFound when the mailbox is gone, or Unavailable."""
        place = self.place
        self._end_stream()
        self._stream = self._stub.Attend(pb.AttendRequest(room=place.room, mailbox=place.mailbox, secret=place.secret))
        try:
            async with asyncio.timeout(CALL_DEADLINE_S):
                await self.next()
        except TimeoutError as error:
            raise no_answer(self.address) from error

    async def next(self) -> pb.Event:
        """The next event. Raises Unavailable when the stream breaks, NotFound when the mailbox is gone."""
        if self._is_handed_over and self._put_off:
            return self._put_off.popleft()
        reading, self._reading = self._reading, None
        return await (reading or self._read())

    async def next_until(self, when: float) -> pb.Event | None:
        """The same, or None at the loop's time `when`; what comes later is there for whoever asks next."""
        loop = asyncio.get_running_loop()
        if self._reading is None:
            self._reading = loop.create_task(self._read(), name="read a mailbox")
        done, _ = await asyncio.wait([self._reading], timeout=max(0.0, when - loop.time()))
        return await self.next() if done else None

    def put_off(self, event: pb.Event) -> None:
        """Mail that is not for who reads now, since it is not in yet: others may have heard sooner that it is."""
        if event.HasField("mail"):
            self._put_off.append(event)

    def hand_over(self) -> None:
        """A channel reads from here on; what was put off comes first."""
        self._is_handed_over = True

    async def _read(self) -> pb.Event:
        if self._stream is None:
            raise no_answer(self.address)
        event = await answered(self._stream.read(), self.address)
        if not isinstance(event, pb.Event):  # the stream's end
            raise no_answer(self.address)
        self._note(event)
        return event

    async def post(self, to: Iterable[int], body: bytes) -> None:
        """Mail for other mailboxes; those that are gone miss it."""
        place = self.place
        request = pb.PostRequest(room=place.room, mailbox=place.mailbox, secret=place.secret, to=to, body=body)
        await answered(self._stub.Post(request, timeout=CALL_DEADLINE_S), self.address)

    async def relay_token(self, peer: int) -> Token:
        """For this mailbox's end of the relay's channel with `peer`. Raises Unavailable, NotFound, Exhausted."""
        place = self.place
        request = pb.RelayRequest(room=place.room, mailbox=place.mailbox, secret=place.secret, peer=peer)
        reply: pb.RelayReply = await answered(self._stub.Relay(request, timeout=CALL_DEADLINE_S), self.address)
        fits = 0 < len(reply.token) <= MOST_TOKEN_BYTES and len(reply.key) == KEY_BYTES
        if not fits or not 0 < reply.ttl_s <= LONGEST_TOKEN_S:
            raise _nonsense(self.address, f"a relay token of {len(reply.token)} bytes for {reply.ttl_s:g} s")
        return Token(reply.token, reply.key, reply.ttl_s)

    def relay_stream(self, deliver: Callable[[bytes], None], opened: Callable[[], None]) -> RelayStream:
        """The relay over this connection, for networks that carry no UDP."""
        return RelayStream(self._channel, redial=lambda: dial(self.address), deliver=deliver, opened=opened)

    async def leave(self) -> None:
        """Gives the mailbox up."""
        place = self.place
        request = pb.LeaveRequest(room=place.room, mailbox=place.mailbox, secret=place.secret)
        await answered(self._stub.Leave(request, timeout=CALL_DEADLINE_S), self.address)

    async def give_up(self, place: MailboxPlace) -> None:
        """Gives another mailbox up that was ours at the same rendezvous."""
        request = pb.LeaveRequest(room=place.room, mailbox=place.mailbox, secret=place.secret)
        await answered(self._stub.Leave(request, timeout=CALL_DEADLINE_S), self.address)

    async def aclose(self) -> None:
        """Ends the connection, which others see as a departure."""
        self._end_stream()
        await self._channel.close()

    def _end_stream(self) -> None:
        """A call that anybody still refers to would hold the connection open after its channel was closed."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    def _note(self, event: pb.Event) -> None:
        match event.WhichOneof("event"):
            case "present":
                self.attending = set(event.present.mailboxes[:MOST_ATTENDING])
                self.udp = checked_place(event.present.udp)
            case "arrived" if len(self.attending) < MOST_ATTENDING:
                self.attending.add(event.arrived)
            case "departed":
                self.attending.discard(event.departed)


async def open_room(address: RendezvousAddress) -> Mailbox:
    """A new room with its first mailbox. Raises Unavailable, or what the rendezvous refuses with."""

    async def ask(stub: pb_grpc.RendezvousStub) -> MailboxPlace:
        call = stub.Create(pb.CreateRequest(protocol=PROTOCOL), timeout=CALL_DEADLINE_S)
        reply: pb.CreateReply = await answered(call, address)
        return _checked(MailboxPlace(reply.room, reply.mailbox, host=reply.mailbox, secret=reply.secret), address)

    return await _opened(address, ask)


async def enter_room(address: RendezvousAddress, room: int) -> Mailbox:
    """One more mailbox in a room. Raises NotFound, Refused when it is full, Unavailable."""

    async def ask(stub: pb_grpc.RendezvousStub) -> MailboxPlace:
        call = stub.Join(pb.JoinRequest(protocol=PROTOCOL, room=room), timeout=CALL_DEADLINE_S)
        try:
            reply: pb.JoinReply = await answered(call, address)
        except NotFound as error:
            raise NotFound(
                f"no session has the number {room} at {address.target}: it may have ended; ask for the code again"
            ) from error
        return _checked(MailboxPlace(room, reply.mailbox, host=reply.admitter, secret=reply.secret), address)

    return await _opened(address, ask)


async def enter_again(address: RendezvousAddress, place: MailboxPlace) -> Mailbox:
    """A mailbox that was ours before, and its room with it. Raises NotFound when it is gone, Unavailable."""

    async def ask(_: pb_grpc.RendezvousStub) -> MailboxPlace:
        return place

    return await _opened(address, ask)


async def _opened(
    address: RendezvousAddress, ask: Callable[[pb_grpc.RendezvousStub], Awaitable[MailboxPlace]]
) -> Mailbox:
    """Dials, asks for a place and attends it; nothing stays open after an error."""
    channel = await dial(address)
    try:
        mailbox = Mailbox(channel, address, await ask(_stub(channel)))
        await mailbox.attend()
    except BaseException:
        await channel.close()
        raise
    return mailbox


def _checked(place: MailboxPlace, address: RendezvousAddress) -> MailboxPlace:
    if not 1 <= place.room <= LARGEST_ROOM or not place.mailbox or len(place.secret) != SECRET_BYTES:
        raise _nonsense(address, f"mailbox {place.mailbox} of room {place.room} with {len(place.secret)} secret bytes")
    return place


def _nonsense(address: RendezvousAddress, what: str) -> Unavailable:
    return Unavailable(f"the rendezvous at {address.target} gave {what}, which makes no sense: use another one")


def _stub(channel: grpc.aio.Channel) -> pb_grpc.RendezvousStub:
    return pb_grpc.RendezvousStub(channel)  # type: ignore[no-untyped-call]
