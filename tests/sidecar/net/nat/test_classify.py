"""The classification over real sockets: against the rendezvous on loopback, and against Debian's coturn."""

import asyncio
import contextlib
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafila_planner.model.types import Filtering, Mapping
from kafila_rendezvous.config import RendezvousConfig
from kafila_rendezvous.server import serve
from kafila_sidecar.net.nat.behaviour import Nat, StunServer
from kafila_sidecar.net.nat.classify import SoleSocket, classify

TWO = ("127.0.0.1", "127.0.0.2")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has 127.0.0.2 without being told")


async def classified(*servers: StunServer) -> Nat:
    own = SoleSocket()
    try:
        return await asyncio.wait_for(classify(own, servers), 5)
    finally:
        own.close()


async def test_classify_when_the_rendezvous_has_one_address_then_open_as_far_as_it_can_see() -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        nat = await classified(StunServer("127.0.0.1", *serving.udp_ports))
    assert (nat.udp, nat.mapping, nat.mapping_is_assumed) == (True, Mapping.ENDPOINT_INDEPENDENT, True)
    assert (nat.filtering, nat.filtering_is_assumed) == (Filtering.ADDRESS_DEPENDENT, True)
    assert nat.is_translated is False
    assert nat.rtt_s is not None
    assert nat.rtt_s < 0.2


@needs_linux
async def test_classify_when_the_rendezvous_has_two_addresses_then_open_for_certain() -> None:
    async with serve(RendezvousConfig(host=TWO[0], port=0, alternate=TWO[1])) as serving:
        nat = await classified(StunServer(TWO[0], *serving.udp_ports, TWO[1]))
    assert (nat.mapping, nat.mapping_is_assumed) == (Mapping.ENDPOINT_INDEPENDENT, False)
    assert (nat.filtering, nat.filtering_is_assumed) == (Filtering.ENDPOINT_INDEPENDENT, False)


async def test_classify_when_nobody_answers_then_udp_is_taken_for_blocked() -> None:
    own = SoleSocket()  # whose port nobody answers at
    try:
        port = own.port
        nat = await classified(StunServer("127.0.0.1", port))
    finally:
        own.close()
    assert nat == Nat(udp=False, silent=(("127.0.0.1", port),))


async def said(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    return (await process.communicate())[0].decode()


@contextlib.asynccontextmanager
async def coturn(folder: Path, port: int) -> AsyncIterator[None]:
    """Debian's coturn, as a STUN server with two addresses and two ports."""
    program = shutil.which("turnserver")
    if program is None:
        pytest.skip("coturn is not installed: apt install coturn")
    arguments = ["-n", "--stun-only", "--no-tls", "--no-dtls", "--no-cli", "--log-file=stdout"]
    if "--rfc5780" in await said(program, "--help"):  # newer ones want to be asked
        arguments.append("--rfc5780")
    arguments += [f"--listening-ip={host}" for host in TWO]
    arguments += [f"--listening-port={port}", f"--alt-listening-port={port + 1}"]
    arguments += [f"--pidfile={folder / 'pid'}", f"--db={folder / 'db'}"]
    process = await asyncio.create_subprocess_exec(program, *arguments, stdout=asyncio.subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@needs_linux
async def test_classify_when_a_foreign_server_is_asked_then_it_serves_as_well(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with coturn(tmp_path, port):
        nat = Nat(udp=False)
        for _ in range(5):  # while it starts
            nat = await classified(StunServer(TWO[0], port))
            if nat.udp:
                break
    assert (nat.mapping, nat.mapping_is_assumed) == (Mapping.ENDPOINT_INDEPENDENT, False)
    assert (nat.filtering, nat.filtering_is_assumed) == (Filtering.ENDPOINT_INDEPENDENT, False)
