"""Builds a server of its parts and runs it: the front, gRPC behind it, rooms, and datagrams beside them."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import rendezvous_pb2_grpc as pb_grpc
from kafila_rendezvous.config import RendezvousConfig, RendezvousLimits
from kafila_rendezvous.errors import CannotServe
from kafila_rendezvous.front.door import Door
from kafila_rendezvous.front.front import Front
from kafila_rendezvous.front.listening import listen, most_connections
from kafila_rendezvous.notes import Notes
from kafila_rendezvous.numbers import Holds, told
from kafila_rendezvous.pace import Pace
from kafila_rendezvous.pings import SERVER_OPTIONS
from kafila_rendezvous.rooms.room import RUN_BITS, Rooms
from kafila_rendezvous.rooms.secret import Secrets, key_from
from kafila_rendezvous.servicer import Servicer
from kafila_rendezvous.udp.datagrams import Datagrams, Sockets, address_of, open_sockets
from kafila_rendezvous.udp.relay import Relay
from kafila_rendezvous.udp.stun import SocketPlace, Stun
from kafila_rendezvous.udp.token import Tokens

logger = logging.getLogger(__name__)

STOP_GRACE_S = 0.2
MOST_CALLS = 50_000  # at once, attended mailboxes included
CALLS_PER_CONNECTION = 64  # at once
FRAMING_BYTES = 4096  # what a request holds beside its body
HEADER_BYTES = 8 * 1024  # of a call; ours have some 300
HANDSHAKE_S = 10


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that runs; the fingerprint is None without TLS."""

    port: int
    fingerprint: str | None
    udp_ports: tuple[int, int]
    metrics_port: int | None = None


@asynccontextmanager
async def serve(config: RendezvousConfig) -> AsyncIterator[Serving]:
    """Serves until the block is left. Raises CannotServe when it can't listen."""
    async with AsyncExitStack() as stack:
        most = most_connections()
        listeners = listen(config.host, config.port)
        door = _door(config.limits, most)
        front = Front(listeners, door)
        stack.callback(front.close)
        port = listeners[0].getsockname()[1]
        sockets = open_sockets(config, port)
        tokens = _tokens(config.limits)
        relay, pace = _relay(config.limits, tokens)
        datagrams = _datagrams(config, sockets, relay, pace)
        stack.callback(datagrams.close)
        rooms, notes = _rooms(config)
        servicer = Servicer(
            config.limits,
            front=front,
            rooms=rooms,
            notes=notes,
            tokens=tokens,
            datagrams=datagrams,
            udp=_udp_place(config, sockets),
        )
        stack.callback(servicer.close)
        server = grpc.aio.server(options=_options(config.limits), maximum_concurrent_rpcs=MOST_CALLS)
        pb_grpc.add_RendezvousServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
        _bind(server, config, f"unix:{front.inner}")
        numbers = None
        if config.metrics_port is not None:
            numbers = stack.enter_context(told(config.metrics_port, lambda: _holds(door, rooms, relay)))
        await server.start()
        front.open()
        logger.info("rendezvous_serving tls=%s most_connections=%d", config.key_pair is not None, most)
        try:
            udp_ports = (address_of(sockets, SocketPlace(0, 0))[1], address_of(sockets, SocketPlace(0, 1))[1])
            fingerprint = config.key_pair.fingerprint if config.key_pair else None
            yield Serving(port, fingerprint, udp_ports, numbers)
        finally:
            front.shut()
            servicer.end_streams()
            await server.stop(STOP_GRACE_S)
            logger.info("rendezvous_stopped")


def _door(limits: RendezvousLimits, most: int) -> Door:
    entries = Pace(
        per_s=limits.connections_per_address_and_s,
        burst=limits.connections_per_address_at_once,
        salt=secrets.token_bytes(16),
    )
    calls = Pace(
        per_s=limits.calls_per_address_and_s, burst=limits.calls_per_address_at_once, salt=secrets.token_bytes(16)
    )
    return Door(limits, most=most, entries=entries, calls=calls)


def _holds(door: Door, rooms: Rooms, relay: Relay) -> Holds:
    return Holds(
        connections=len(door),
        rooms=len(rooms),
        mailboxes=rooms.mailboxes,
        queued_bytes=rooms.queued_bytes,
        relay_channels=len(relay),
        relay_bytes=relay.carried_bytes,
        relay_dropped=relay.dropped,
    )


def _rooms(config: RendezvousConfig) -> tuple[Rooms, Notes | None]:
    """Who had a mailbox here before a restart is known again by the key that goes with the certificate."""
    limits = config.limits
    notes, now = None, asyncio.get_running_loop().time()
    if config.notes and config.key_pair:
        notes = Notes(config.notes, most=limits.mailboxes, most_resting=limits.resting_rooms)
    rooms = Rooms(
        limits,
        Secrets(key_from(config.key_pair.key_pem) if config.key_pair else secrets.token_bytes(32)),
        series=config.series,
        run=1 + secrets.randbelow((1 << 32 - RUN_BITS) - 1),
        recall_until=now + limits.idle_ttl_s,
        living=notes.before if notes else (),
        resting=notes.resting(limits.rest_ttl_s) if notes else (),
        now=now,
    )
    return rooms, notes


def _tokens(limits: RendezvousLimits) -> Tokens:
    return Tokens(secret=secrets.token_bytes(32), ttl_s=limits.relay_token_ttl_s, bytes_per_s=limits.relay_bytes_per_s)


def _relay(limits: RendezvousLimits, tokens: Tokens) -> tuple[Relay, Pace]:
    """With the pace that STUN keeps too."""
    pace = Pace(
        per_s=limits.udp_requests_per_address_and_s,
        burst=limits.udp_requests_per_address_at_once,
        salt=secrets.token_bytes(16),
    )
    return Relay(tokens=tokens, limits=limits, pace=pace, entropy=secrets.token_bytes), pace


def _datagrams(config: RendezvousConfig, sockets: Sockets, relay: Relay, pace: Pace) -> Datagrams:
    """STUN and relay on the sockets."""
    addresses = range(1 if config.alternate is None else 2)
    stun = Stun(
        addresses=[address_of(sockets, SocketPlace(address, 0))[0] for address in addresses],
        ports=[address_of(sockets, SocketPlace(0, port))[1] for port in (0, 1)],
        pace=pace,
    )
    return Datagrams(sockets, stun=stun, relay=relay, limits=config.limits)


def _udp_place(config: RendezvousConfig, sockets: Sockets) -> pb.UdpPlace:
    """What members are told; with one address the one that they know is right, also behind a forwarded port."""
    (host, port), (_, alternate_port) = (address_of(sockets, SocketPlace(0, port)) for port in (0, 1))
    if config.alternate is None:
        return pb.UdpPlace(port=port, alternate_port=alternate_port)
    alternate_host = address_of(sockets, SocketPlace(1, 0))[0]
    return pb.UdpPlace(host=host, port=port, alternate_port=alternate_port, alternate_host=alternate_host)


def _bind(server: grpc.aio.Server, config: RendezvousConfig, target: str) -> None:
    """gRPC listens behind the front only."""
    try:
        if config.key_pair is None:
            server.add_insecure_port(target)
        else:
            pair = (config.key_pair.key_pem, config.key_pair.certificate_pem)
            server.add_secure_port(target, grpc.ssl_server_credentials([pair]))
    except RuntimeError as error:
        raise CannotServe(f"can't listen on {target}: can this user write there?") from error


def _options(limits: RendezvousLimits) -> list[tuple[str, int]]:
    return [
        *SERVER_OPTIONS,
        ("grpc.max_receive_message_length", limits.body_bytes + FRAMING_BYTES),
        ("grpc.max_concurrent_streams", CALLS_PER_CONNECTION),
        ("grpc.max_metadata_size", HEADER_BYTES),
        ("grpc.absolute_max_metadata_size", HEADER_BYTES),
        ("grpc.max_connection_idle_ms", int(limits.idle_connection_s * 1000)),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_S * 1000),
    ]
