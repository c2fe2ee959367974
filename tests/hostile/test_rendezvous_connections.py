"""Connections that take places, and say nothing, little, or too much."""

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafila_rendezvous.certificate import make_key_pair
from kafila_rendezvous.config import RendezvousConfig, RendezvousLimits
from kafila_rendezvous.errors import LimitReached
from kafila_rendezvous.front.door import Door
from kafila_rendezvous.pace import Pace
from kafila_rendezvous.server import serve
from kafila_sidecar.machine.embedding.rendezvous_process import RendezvousProcess
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.attendance import RendezvousBack, RoomGone, sightings
from kafila_sidecar.session.rendezvous.mailbox import open_room
from tests.hostile.rendezvous_world import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    GREETING,
    HEADERS,
    HOST,
    PING,
    RST_STREAM,
    SETTINGS,
    Target,
    call_headers,
    connections,
    field,
    frame,
    is_served,
    message,
    room_for_descriptors,
    still_open,
    target,
    until,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and all of 127.0.0.0/8")
MIB = 1 << 20


async def test_silent_connections_when_2100_come_from_one_address_then_others_are_served(tmp_path: Path) -> None:
    room_for_descriptors()
    with target(tmp_path) as attacked:
        before = attacked.descriptors()
        with connections(attacked.port, 2100) as opened:
            await asyncio.to_thread(still_open, opened)
            assert await is_served(attacked.port)
            assert attacked.descriptors() < 1024
            assert await until(lambda: still_open(opened) == 0, 8)
        assert await until(lambda: attacked.descriptors() <= before + 3, 5)


async def test_silent_connections_when_they_come_from_forty_addresses_then_others_are_served(tmp_path: Path) -> None:
    room_for_descriptors()
    with target(tmp_path) as attacked, contextlib.ExitStack() as stack:
        for number in range(40):
            stack.enter_context(connections(attacked.port, 50, f"127.0.8.{number + 1}"))
        assert await is_served(attacked.port)
        assert attacked.descriptors() < 1024


@pytest.mark.parametrize(
    "said", [b"", b"\x16\x03\x01", None], ids=["silent", "half a greeting", "TLS and nothing more"]
)
async def test_connection_when_it_never_calls_then_it_ends(said: bytes | None) -> None:
    limits = RendezvousLimits(first_bytes_s=0.2, first_call_s=0.5)
    async with serve(RendezvousConfig(port=0, key_pair=make_key_pair(), limits=limits)) as serving:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection(HOST, serving.port, ssl=None if said is not None else context)
        writer.write(GREETING if said is None else said)
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                while await reader.read(65536):
                    pass
        writer.transport.abort()


async def test_connection_when_it_answers_pings_and_calls_no_more_then_it_ends() -> None:
    limits = RendezvousLimits(idle_connection_s=1.0)
    async with serve(RendezvousConfig(port=0, limits=limits)) as serving:
        reader, writer = await asyncio.open_connection(HOST, serving.port)
        writer.write(GREETING + frame(HEADERS, END_HEADERS, 1, call_headers("Greet")))
        writer.write(frame(0, END_STREAM, 1, message(b"\x08\x01")))
        async with asyncio.timeout(8):
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    head = await reader.readexactly(9)
                    payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                    if head[3] in (PING, SETTINGS) and not head[4] & ACK:
                        writer.write(frame(head[3], ACK, 0, payload if head[3] == PING else b""))
        writer.transport.abort()


def door(most: int = 100, **limits: float) -> Door:
    def pace() -> Pace:
        return Pace(per_s=1000.0, burst=10_000, salt=b"")

    return Door(RendezvousLimits(**limits), most=most, entries=pace(), calls=pace())  # type: ignore[arg-type]


def test_door_when_one_network_takes_what_it_can_then_the_rest_is_for_others() -> None:
    entrance = door(most=800, connections_per_address=10)
    for block in range(64):
        for _ in range(20):
            with contextlib.suppress(LimitReached):
                entrance.enter(f"2001:db8:1:{block:x}00::1", 0.0)
    assert len(entrance) == 40
    entrance.enter("2001:db8:2::1", 0.0)


def test_door_when_many_begin_at_once_then_an_address_may_begin_one() -> None:
    entrance = door(most=800, strangers_at_once=32, strangers_per_address=1)
    begun = [entrance.enter("198.51.100.1", 0.0) for _ in range(32)]
    with pytest.raises(LimitReached, match="in a moment"):
        entrance.enter("198.51.100.1", 0.0)
    honest = entrance.enter("192.0.2.1", 0.0)
    entrance.called(honest, 0, 0.1)
    entrance.enter("192.0.2.1", 0.2)
    entrance.called(begun[0], 0, 0.3)
    entrance.leave(begun[1])
    entrance.enter("198.51.100.1", 0.4)


def test_door_when_hardly_a_place_is_left_then_who_attends_nothing_goes_first() -> None:
    entrance = door(most=16)
    member = entrance.enter("192.0.2.1", 0.0)
    entrance.attends(member, 1)
    idle = [entrance.enter(f"192.0.2.{number}", 1.0) for number in range(2, 13)]
    assert entrance.dispensable() is idle[0]
    entrance.leave(idle[0])
    assert entrance.dispensable() is None


def test_door_when_visitors_owe_bytes_that_no_call_took_then_the_largest_debtor_ends_and_all_stays_bounded() -> None:
    entrance = door(owed_bytes_per_connection=1000, owed_bytes_in_all=5000, send_deadline_s=20.0)
    visitors = [entrance.enter(f"192.0.2.{number}", 0.0) for number in range(20)]
    assert entrance.heard(visitors[0], 1000, 0.0)
    assert not entrance.heard(visitors[0], 1, 0.0)
    for visitor in visitors[1:5]:
        assert entrance.overdrawn() is None
        entrance.heard(visitor, 1000, 0.0)
    assert entrance.overdrawn() is visitors[0]
    assert visitors[0] in entrance.overdue(20.1)
    entrance.took(visitors[0], 500)
    assert entrance.overdrawn() is None


HOW_MUCH = 2000
BOMBS = {
    "pings": frame(PING, 0, 0, bytes(8)) * HOW_MUCH,
    "settings": frame(SETTINGS, 0, 0) * HOW_MUCH,
    "headers without end": frame(HEADERS, 0, 1, call_headers("Greet"))
    + frame(CONTINUATION, 0, 1, field(b"x", bytes(100)) * 100) * HOW_MUCH,
    # RFC 7541 section 6.2.1: one entry of 3,000 bytes for the table, and then a byte for each time it comes again
    "a table entry again and again": frame(
        HEADERS, END_HEADERS, 1, call_headers("Greet") + b"\x40\x01x\x7f\xb9\x16" + bytes(3000) + b"\xbe" * 12_000
    )
    * 50,
    "calls that are taken back": b"".join(
        frame(HEADERS, END_HEADERS, stream, call_headers("Greet")) + frame(RST_STREAM, 0, stream, bytes(4))
        for stream in range(1, 2 * HOW_MUCH, 2)
    ),
    "messages without end": b"".join(
        frame(HEADERS, END_HEADERS, stream, call_headers("Post")) + frame(0, 0, stream, message(bytes(9000))[:-1])
        for stream in range(1, 2 * HOW_MUCH, 2)
    ),
}


@pytest.fixture(scope="module")
def bombed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("bombed"), descriptors=4096) as attacked:
        yield attacked


@pytest.mark.parametrize("name", BOMBS)
async def test_frames_when_they_come_in_floods_then_others_are_served_and_memory_is_bounded(
    name: str, bombed: Target
) -> None:
    before = bombed.resident_bytes()

    def throw(number: int) -> None:
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind((f"127.0.7.{number}", 0))
            sock.settimeout(1)
            sock.connect((HOST, bombed.port))
            for _ in range(3):
                sock.sendall(GREETING + BOMBS[name])

    throwing = [asyncio.create_task(asyncio.to_thread(throw, number)) for number in range(1, 9)]
    assert await is_served(bombed.port)
    await asyncio.wait(throwing)
    assert await is_served(bombed.port)
    assert bombed.resident_bytes() - before < 48 * MIB


async def test_embedded_when_2100_connections_come_or_it_is_killed_then_the_sidecar_and_its_session_go_on(
    tmp_path: Path,
) -> None:
    room_for_descriptors()
    process = RendezvousProcess(tmp_path / "rendezvous")
    served = await process.start()
    try:
        own = len(os.listdir("/proc/self/fd"))
        postbox = await open_room(RendezvousAddress(HOST, served.port, served.fingerprint))
        with connections(served.port, 2100):
            assert len(os.listdir("/proc/self/fd")) - own < 2100 + 50  # the attacker's, which is here too
            await postbox.post([postbox.place.mailbox + 1], b"still there")
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            async for seen in sightings(postbox):
                assert not isinstance(seen, RoomGone)
                if isinstance(seen, RendezvousBack):
                    break
        await postbox.aclose()
    finally:
        await process.stop()


PARENT = """
import asyncio, sys
from pathlib import Path
from kafila_sidecar.machine.embedding.rendezvous_process import RendezvousProcess

async def main():
    process = RendezvousProcess(Path(sys.argv[1]))
    await process.start()
    print(process.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_embedded_when_its_sidecar_is_killed_then_it_ends_too(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path / "r"), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    parent.kill()
    await parent.wait()
    assert await until(lambda: not Path(f"/proc/{child}").exists() or _is_zombie(child), 10)


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
