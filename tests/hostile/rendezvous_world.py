"""A rendezvous in a process of its own, what strangers throw at it byte by byte, and an honest session beside them."""

import asyncio
import contextlib
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import rendezvous_pb2_grpc as pb_grpc
from kafila_rendezvous.certificate import SERVER_NAME, KeyPair
from kafila_rendezvous.pings import MEMBER_OPTIONS

HOST = "127.0.0.1"
STRANGER = "127.0.9.1"  # on Linux all of 127.0.0.0/8 is this machine
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # RFC 9113 section 3.4, no settings
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4


@dataclass(frozen=True)
class Target:
    """The attacked process."""

    pid: int
    port: int
    udp_port: int

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize()


@contextmanager
def target(folder: Path, *, descriptors: int = 1024, tls: bool = False, host: str = HOST) -> Iterator[Target]:
    """`kafila-rendezvous` with so many descriptors, which it can't raise."""
    kind = ["--data", str(folder)] if tls else ["--insecure"]
    command = [sys.executable, "-m", "kafila_rendezvous", "--listen", f"{host}:0", *kind]
    process = subprocess.Popen(
        ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        while "UDP ports" not in said:
            said += (line := process.stdout.readline())
            assert line, "it did not start"
        port, udp = re.findall(r"TCP port (\d+) and UDP ports (\d+)", said)[0]
        yield Target(process.pid, int(port), int(udp))
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


def room_for_descriptors() -> None:
    """An attacker has as many as it likes."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def connections(port: int, number: int, host: str = STRANGER) -> Iterator[list[socket.socket]]:
    """So many TCP connections from one address; those that are refused count."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(number):
            sock = stack.enter_context(socket.socket())
            sock.bind((host, 0))
            with contextlib.suppress(OSError):
                sock.connect((HOST, port))
                opened.append(sock)
        yield opened


def still_open(socks: list[socket.socket]) -> int:
    """How many the other side has not ended."""
    number = 0
    for sock in socks:
        sock.setblocking(False)
        try:
            while sock.recv(65536):
                pass
        except BlockingIOError:
            number += 1
        except OSError:
            continue
    return number


async def until(condition: Callable[[], bool], deadline_s: float) -> bool:
    """Whether it came to be so in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.05)
    return True


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """RFC 9113 section 4.1."""
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def field(name: bytes, value: bytes) -> bytes:
    """A header that no table keeps, RFC 7541 section 6.2.2; both shorter than 127 bytes."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call_headers(method: str) -> bytes:
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": f"/kafila.rendezvous.v1.Rendezvous/{method}".encode(),
        b":authority": b"rendezvous",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    return b"".join(field(name, value) for name, value in fields.items())


def message(body: bytes) -> bytes:
    """As gRPC frames it."""
    return struct.pack("!BI", 0, len(body)) + body


def channel(port: int, host: str = HOST) -> grpc.aio.Channel:
    """As a member's, from an address of this machine."""
    options = [*MEMBER_OPTIONS, ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    return grpc.aio.insecure_channel(f"{host}:{port}", options=options)


@asynccontextmanager
async def coming_from(host: str, port: int) -> AsyncIterator[int]:
    """A port here whose connections reach `port` from `host`: gRPC can't choose the address that it calls from."""
    passing: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(HOST, port, local_addr=(host, 0))
        except OSError:
            writer.transport.abort()
            return
        for source, target in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(_pass_on(source, target))
            passing.add(task)
            task.add_done_callback(passing.discard)

    async with await asyncio.start_server(accept, HOST, 0) as server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            for task in passing:
                task.cancel()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        with contextlib.suppress(OSError):
            while chunk := await source.read(65536):
                target.write(chunk)
                await target.drain()
    finally:
        target.transport.abort()


def tls_channel(port: int, pair: KeyPair) -> grpc.aio.Channel:
    """The same with TLS; the certificate is trusted as a member would who has its fingerprint."""
    options = [("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.use_local_subchannel_pool", 1), *MEMBER_OPTIONS]
    return grpc.aio.secure_channel(
        f"{HOST}:{port}", grpc.ssl_channel_credentials(pair.certificate_pem), options=options
    )


def stub_of(connection: grpc.aio.Channel) -> pb_grpc.RendezvousStub:
    return pb_grpc.RendezvousStub(connection)  # type: ignore[no-untyped-call]


@dataclass
class HonestMember:
    stub: pb_grpc.RendezvousStub
    room: int
    mailbox: int
    secret: bytes
    stream: grpc.aio.UnaryStreamCall

    async def post(self, to: list[int], body: bytes) -> list[int]:
        request = pb.PostRequest(room=self.room, mailbox=self.mailbox, secret=self.secret, to=to, body=body)
        reply: pb.PostReply = await self.stub.Post(request, timeout=5)
        return list(reply.missed)

    async def mail(self) -> bytes:
        """The next mail, past other news."""
        async with asyncio.timeout(5):
            while True:
                event = await self.stream.read()
                assert isinstance(event, pb.Event), event
                if event.WhichOneof("event") == "mail":
                    return event.mail.body


@asynccontextmanager
async def members(port: int, number: int = 2) -> AsyncIterator[list[HonestMember]]:
    """An honest session: one opens a room, the others join, all attend, each over its own connection."""
    async with contextlib.AsyncExitStack() as stack:
        found: list[HonestMember] = []
        for _ in range(number):
            stub = stub_of(await stack.enter_async_context(channel(port)))
            if not found:
                made = await stub.Create(pb.CreateRequest(protocol=1), timeout=5)
                room, mailbox, secret = made.room, made.mailbox, made.secret
            else:
                joined = await stub.Join(pb.JoinRequest(protocol=1, room=found[0].room), timeout=5)
                room, mailbox, secret = found[0].room, joined.mailbox, joined.secret
            stream = stub.Attend(pb.AttendRequest(room=room, mailbox=mailbox, secret=secret))
            async with asyncio.timeout(5):
                await stream.read()
            found.append(HonestMember(stub, room, mailbox, secret, stream))
        yield found


async def is_served(port: int) -> bool:
    """Whether strangers to the attack can open a room, join it and exchange mail."""
    async with members(port) as (host, guest):
        assert await host.post([guest.mailbox], b"hello") == []
        return await guest.mail() == b"hello"
