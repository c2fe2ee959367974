"""The gRPC driver of `room`: peers in, events out, one timer. Logs counts only, never rooms, addresses or mail."""

import asyncio
import ipaddress
import logging
import secrets
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import rendezvous_pb2_grpc as pb_grpc

from rendezvous.config import SECRET_BYTES, Config, Limits
from rendezvous.errors import CannotServe, RendezvousError
from rendezvous.mailbox import Arrived, Departed, Event, Mail, Present
from rendezvous.room import FIRST_MAILBOX, Key, Rooms

logger = logging.getLogger(__name__)

STOP_GRACE_S = 0.2
MOST_CALLS = 50_000  # at once, attended mailboxes included
FRAMING_BYTES = 4096  # what a request holds beside its body

Context = Any  # grpc.aio.ServicerContext; grpcio has no types


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that runs; the fingerprint is None without TLS."""

    port: int
    fingerprint: str | None


@asynccontextmanager
async def serve(config: Config) -> AsyncIterator[Serving]:
    """Serves until the block is left. Raises CannotServe when it can't listen."""
    servicer = _Servicer(config.limits)
    server = grpc.aio.server(options=_options(config.limits), maximum_concurrent_rpcs=MOST_CALLS)
    pb_grpc.add_RendezvousServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    port = _bind(server, config)
    await server.start()
    logger.info("rendezvous_serving tls=%s", config.key_pair is not None)
    try:
        yield Serving(port, config.key_pair.fingerprint if config.key_pair else None)
    finally:
        await server.stop(STOP_GRACE_S)
        servicer.close()
        logger.info("rendezvous_stopped")


class _Servicer(pb_grpc.RendezvousServicer):
    def __init__(self, limits: Limits) -> None:
        self._idle_ttl_s = limits.idle_ttl_s
        self._rooms = Rooms(limits)
        self._loop = asyncio.get_running_loop()
        self._wake: dict[int, asyncio.Event] = {}  # by stream
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()

    async def Create(self, request: pb.CreateRequest, context: Context) -> pb.CreateReply:
        secret = secrets.token_bytes(SECRET_BYTES)
        async with self._answering(context):
            key = self._rooms.create(
                protocol=request.protocol,
                address=limited_address(context.peer()),
                capacity=request.capacity,
                secret=secret,
                now=self._loop.time(),
            )
            logger.info("room_opened rooms=%d", len(self._rooms))
        return pb.CreateReply(room=key.room, secret=secret, mailbox=key.mailbox, idle_ttl_s=self._idle_ttl_s)

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinReply:
        secret = secrets.token_bytes(SECRET_BYTES)
        async with self._answering(context):
            key = self._rooms.join(
                protocol=request.protocol,
                address=limited_address(context.peer()),
                room=request.room,
                secret=secret,
                now=self._loop.time(),
            )
        return pb.JoinReply(secret=secret, mailbox=key.mailbox, admitter=FIRST_MAILBOX, idle_ttl_s=self._idle_ttl_s)

    async def Attend(self, request: pb.AttendRequest, context: Context) -> AsyncIterator[pb.Event]:
        key = Key(request.room, request.mailbox)
        async with self._answering(context):
            stream = self._rooms.attend(key, request.secret)
        wake = self._wake[stream] = asyncio.Event()
        try:
            while True:
                wake.clear()
                async with self._answering(context):
                    events = self._rooms.take(key, stream)
                for event in events:
                    yield _message(event, observed=observed_address(context.peer()))
                await wake.wait()
        finally:
            del self._wake[stream]
            self._rooms.detach(key, stream, self._loop.time())
            self._settle()

    async def Post(self, request: pb.PostRequest, context: Context) -> pb.PostReply:
        async with self._answering(context):
            missed = self._rooms.post(
                Key(request.room, request.mailbox),
                request.secret,
                to=request.to,
                body=request.body,
                now=self._loop.time(),
            )
        return pb.PostReply(missed=missed)

    async def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveReply:
        async with self._answering(context):
            self._rooms.leave(Key(request.room, request.mailbox), request.secret, self._loop.time())
            logger.info("mailbox_left rooms=%d", len(self._rooms))
        return pb.LeaveReply()

    @asynccontextmanager
    async def _answering(self, context: Context) -> AsyncIterator[None]:
        """Runs one step of the core: typed errors become gRPC statuses, streams are woken, the timer is set."""
        try:
            yield
        except RendezvousError as error:
            await context.abort(grpc.StatusCode[error.code], str(error))
        finally:
            self._settle()

    def _settle(self) -> None:
        for stream in self._rooms.take_woken() & self._wake.keys():
            self._wake[stream].set()
        due = self._rooms.next_timer()
        if self._timer:
            self._timer.cancel()
        self._timer = None if due is None else self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._rooms.handle_timer(self._loop.time())
        self._settle()


def _message(event: Event, *, observed: str) -> pb.Event:
    match event:
        case Present(mailboxes):
            return pb.Event(present=pb.Present(mailboxes=mailboxes, observed_address=observed))
        case Arrived(mailbox):
            return pb.Event(arrived=mailbox)
        case Departed(mailbox):
            return pb.Event(departed=mailbox)
        case Mail(sender, body):
            return pb.Event(mail=pb.Mail(sender=sender, body=body))


def observed_address(peer: str) -> str:
    """host:port of a gRPC peer name ("ipv4:192.0.2.7:4711", "ipv6:%5B::1%5D:4711"); empty for other kinds."""
    kind, _, rest = urllib.parse.unquote(peer).partition(":")
    return rest if kind in ("ipv4", "ipv6") else ""


def limited_address(peer: str) -> str:
    """Whom the limits count: an IPv4 address, or the /64 network of an IPv6 one, since hosts own those whole."""
    host = observed_address(peer).rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return peer.partition(":")[0]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host


def _bind(server: grpc.aio.Server, config: Config) -> int:
    host = f"[{config.host}]" if ":" in config.host else config.host
    target = f"{host}:{config.port}"
    try:
        if config.key_pair is None:
            port = server.add_insecure_port(target)
        else:
            pair = (config.key_pair.key_pem, config.key_pair.certificate_pem)
            port = server.add_secure_port(target, grpc.ssl_server_credentials([pair]))
    except RuntimeError as error:
        raise CannotServe(f"can't listen on {target}: is the port taken?") from error
    return int(port)


def _options(limits: Limits) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake
        ("grpc.max_receive_message_length", limits.body_bytes + FRAMING_BYTES),
        ("grpc.max_concurrent_streams", 64),  # a connection
        ("grpc.keepalive_time_ms", 10_000),  # a vanished member is noticed within 15 s
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ]
