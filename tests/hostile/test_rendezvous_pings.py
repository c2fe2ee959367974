"""Pings: those of members that were starved, and those of a flood."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from grpc._cython import cygrpc

from kafila_rendezvous import pings
from kafila_rendezvous.config import RendezvousConfig, RendezvousLimits
from kafila_rendezvous.server import _options, serve
from kafila_sidecar.session.rendezvous.dial import _OPTIONS
from tests.hostile.rendezvous_world import ACK, GOAWAY, GREETING, HOST, PING, SETTINGS, frame, members, target


async def pinged(port: int, number: int, pause_s: float) -> tuple[int, bytes]:
    """How many pings of so many were answered by a server that has nothing else to say, and what it said at the end."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(GREETING)
    answered, goodbye = 0, b""
    try:
        async with asyncio.timeout(10):
            for _ in range(number):
                writer.write(frame(PING, 0, 0, bytes(8)))
                while True:
                    head = await reader.readexactly(9)
                    payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                    if head[3] == SETTINGS and not head[4] & ACK:
                        writer.write(frame(SETTINGS, ACK, 0))
                    elif head[3] == GOAWAY:
                        return answered, payload
                    elif head[3] == PING and head[4] & ACK:
                        break
                answered += 1
                await asyncio.sleep(pause_s)
    except (ConnectionError, asyncio.IncompleteReadError):
        goodbye = b"ended"
    finally:
        writer.transport.abort()
    return answered, goodbye


async def test_pings_when_they_keep_their_distance_then_there_may_be_any_number() -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        assert await pinged(serving.port, 3 * pings.MOST_HASTY, 1.1 * pings.LEAST_MS / 1000) == (24, b"")


async def test_pings_when_a_starved_member_sends_several_at_once_then_it_is_no_flood() -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        assert await pinged(serving.port, 6, 0.01) == (6, b"")


async def test_pings_when_they_are_a_flood_then_the_connection_ends() -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        answered, goodbye = await pinged(serving.port, 1000, 0.0)
        assert answered < 2 * pings.MOST_HASTY
        assert goodbye == b"ended" or b"too_many_pings" in goodbye


def test_settings_when_both_ends_have_them_then_they_agree() -> None:
    member, server = dict(pings.MEMBER_OPTIONS), dict(pings.SERVER_OPTIONS)
    assert member["grpc.keepalive_time_ms"] >= 5 * server["grpc.http2.min_ping_interval_without_data_ms"]
    assert member["grpc.http2.bdp_probe"] == 0  # pings for another reason, as often as data comes
    assert member["grpc.http2.max_pings_without_data"] == 0  # who only listens asks as well
    assert server["grpc.keepalive_permit_without_calls"] == 1
    for end in (member, server):
        assert end["grpc.keepalive_time_ms"] + end["grpc.keepalive_timeout_ms"] <= 15_000


@pytest.mark.skipif(sys.platform != "linux", reason="looks for names in a Linux library")
def test_settings_when_grpc_does_not_know_a_name_then_it_would_ignore_it() -> None:
    library = Path(cygrpc.__file__).read_bytes()
    for name, _ in (*_options(RendezvousLimits()), *_OPTIONS):
        assert name.encode() in library, name


@pytest.mark.skipif(sys.platform != "linux", reason="the attacked process is looked at by /proc")
async def test_member_when_the_server_stands_still_across_pings_then_its_stream_goes_on(tmp_path: Path) -> None:
    with target(tmp_path) as attacked:
        async with members(attacked.port) as (host, guest):
            for still_s in (0.4, 6.5):
                os.kill(attacked.pid, signal.SIGSTOP)
                await asyncio.sleep(still_s)
                os.kill(attacked.pid, signal.SIGCONT)
                assert await host.post([guest.mailbox], b"still there") == []
                assert await guest.mail() == b"still there"
