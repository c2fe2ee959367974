"""The gRPC driver of `room`: peers in, events out, one timer. Logs counts only, never rooms, addresses or mail."""

import asyncio
import logging
import secrets
import time
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import rendezvous_pb2_grpc as pb_grpc
from kafila_rendezvous.address import limited
from kafila_rendezvous.config import PROTOCOL, RendezvousConfig, RendezvousLimits
from kafila_rendezvous.errors import CannotServe, RendezvousError, WrongProtocol
from kafila_rendezvous.pace import Pace
from kafila_rendezvous.rooms.mailbox import Arrived, Departed, Event, Mail, Present
from kafila_rendezvous.rooms.meter import Meter
from kafila_rendezvous.rooms.room import FIRST_MAILBOX, RUN_BITS, Key, Rooms
from kafila_rendezvous.rooms.secret import Secrets, key_from
from kafila_rendezvous.udp.datagrams import Datagrams, Sockets, address_of, open_sockets
from kafila_rendezvous.udp.relay import Relay
from kafila_rendezvous.udp.stun import SocketPlace, Stun
from kafila_rendezvous.udp.token import Tokens
from kafila_rendezvous.udp.tunnel import RelayTunnel

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
    udp_ports: tuple[int, int]


@asynccontextmanager
async def serve(config: RendezvousConfig) -> AsyncIterator[Serving]:
    """Serves until the block is left. Raises CannotServe when it can't listen."""
    server = grpc.aio.server(options=_options(config.limits), maximum_concurrent_rpcs=MOST_CALLS)
    port = _bind(server, config)
    sockets = open_sockets(config, port)
    servicer = _Servicer(config, sockets)
    pb_grpc.add_RendezvousServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    await server.start()
    logger.info("rendezvous_serving tls=%s", config.key_pair is not None)
    try:
        fingerprint = config.key_pair.fingerprint if config.key_pair else None
        yield Serving(port, fingerprint, (servicer.udp.port, servicer.udp.alternate_port))
    finally:
        servicer.end_streams()
        await server.stop(STOP_GRACE_S)
        servicer.close()
        logger.info("rendezvous_stopped")


class _Servicer(pb_grpc.RendezvousServicer):
    def __init__(self, config: RendezvousConfig, sockets: Sockets) -> None:
        limits = config.limits
        self._loop = asyncio.get_running_loop()
        self._idle_ttl_s = limits.idle_ttl_s
        self._rooms = _rooms(config, self._loop.time())
        self._greets = Meter(limits.greets_per_address_and_minute, "greetings came from your address")
        self._tokens = Tokens(
            secret=secrets.token_bytes(32), ttl_s=limits.relay_token_ttl_s, bytes_per_s=limits.relay_bytes_per_s
        )
        self._datagrams = _datagrams(config, sockets, self._tokens)
        self.udp = _udp_place(config, sockets)
        self._wake: dict[int, asyncio.Event] = {}  # by stream
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False

    def end_streams(self) -> None:
        """Members hear in order that the server stops, and try again."""
        self._stopping = True
        for wake in self._wake.values():
            wake.set()

    def close(self) -> None:
        self._datagrams.close()
        if self._timer:
            self._timer.cancel()

    async def Create(self, request: pb.CreateRequest, context: Context) -> pb.CreateReply:
        async with self._answering(context):
            key = self._rooms.create(
                protocol=request.protocol,
                address=limited_address(context.peer()),
                capacity=request.capacity,
                serial=secrets.randbits(64),
                now=self._loop.time(),
            )
            secret = self._rooms.secret(key)
            logger.info("room_opened rooms=%d", len(self._rooms))
        return pb.CreateReply(room=key.room, secret=secret, mailbox=key.mailbox, idle_ttl_s=self._idle_ttl_s)

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinReply:
        async with self._answering(context):
            key = self._rooms.join(
                protocol=request.protocol,
                address=limited_address(context.peer()),
                room=request.room,
                now=self._loop.time(),
            )
            secret = self._rooms.secret(key)
        return pb.JoinReply(secret=secret, mailbox=key.mailbox, admitter=FIRST_MAILBOX, idle_ttl_s=self._idle_ttl_s)

    async def Attend(self, request: pb.AttendRequest, context: Context) -> AsyncIterator[pb.Event]:
        key = Key(request.room, request.mailbox)
        async with self._answering(context):
            address = limited_address(context.peer())
            stream = self._rooms.attend(key, request.secret, address=address, now=self._loop.time())
        wake = self._wake[stream] = asyncio.Event()
        try:
            while True:
                wake.clear()
                async with self._answering(context):
                    events = self._rooms.take(key, stream)
                for event in events:
                    yield _message(event, observed=observed_address(context.peer()), udp=self.udp)
                if self._stopping:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "this rendezvous stops")
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

    async def Greet(self, request: pb.GreetRequest, context: Context) -> pb.GreetReply:
        async with self._answering(context):
            self._greets.count(limited_address(context.peer()), self._loop.time())
            if request.protocol != PROTOCOL:
                raise WrongProtocol(f"this rendezvous speaks protocol {PROTOCOL}, the caller {request.protocol}")
        return pb.GreetReply(observed_address=observed_address(context.peer()), udp=self.udp, time_s=time.time())

    async def Relay(self, request: pb.RelayRequest, context: Context) -> pb.RelayReply:
        now, key = self._loop.time(), Key(request.room, request.mailbox)
        async with self._answering(context):
            address = limited_address(context.peer())
            serial = self._rooms.pair(key, request.secret, request.peer, address=address, now=now)
            token, signing = self._tokens.issue(serial=serial, mailbox=request.mailbox, peer=request.peer, now=now)
        return pb.RelayReply(token=token, key=signing, ttl_s=self._tokens.ttl_s, bytes_per_s=self._tokens.bytes_per_s)

    async def RelayStream(
        self, requests: AsyncIterator[pb.RelayDatagram], context: Context
    ) -> AsyncIterator[pb.RelayDatagram]:
        async with self._answering(context):
            stream = RelayTunnel(self._datagrams, _host(context.peer()))
        try:
            async for datagram in stream.run(requests):
                yield datagram
        finally:
            stream.close()

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


def observed_address(peer: str) -> str:
    """host:port of a gRPC peer name ("ipv4:192.0.2.7:4711", "ipv6:%5B::1%5D:4711"); empty for other kinds."""
    kind, _, rest = urllib.parse.unquote(peer).partition(":")
    return rest if kind in ("ipv4", "ipv6") else ""


def limited_address(peer: str) -> str:
    """Whom the limits count, see `address.limited`; the kind of connection where it has no IP address."""
    try:
        return limited(_host(peer))
    except ValueError:
        return peer.partition(":")[0]


def _host(peer: str) -> str:
    return observed_address(peer).rpartition(":")[0].strip("[]")


def _rooms(config: RendezvousConfig, now: float) -> Rooms:
    """Who had a mailbox here before a restart is known again by the key that goes with the certificate."""
    key = key_from(config.key_pair.key_pem) if config.key_pair else secrets.token_bytes(32)
    run = 1 + secrets.randbelow((1 << 32 - RUN_BITS) - 1)
    return Rooms(config.limits, Secrets(key), run=run, recall_until=now + config.limits.idle_ttl_s)


def _datagrams(config: RendezvousConfig, sockets: Sockets, tokens: Tokens) -> Datagrams:
    """STUN and relay on the sockets."""
    limits = config.limits
    pace = Pace(
        per_s=limits.udp_requests_per_address_and_s,
        burst=limits.udp_requests_per_address_at_once,
        salt=secrets.token_bytes(16),
    )
    addresses = range(1 if config.alternate is None else 2)
    stun = Stun(
        addresses=[address_of(sockets, SocketPlace(address, 0))[0] for address in addresses],
        ports=[address_of(sockets, SocketPlace(0, port))[1] for port in (0, 1)],
        pace=pace,
    )
    relay = Relay(tokens=tokens, limits=limits, pace=pace, entropy=secrets.token_bytes)
    return Datagrams(sockets, stun=stun, relay=relay, limits=limits)


def _udp_place(config: RendezvousConfig, sockets: Sockets) -> pb.UdpPlace:
    """What members are told; with one address the one that they know is right, also behind a forwarded port."""
    (host, port), (_, alternate_port) = (address_of(sockets, SocketPlace(0, port)) for port in (0, 1))
    if config.alternate is None:
        return pb.UdpPlace(port=port, alternate_port=alternate_port)
    alternate_host = address_of(sockets, SocketPlace(1, 0))[0]
    return pb.UdpPlace(host=host, port=port, alternate_port=alternate_port, alternate_host=alternate_host)


def _bind(server: grpc.aio.Server, config: RendezvousConfig) -> int:
    host = f"[{config.host}]" if ":" in config.host else config.host
    target = f"{host}:{config.port}"
    try:
        if config.key_pair is None:
            port = server.add_insecure_port(target)
        else:
            pair = (config.key_pair.key_pem, config.key_pair.certificate_pem)
            port = server.add_secure_port(target, grpc.ssl_server_credentials([pair]))
    except RuntimeError as error:
        raise CannotServe(f"can't listen on {target}: is the port taken, or the address another machine's?") from error
    return int(port)


def _options(limits: RendezvousLimits) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake
        ("grpc.max_receive_message_length", limits.body_bytes + FRAMING_BYTES),
        ("grpc.max_concurrent_streams", 64),  # a connection
        ("grpc.keepalive_time_ms", 10_000),  # a vanished member is noticed within 15 s
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ]
