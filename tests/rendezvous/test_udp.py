"""The datagram driver on loopback: two addresses, two ports, and who learns of them."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from aioice.stun import parse_message

from kafila_proto import rendezvous_pb2 as pb
from kafila_rendezvous.config import RendezvousConfig, RendezvousLimits
from kafila_rendezvous.errors import CannotServe
from kafila_rendezvous.server import serve
from kafila_rendezvous.udp.stun import CHANGE_ADDRESS, CHANGE_PORT
from tests.rendezvous.stun_client import mapped, request
from tests.rendezvous.test_server import channel, stub_of


@contextlib.contextmanager
def caller(host: str = "127.0.0.1") -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind((host, 0))
        sock.setblocking(False)
        yield sock


async def ask(sock: socket.socket, to: tuple[str, int], datagram: bytes) -> tuple[bytes, tuple[str, int]]:
    loop = asyncio.get_running_loop()
    await loop.sock_sendto(sock, datagram, to)
    async with asyncio.timeout(2):
        answer, source = await loop.sock_recvfrom(sock, 2048)
    return answer, source[:2]


async def greeted(port: int) -> pb.GreetReply:
    async with channel(port) as connection:
        reply: pb.GreetReply = await stub_of(connection).Greet(pb.GreetRequest(protocol=1))
    return reply


async def test_stun_when_greeted_then_answers_at_both_ports_that_were_told() -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        udp = (await greeted(serving.port)).udp
        assert (udp.host, udp.alternate_host) == ("", "")
        assert udp.alternate_port == udp.port + 1
        assert serving.udp_ports == (udp.port, udp.alternate_port)
        with caller() as sock:
            for port in serving.udp_ports:
                answer, source = await ask(sock, ("127.0.0.1", port), request())
                assert source == ("127.0.0.1", port)
                assert mapped(answer) == sock.getsockname()


@pytest.mark.parametrize(
    ("change", "address", "port"),
    [(0, 0, 0), (CHANGE_PORT, 0, 1), (CHANGE_ADDRESS, 1, 0), (CHANGE_ADDRESS | CHANGE_PORT, 1, 1)],
)
async def test_stun_when_a_change_is_asked_of_two_addresses_then_it_comes_from_there(
    change: int, address: int, port: int
) -> None:
    hosts = ("127.0.0.1", "127.0.0.2")
    if sys.platform != "linux":
        pytest.skip("only Linux has the second loopback address without being told")
    async with serve(RendezvousConfig(host=hosts[0], port=0, alternate=hosts[1])) as serving:
        udp = (await greeted(serving.port)).udp
        assert (udp.host, udp.alternate_host) == hosts
        ports = (udp.port, udp.alternate_port)
        with caller() as sock:
            answer, source = await ask(sock, (hosts[0], ports[0]), request(change_request=change))
        assert source == (hosts[address], ports[port])
        assert parse_message(answer).attributes["OTHER-ADDRESS"] == (hosts[1], ports[1])


async def test_stun_when_the_socket_takes_both_families_then_ipv4_is_told_plainly() -> None:
    try:
        async with serve(RendezvousConfig(host="::", port=0)) as serving:
            for host in ("127.0.0.1", "::1"):
                with caller(host) as sock:
                    answer, _ = await ask(sock, (host, serving.udp_ports[0]), request())
                    assert mapped(answer) == sock.getsockname()[:2]
    except CannotServe:
        pytest.skip("no IPv6 here")


async def test_attend_when_it_starts_then_present_tells_the_udp_ports() -> None:
    async with serve(RendezvousConfig(port=0)) as serving, channel(serving.port) as mine:
        stub = stub_of(mine)
        room = await stub.Create(pb.CreateRequest(protocol=1))
        stream = stub.Attend(pb.AttendRequest(room=room.room, mailbox=room.mailbox, secret=room.secret))
        present = (await stream.read()).present
        assert (present.udp.port, present.udp.alternate_port) == serving.udp_ports


async def test_serve_when_the_udp_port_is_asked_for_then_it_has_that_and_the_next() -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        wanted = serving.udp_ports[0]
    async with serve(RendezvousConfig(port=0, udp_port=wanted)) as serving:
        assert serving.udp_ports == (wanted, wanted + 1)
        with pytest.raises(CannotServe, match=f"UDP ports {wanted} and"):
            async with serve(RendezvousConfig(port=0, udp_port=wanted)):
                pass


async def test_serve_when_a_second_address_has_no_first_then_cannot_serve() -> None:
    with pytest.raises(CannotServe, match="the first one too"):
        async with serve(RendezvousConfig(host="0.0.0.0", port=0, alternate="127.0.0.2")):
            pass


async def test_stun_when_the_server_listens_at_a_name_then_its_origin_is_an_address() -> None:
    async with serve(RendezvousConfig(host="localhost", port=0)) as serving:
        with caller() as sock:
            answer, _ = await ask(sock, ("127.0.0.1", serving.udp_ports[0]), request())
        assert parse_message(answer).attributes["RESPONSE-ORIGIN"] == ("127.0.0.1", serving.udp_ports[0])


@pytest.mark.parametrize("port", [-1, 65_535, 70_000])
async def test_serve_when_there_is_no_such_udp_port_then_cannot_serve(port: int) -> None:
    with pytest.raises(CannotServe, match=f"UDP ports {port} and"):
        async with serve(RendezvousConfig(port=0, udp_port=port)):
            pass


async def test_stun_when_garbage_comes_then_nothing_is_answered_and_service_goes_on() -> None:
    limits = RendezvousLimits(udp_requests_per_address_at_once=1000)
    async with serve(RendezvousConfig(port=0, limits=limits)) as serving:
        place = ("127.0.0.1", serving.udp_ports[0])
        with caller() as sock:
            for datagram in (b"", b"\x00", b"\x01" * 60, b"\x08", b"\x09" * 100, b"\x40" * 1200, bytes(9000)):
                sock.sendto(datagram, place)
            answer, _ = await ask(sock, place, request())
            assert mapped(answer) == sock.getsockname()


def test_kafila_rendezvous_when_udp_is_asked_wrongly_then_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafila_rendezvous", "--listen", "0.0.0.0:0", "--insecure", "--alternate", "127.0.0.2"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    assert "the first one too" in done.stderr
