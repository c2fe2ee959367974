"""Port mapping over real sockets, against small routers on loopback; which router; UPnP."""

import asyncio
import importlib.util
from ipaddress import ip_address

import pytest

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net.candidates import Address, from_proto, to_proto
from kafila_sidecar.net.portmap import upnp
from kafila_sidecar.net.portmap.codec import Transport
from kafila_sidecar.net.portmap.driver import find_offer, keep_mapped
from kafila_sidecar.net.portmap.gateway import default_gateway, parse_route_command, parse_routes
from kafila_sidecar.net.portmap.mapping import Mapped, MappingOffer
from tests.sidecar.net.portmap.routers import OUTSIDE, Answer, Igd, Pcp, Pmp, igd, router
from tests.support import fuzz

needs_miniupnpc = pytest.mark.skipif(
    importlib.util.find_spec("miniupnpc") is None, reason="miniupnpc is not installed: UPnP is left out"
)


async def until_told(where: Address) -> tuple[Mapped | None, "asyncio.Task[None]"]:
    told: asyncio.Queue[Mapped | None] = asyncio.Queue()
    task = asyncio.create_task(keep_mapped(Transport.UDP, 4711, told.put_nowait, router=where))
    async with asyncio.timeout(5):
        return await told.get(), task


@pytest.mark.parametrize(("device", "protocol", "outer"), [(Pcp(), "PCP", 4712), (Pmp(), "NAT-PMP", 4711)])
async def test_keep_when_a_router_maps_then_told_and_given_up_at_the_end(
    device: Pcp | Pmp, protocol: str, outer: int
) -> None:
    async with router(device.answer) as where:
        mapped, task = await until_told(where)
        assert mapped == Mapped(protocol, (OUTSIDE, outer))
        assert device.ports
        task.cancel()
        await asyncio.wait([task])
        for _ in range(100):
            if not device.ports:
                break
            await asyncio.sleep(0.01)
        assert device.ports == {}


@pytest.mark.parametrize(
    ("answer", "offer"),
    [(Pmp().answer, MappingOffer("NAT-PMP", OUTSIDE)), (Pcp().answer, MappingOffer("PCP", None))],
)
async def test_offer_when_a_router_is_asked_then_its_protocol_and_nothing_is_mapped(
    answer: Answer, offer: MappingOffer
) -> None:
    async with router(answer) as where:
        assert await find_offer(router=where) == offer
    assert not answer.__self__.ports  # type: ignore[attr-defined]


async def nobody() -> None:
    return None


async def test_offer_when_nobody_answers_then_none_within_two_seconds() -> None:
    async with router(lambda _: None) as where, asyncio.timeout(2):
        assert await find_offer(router=where, find_upnp=nobody) is None


async def test_keep_when_nobody_answers_then_it_returns() -> None:
    async with router(lambda _: None) as where, asyncio.timeout(6):
        await keep_mapped(Transport.UDP, 4711, lambda _: None, router=where, find_upnp=nobody)


@needs_miniupnpc
async def test_keep_when_only_upnp_answers_then_told_and_given_up_at_the_end() -> None:
    device, told = Igd(), asyncio.Queue[Mapped | None]()
    async with router(lambda _: None) as where, igd(device) as url:
        keeping = keep_mapped(
            Transport.UDP, 4711, told.put_nowait, router=where, find_upnp=lambda: upnp.find_router(url)
        )
        task = asyncio.create_task(keeping)
        assert await asyncio.wait_for(told.get(), 8) == Mapped("UPnP", (OUTSIDE, 4711))
        task.cancel()
        await asyncio.wait([task])
        assert device.ports == {}


@needs_miniupnpc
async def test_upnp_when_a_gateway_is_there_then_mapped_and_released() -> None:
    device = Igd()
    async with igd(device) as url:
        found = await upnp.find_router(url)
        assert found is not None
        assert await found.outside() == OUTSIDE
        assert await found.map(Transport.TCP, 4711) == Mapped("UPnP", (OUTSIDE, 4711))
        assert device.ports == {("TCP", 4711): 4711}
        await found.release(Transport.TCP, 4711)
        assert device.ports == {}


@needs_miniupnpc
async def test_upnp_when_the_gateway_refuses_then_unavailable_with_its_words() -> None:
    async with igd(Igd(refuses=True)) as url:
        found = await upnp.find_router(url)
        assert found is not None
        with pytest.raises(Unavailable, match="refused by UPnP"):
            await found.map(Transport.UDP, 4711)


@needs_miniupnpc
@pytest.mark.parametrize("outside", ["garbage", "", "0.0.0.0", "None", "ff02::1"])
async def test_upnp_when_the_gateway_has_no_address_outside_then_it_offers_and_maps_nothing(outside: str) -> None:
    device = Igd(outside=outside)
    async with router(lambda _: None) as where, igd(device) as url:
        found = await upnp.find_router(url)
        assert found is not None
        with pytest.raises(Unavailable, match="by UPnP"):
            await found.map(Transport.UDP, 4711)
        assert device.ports == {}
        assert await find_offer(router=where, find_upnp=lambda: upnp.find_router(url)) is None


@pytest.mark.parametrize("said", ["", "0", "-1", "65536", "4711x", "٣", None, "9" * 5000])
def test_upnp_when_the_gateway_names_no_port_then_unavailable(said: object) -> None:
    with pytest.raises(Unavailable, match="mapped port"):
        upnp.read_port(said)
    assert upnp.read_port("4711") == upnp.read_port(4711) == 4711


@pytest.mark.fuzz
def test_upnp_when_what_the_gateway_says_is_hostile_then_typed_or_it_can_be_announced() -> None:
    def read(data: bytes) -> None:
        host, _, port = data.decode("utf-8", "surrogateescape").partition("|")
        candidate = Mapped("UPnP", (upnp.read_host(host), upnp.read_port(port))).candidate()
        (read,) = from_proto(to_proto([candidate]))
        assert (ip_address(read.address), read.port) == (ip_address(candidate.address), candidate.port)

    samples = [b"203.0.113.9|4711", b"2001:db8::7|1", b"192.168.1.1|65535"]
    assert fuzz.fuzz(read, samples) >= len(samples)


async def test_offer_when_the_router_has_no_address_outside_then_none() -> None:
    device = Pmp()
    device.outside = "0.0.0.0"
    async with router(device.answer) as where:
        assert await find_offer(router=where, find_upnp=nobody) is None


@needs_miniupnpc
async def test_upnp_when_nothing_is_there_then_none() -> None:
    async with igd(Igd()) as url:
        pass
    assert await upnp.find_router(url) is None


ROUTES = """Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
wlan0	00000000	0101A8C0	0003	0	0	600	00000000	0	0	0
eth0	00000000	0100000A	0003	0	0	100	00000000	0	0	0
tun0	00000000	00000000	0001	0	0	50	00000000	0	0	0
eth0	0000000A	00000000	0001	0	0	100	00FFFFFF	0	0	0
"""


def test_routes_when_there_are_several_defaults_then_the_one_of_least_metric_with_a_gateway() -> None:
    assert parse_routes(ROUTES) == "10.0.0.1"
    assert parse_routes(ROUTES.splitlines()[0]) is None


@pytest.mark.parametrize(
    ("text", "gateway"),
    [
        ("   route to: default\n    gateway: 192.168.1.1\n  interface: en0\n", "192.168.1.1"),
        ("    gateway: link#12\n", None),
        ("route: writing to routing socket: not in table\n", None),
    ],
)
def test_route_command_when_read_then_the_gateway(text: str, gateway: str | None) -> None:
    assert parse_route_command(text) == gateway


def test_default_gateway_when_asked_here_then_an_address_or_nothing() -> None:
    gateway = default_gateway()
    assert gateway is None or gateway.count(".") == 3
