"""The sidecar's unix socket: only its user opens it, and what that user's programs throw at it holds up no call."""

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_proto import sidecar_pb2_grpc
from tests.hostile.rendezvous_world import (
    CONTINUATION,
    END_HEADERS,
    GREETING,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    call_headers,
    field,
    frame,
)

HOW_MUCH = 2000
BOMBS = {
    "pings": frame(PING, 0, 0, bytes(8)) * HOW_MUCH,
    "settings": frame(SETTINGS, 0, 0) * HOW_MUCH,
    "headers without end": frame(HEADERS, 0, 1, call_headers("Hello"))
    + frame(CONTINUATION, 0, 1, field(b"x", bytes(100)) * 100) * HOW_MUCH,
    "calls that are taken back": b"".join(
        frame(HEADERS, END_HEADERS, stream, call_headers("Hello")) + frame(RST_STREAM, 0, stream, bytes(4))
        for stream in range(1, 2 * HOW_MUCH, 2)
    ),
}


class SocketTarget:
    """A sidecar's process and its socket."""

    def __init__(self, process: "subprocess.Popen[str]", path: Path) -> None:
        self.process = process
        self.path = path

    async def answers(self) -> bool:
        async with grpc.aio.insecure_channel(f"unix:{self.path}") as channel:
            stub = sidecar_pb2_grpc.SidecarStub(channel)  # type: ignore[no-untyped-call]
            return isinstance(await stub.ListSessions(pb.ListSessionsRequest(), timeout=20), pb.ListSessionsReply)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketTarget]:
    folder = tmp_path_factory.mktemp("socket")
    path = folder / "run" / "s"
    process = subprocess.Popen(
        [sys.executable, "-m", "kafila_sidecar", "--socket", str(path), "--data", str(folder / "data")],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        while "sidecar_ready" not in process.stderr.readline():
            assert process.poll() is None
        yield SocketTarget(process, path)
    finally:
        process.kill()
        process.communicate()


def test_socket_when_the_sidecar_serves_then_only_its_user_can_open_it(served: SocketTarget) -> None:
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(served.path.parent.stat().st_mode) == 0o700
    assert served.path.stat().st_uid == os.getuid()


@pytest.mark.parametrize("name", BOMBS)
async def test_frames_when_they_come_in_floods_then_calls_are_answered(name: str, served: SocketTarget) -> None:
    def throw() -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(1)
            sock.connect(str(served.path))
            for _ in range(10):
                sock.sendall(GREETING + BOMBS[name])

    throwing = [asyncio.create_task(asyncio.to_thread(throw)) for _ in range(4)]
    assert await served.answers()
    await asyncio.wait(throwing)
    assert await served.answers()


async def test_connections_when_three_hundred_say_nothing_then_calls_are_answered(served: SocketTarget) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.connect(str(served.path))
        assert await served.answers()
    assert await served.answers()
