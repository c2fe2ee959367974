"""The floods of `abuse.py`, each a process that goes on until it is killed, bounded in number.

python -m bench.abuse_floods NAME PORT UDP_PORT FOLDER
"""

import asyncio
import contextlib
import itertools
import random
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from kafila_proto import rendezvous_pb2 as pb
from kafila_rendezvous.certificate import KeyPair, keep_key_pair
from tests.hostile.rendezvous_world import (
    GREETING,
    HEADERS,
    HOST,
    PING,
    call_headers,
    coming_from,
    frame,
    message,
    room_for_descriptors,
    stub_of,
    tls_channel,
)
from tests.rendezvous.relay_world import TokenHolder

LONGEST_S = 60.0
LARGE = bytes(256 * 1024)


@dataclass(frozen=True)
class FloodTarget:
    port: int
    udp_port: int
    pair: KeyPair

    @asynccontextmanager
    async def channel(self, host: str) -> AsyncIterator[grpc.aio.Channel]:
        async with coming_from(host, self.port) as port, tls_channel(port, self.pair) as connection:
            yield connection


def addresses(number: int) -> list[str]:
    return [f"127.2.{n // 250}.{1 + n % 250}" for n in range(number)]


async def silent(place: FloodTarget, hosts: Iterable[str], each: int) -> None:
    """TCP connections that say nothing, opened again when they were ended, 400 a second."""
    with contextlib.ExitStack() as stack:
        for host in itertools.cycle(hosts):
            for _ in range(min(each, 20)):
                sock = stack.enter_context(socket.socket())
                sock.setblocking(False)
                sock.bind((host, 0))
                with contextlib.suppress(OSError):
                    await asyncio.wait_for(asyncio.get_running_loop().sock_connect(sock, (HOST, place.port)), 1)
            await asyncio.sleep(0.05)


async def idle_tls(place: FloodTarget, hosts: list[str], each: int) -> None:
    """TLS connections that greet once, and then answer pings and call nothing."""
    waiting = []
    for host in hosts:
        for _ in range(each):
            with contextlib.suppress(OSError, TimeoutError):
                reader, writer = await _dial(place, host)
                writer.write(GREETING + frame(HEADERS, 4, 1, call_headers("Greet")))
                writer.write(frame(0, 1, 1, message(b"\x08\x01")))
                waiting.append(asyncio.create_task(_answer(reader, writer)))
    await asyncio.wait(waiting)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == PING and not head[4] & 1:
                writer.write(frame(PING, 1, 0, payload))
            elif head[3] == 4 and not head[4] & 1:
                writer.write(frame(4, 1, 0))


async def pings(place: FloodTarget, hosts: list[str]) -> None:
    """PING frames as fast as they go, over connections that are opened again."""

    async def flood(host: str) -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                _, writer = await _dial(place, host)
                writer.write(GREETING)
                for _ in range(100):
                    writer.write(frame(PING, 0, 0, bytes(8)) * 500)
                    await asyncio.wait_for(writer.drain(), 1)
                writer.transport.abort()
            await asyncio.sleep(0.05)

    await asyncio.gather(*(flood(host) for host in hosts))


async def unread(place: FloodTarget, hosts: list[str]) -> None:
    """Mailboxes that are filled, and attended by streams that nobody reads."""

    async def fill(host: str) -> None:
        async with place.channel(host) as connection:
            stub = stub_of(connection)
            streams: list[grpc.aio.UnaryStreamCall] = []
            room = await stub.Create(pb.CreateRequest(protocol=1))
            other = await stub.Join(pb.JoinRequest(protocol=1, room=room.room))
            post = pb.PostRequest(room=room.room, mailbox=1, secret=room.secret, to=[other.mailbox], body=LARGE)
            attend = pb.AttendRequest(room=room.room, mailbox=other.mailbox, secret=other.secret)
            while len(streams) < 60:
                for _ in range(16):
                    await stub.Post(post, timeout=5)
                streams.append(stub.Attend(attend))
                await asyncio.sleep(0.2)

    await _again(fill, hosts)


async def mail(place: FloodTarget, hosts: list[str]) -> None:
    """The largest body to all of a full room, again and again."""

    async def post(host: str) -> None:
        async with place.channel(host) as connection:
            stub = stub_of(connection)
            room = await stub.Create(pb.CreateRequest(protocol=1))
            to = [(await stub.Join(pb.JoinRequest(protocol=1, room=room.room))).mailbox for _ in range(100)]
            request = pb.PostRequest(room=room.room, mailbox=1, secret=room.secret, to=to, body=LARGE)
            while True:
                await stub.Post(request, timeout=5)
                await asyncio.sleep(0.1)

    await _again(post, hosts)


async def rooms(place: FloodTarget, hosts: list[str]) -> None:
    """As many rooms as each address gets."""

    async def create(host: str) -> None:
        async with place.channel(host) as connection:
            while True:
                await stub_of(connection).Create(pb.CreateRequest(protocol=1))

    await _again(create, hosts)


async def garbage(place: FloodTarget) -> None:
    """Datagrams of every kind that mean nothing, some 20,000 a second."""
    chance = random.Random(1)
    said = [chance.randbytes(chance.choice((1, 20, 90, 1200))) for _ in range(200)]
    said += [bytes([kind]) + chance.randbytes(89) for kind in (0, 1, 8, 9) for _ in range(50)]
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(50)]
        for sock, host in zip(socks, addresses(50), strict=True):
            sock.bind((host, 0))
        while True:
            for sock in socks:
                for datagram in chance.choices(said, k=4):
                    with contextlib.suppress(OSError):
                        sock.sendto(datagram, (HOST, place.udp_port))
            await asyncio.sleep(0.01)


async def relay(place: FloodTarget) -> None:
    """One channel, both ends the stranger's, as much as goes: some 20,000 datagrams a second."""
    async with place.channel("127.2.0.1") as connection:
        stub = stub_of(connection)
        room = await stub.Create(pb.CreateRequest(protocol=1))
        guest = await stub.Join(pb.JoinRequest(protocol=1, room=room.room))
        tokens = []
        for mailbox, secret, peer in ((1, room.secret, guest.mailbox), (guest.mailbox, guest.secret, 1)):
            asked = pb.RelayRequest(room=room.room, mailbox=mailbox, secret=secret, peer=peer)
            reply = await stub.Relay(asked)
            tokens.append(TokenHolder(reply.token, reply.key))
        async with bound_pair(place.udp_port, tokens, "127.2.0.1") as (here, there, number):
            while True:
                for sock in (here, there):
                    for _ in range(100):
                        with contextlib.suppress(OSError):
                            sock.sendto(b"\x08" + number + bytes(1200), (HOST, place.udp_port))
                await asyncio.sleep(0.01)


@asynccontextmanager
async def bound_pair(
    udp_port: int, tokens: list[TokenHolder], host: str
) -> AsyncIterator[tuple[socket.socket, socket.socket, bytes]]:
    """Two sockets that hold the ends of one channel, and its number."""
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        socks = []
        for token in tokens:
            sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sock.setblocking(False)
            sock.bind((host, 0))
            socks.append(sock)
            answer = b""
            for cookie in (lambda _: bytes(16), lambda said: said[9:]):
                await loop.sock_sendto(sock, token.request(cookie(answer)), (HOST, udp_port))
                answer = await asyncio.wait_for(loop.sock_recv(sock, 2048), 1)
        yield socks[0], socks[1], answer[9:13]


async def _again(what: Callable[[str], Awaitable[None]], hosts: list[str]) -> None:
    """From each address, from the start when it was refused."""

    async def keep(host: str) -> None:
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError):
                await what(host)
            await asyncio.sleep(0.2)

    await asyncio.gather(*(keep(host) for host in hosts))


async def _dial(place: FloodTarget, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """TLS from that address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    async with asyncio.timeout(3):
        return await asyncio.open_connection(HOST, place.port, ssl=context, local_addr=(host, 0))


FLOODS: dict[str, Callable[[FloodTarget], Awaitable[None]]] = {
    "silent one": lambda place: silent(place, addresses(1), 2100),
    "silent many": lambda place: silent(place, addresses(200), 20),
    "idle TLS one": lambda place: idle_tls(place, addresses(1), 1000),
    "idle TLS many": lambda place: idle_tls(place, addresses(100), 10),
    "unread one": lambda place: unread(place, addresses(1)),
    "unread many": lambda place: unread(place, addresses(20)),
    "mail one": lambda place: mail(place, addresses(1)),
    "mail many": lambda place: mail(place, addresses(20)),
    "rooms one": lambda place: rooms(place, addresses(1)),
    "rooms many": lambda place: rooms(place, addresses(200)),
    "garbage UDP": garbage,
    "relay": relay,
    "pings one": lambda place: pings(place, addresses(1)),
    "pings many": lambda place: pings(place, addresses(20)),
}


async def _run(name: str, place: FloodTarget) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(FLOODS[name](place), LONGEST_S)


if __name__ == "__main__":
    room_for_descriptors()
    asyncio.run(_run(sys.argv[1], FloodTarget(int(sys.argv[2]), int(sys.argv[3]), keep_key_pair(Path(sys.argv[4])))))
