"""The calls: each is a step of the core, for a caller whom the front knows. Logs counts only, never rooms or mail."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import rendezvous_pb2_grpc as pb_grpc
from kafila_rendezvous.config import PROTOCOL, RendezvousLimits
from kafila_rendezvous.errors import RendezvousError, WrongProtocol
from kafila_rendezvous.front.front import Connection, Front
from kafila_rendezvous.notes import Notes
from kafila_rendezvous.rooms.events import Arrived, Departed, Event, Mail, Present
from kafila_rendezvous.rooms.meter import Meter
from kafila_rendezvous.rooms.room import FIRST_MAILBOX, Key, Rooms
from kafila_rendezvous.udp.datagrams import Datagrams
from kafila_rendezvous.udp.token import Tokens
from kafila_rendezvous.udp.tunnel import RelayTunnel

logger = logging.getLogger(__name__)

SUPERSEDED_S = 1.0  # for a stream that sends to a reader who has a newer one

Context = Any  # grpc.aio.ServicerContext; grpcio has no types


class GuardedStream:
    """A stream on its way to its reader. Who reads nothing for too long loses the connection, with what waits in it."""

    def __init__(self, caller: Connection, deadline_s: float) -> None:
        self.wake = asyncio.Event()
        self._caller = caller
        self._deadline_s = deadline_s
        self._loop = asyncio.get_running_loop()
        self._watch: asyncio.TimerHandle | None = None

    @contextmanager
    def one(self) -> Iterator[None]:
        """Round the sending of one message."""
        self._watch = self._loop.call_later(self._deadline_s, self._caller.drop)
        try:
            yield
        finally:
            self._watch.cancel()
            self._watch = None

    def is_superseded(self) -> None:
        """Its reader has a newer stream, and needs no time to read this one."""
        self._deadline_s = SUPERSEDED_S
        if self._watch:
            self._watch.cancel()
            self._watch = self._loop.call_later(SUPERSEDED_S, self._caller.drop)


class Servicer(pb_grpc.RendezvousServicer):
    """Owns the core's one timer, and wakes the streams that have something to send."""

    def __init__(
        self,
        limits: RendezvousLimits,
        *,
        front: Front,
        rooms: Rooms,
        notes: Notes | None,
        tokens: Tokens,
        datagrams: Datagrams,
        udp: pb.UdpPlace,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._front = front
        self._rooms = rooms
        self._notes = notes
        self._greets = Meter(limits.greets_per_address_and_minute, "greetings came from your address")
        self._tokens = tokens
        self._datagrams = datagrams
        self._udp = udp
        self._streams: dict[int, GuardedStream] = {}
        self._latest: dict[Key, int] = {}  # stream
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._settle()

    def end_streams(self) -> None:
        """Members hear in order that the server stops, and try again."""
        self._stopping = True
        for stream in self._streams.values():
            stream.wake.set()

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()

    async def Create(self, request: pb.CreateRequest, context: Context) -> pb.CreateReply:
        async with self._answering(request, context) as caller:
            key = self._rooms.create(
                protocol=request.protocol,
                address=caller.owner,
                capacity=request.capacity,
                serial=secrets.randbits(64),
                now=self._loop.time(),
            )
            secret = self._rooms.secret(key)
            logger.info("room_opened rooms=%d", len(self._rooms))
        return pb.CreateReply(room=key.room, secret=secret, mailbox=key.mailbox, idle_ttl_s=self._limits.idle_ttl_s)

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinReply:
        async with self._answering(request, context) as caller:
            key = self._rooms.join(
                protocol=request.protocol, address=caller.owner, room=request.room, now=self._loop.time()
            )
            secret = self._rooms.secret(key)
        return pb.JoinReply(
            secret=secret, mailbox=key.mailbox, admitter=FIRST_MAILBOX, idle_ttl_s=self._limits.idle_ttl_s
        )

    async def Attend(self, request: pb.AttendRequest, context: Context) -> AsyncIterator[pb.Event]:
        key = Key(request.room, request.mailbox)
        async with self._answering(request, context) as caller:
            number = self._rooms.attend(key, request.secret, address=caller.owner, now=self._loop.time())
        sending = self._attended(key, number, caller)
        try:
            while True:
                sending.wake.clear()
                async with self._refusing(context):
                    event = self._rooms.first(key, number)
                if event is not None:
                    with sending.one():
                        yield _message(event, observed=caller.observed, udp=self._udp)
                    self._rooms.sent(key, number)
                elif self._stopping:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "this rendezvous stops")
                else:
                    await sending.wake.wait()
        finally:
            self._left(key, number, caller)

    async def Post(self, request: pb.PostRequest, context: Context) -> pb.PostReply:
        async with self._answering(request, context):
            missed = self._rooms.post(
                Key(request.room, request.mailbox),
                request.secret,
                to=request.to,
                body=request.body,
                now=self._loop.time(),
            )
        return pb.PostReply(missed=missed)

    async def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveReply:
        async with self._answering(request, context):
            self._rooms.leave(Key(request.room, request.mailbox), request.secret, self._loop.time())
            logger.info("mailbox_left rooms=%d", len(self._rooms))
        return pb.LeaveReply()

    async def Greet(self, request: pb.GreetRequest, context: Context) -> pb.GreetReply:
        async with self._answering(request, context) as caller:
            self._greets.count(caller.owner, self._loop.time())
            if request.protocol != PROTOCOL:
                raise WrongProtocol(f"this rendezvous speaks protocol {PROTOCOL}, the caller {request.protocol}")
        return pb.GreetReply(observed_address=caller.observed, udp=self._udp, time_s=time.time())

    async def Relay(self, request: pb.RelayRequest, context: Context) -> pb.RelayReply:
        now, key = self._loop.time(), Key(request.room, request.mailbox)
        async with self._answering(request, context) as caller:
            serial = self._rooms.pair(key, request.secret, request.peer, address=caller.owner, now=now)
            token, signing = self._tokens.issue(serial=serial, mailbox=request.mailbox, peer=request.peer, now=now)
        return pb.RelayReply(token=token, key=signing, ttl_s=self._tokens.ttl_s, bytes_per_s=self._tokens.bytes_per_s)

    async def RelayStream(
        self, requests: AsyncIterator[pb.RelayDatagram], context: Context
    ) -> AsyncIterator[pb.RelayDatagram]:
        async with self._answering(None, context) as caller:
            tunnel = RelayTunnel(self._datagrams, caller.host, took=caller.took, idle_s=self._limits.idle_connection_s)
        sending = GuardedStream(caller, self._limits.send_deadline_s)
        caller.attends(1)
        try:
            async for datagram in tunnel.run(requests):
                with sending.one():
                    yield datagram
        finally:
            caller.attends(-1)
            tunnel.close()

    # ---- Private

    def _attended(self, key: Key, number: int, caller: Connection) -> GuardedStream:
        if (older := self._streams.get(self._latest.get(key, 0))) is not None:
            older.is_superseded()
        caller.attends(1)
        self._latest[key] = number
        sending = self._streams[number] = GuardedStream(caller, self._limits.send_deadline_s)
        return sending

    def _left(self, key: Key, number: int, caller: Connection) -> None:
        caller.attends(-1)
        del self._streams[number]
        if self._latest[key] == number:
            del self._latest[key]
        self._rooms.detach(key, number, self._loop.time())
        self._settle()

    @asynccontextmanager
    async def _answering(self, request: Any, context: Context) -> AsyncIterator[Connection]:
        """Runs a step of the core for who calls; then streams are woken, the timer is set, and the file is written."""
        async with self._refusing(context):
            caller = self._front.caller(context.peer())
            caller.called(request.ByteSize() if request is not None else 0)
            try:
                yield caller
            finally:
                self._settle()

    @asynccontextmanager
    async def _refusing(self, context: Context) -> AsyncIterator[None]:
        """Typed errors become gRPC statuses."""
        try:
            yield
        except RendezvousError as error:
            await context.abort(grpc.StatusCode[error.code], str(error))

    def _settle(self) -> None:
        for stream in self._rooms.take_woken() & self._streams.keys():
            self._streams[stream].wake.set()
        changes = self._rooms.take_changes()
        if self._notes is not None:
            self._notes.note(changes)
        due = self._rooms.next_timer()
        if self._timer:
            self._timer.cancel()
        self._timer = None if due is None else self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._rooms.handle_timer(self._loop.time())
        self._settle()


def _message(event: Event, *, observed: str, udp: pb.UdpPlace) -> pb.Event:
    match event:
        case Present(mailboxes):
            return pb.Event(present=pb.Present(mailboxes=mailboxes, observed_address=observed, udp=udp))
        case Arrived(mailbox):
            return pb.Event(arrived=mailbox)
        case Departed(mailbox):
            return pb.Event(departed=mailbox)
        case Mail(sender, body):
            return pb.Event(mail=pb.Mail(sender=sender, body=body))
