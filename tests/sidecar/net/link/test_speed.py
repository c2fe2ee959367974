"""What a link finds of its own speed, over lines of known speed in a simulated network."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.speed import DEADLINE_S, LEAST_S, MESSAGE_BYTES, MESSAGES, Burst
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.net.udp import Received, Socket
from tests.sidecar.net.people import KEY, SESSION, LinkPerson, ignore, linked, person
from tests.support.simnet import Host, Network
from tests.support.virtual_time import simulate

UP, DOWN = "198.51.100.1", "198.51.100.2"


class SlowLine:
    """A socket behind which datagrams wait for one another."""

    def __init__(self, below: Socket, bytes_per_s: float) -> None:
        self._below, self._bytes_per_s = below, bytes_per_s
        self._loop = asyncio.get_running_loop()
        self._free_at = 0.0
        self.takes_ipv6, self.address = False, below.address
        self.forbids_fragments = True

    def send(self, datagrams: Sequence[bytes], target: Address) -> None:
        for one in datagrams:
            self._free_at = max(self._free_at, self._loop.time()) + len(one) / self._bytes_per_s
            self._loop.call_at(self._free_at, self._below.send, [one], target)

    def close(self) -> None:
        self._below.close()


def endpoint_of(network: Network, address: str, bytes_per_s: float) -> Endpoint:
    host = Host(address, (network.public, address))

    def open_line(deliver: Callable[[list[Received]], None]) -> Socket:
        return SlowLine(host.open(5000, deliver), bytes_per_s)

    return Endpoint(open_line, host=None, interfaces=host.interfaces)


async def connected(one: Endpoint, other: Endpoint, me: LinkPerson, peer: LinkPerson) -> Link:
    return await one.connect(
        session=SESSION,
        key=KEY,
        me=me,
        peer_name="peer",
        peer_fingerprint=peer.fingerprint,
        candidates=other.candidates(),
        deadline_s=10.0,
        on_stream=ignore,
    )


def speeds(up: float, down: float, delay_s: float) -> tuple[float, float]:
    """What the ends of a link find, whose lines send so quickly, when both look at the same time."""

    async def scene() -> tuple[float, float]:
        network, people = Network(delay_s=delay_s), (person(), person())
        ends = endpoint_of(network, UP, up), endpoint_of(network, DOWN, down)
        links = await asyncio.gather(connected(*ends, *people), connected(*ends[::-1], *people[::-1]))
        await asyncio.gather(*(link.measure() for link in links))
        for end in ends:
            await end.close()
        return links[0].bytes_per_s, links[1].bytes_per_s

    return simulate(scene)


@pytest.mark.parametrize("delay_s", [0.0005, 0.005, 0.025])
@pytest.mark.parametrize(("up", "down"), [(1.25e6, 1.25e6), (5e5, 5e6), (3e6, 2e5), (1.25e7, 5e6)])
def test_speed_when_both_ends_look_at_once_then_each_finds_the_others_line(
    up: float, down: float, delay_s: float
) -> None:
    found = speeds(up, down, delay_s)
    assert found == pytest.approx((down, up), rel=0.1)


def test_speed_when_a_line_is_very_slow_then_it_is_known_when_the_time_is_up() -> None:
    assert speeds(6e4, 1e6, 0.01)[1] == pytest.approx(6e4, rel=0.2)


def test_burst_when_it_comes_at_once_then_its_speed_is_not_told() -> None:
    burst = Burst()
    assert burst.bytes_per_s == 0.0
    assert [burst.came(1.0 + at * LEAST_S / MESSAGES) for at in range(MESSAGES)] == [*[False] * (MESSAGES - 1), True]
    assert burst.bytes_per_s == 0.0


def test_burst_when_it_takes_its_time_then_what_came_after_its_first_message_counts() -> None:
    burst = Burst()
    for at in range(3):
        burst.came(5.0 + 0.1 * at)
    assert burst.bytes_per_s == pytest.approx(2 * MESSAGE_BYTES / 0.2)


async def test_speed_when_the_link_is_over_then_looking_for_it_returns_at_once() -> None:
    async with linked() as pair:
        await pair.dialler.close()
        async with asyncio.timeout(DEADLINE_S / 2):
            await pair.dialler.measure()


async def test_burst_when_sent_then_nobody_else_sees_it() -> None:
    seen: list[int | None] = []

    async def note(stream: Stream) -> None:
        seen.append(stream.kind)

    async with linked(on_listener=note, on_dialler=note) as pair:
        await asyncio.gather(pair.dialler.measure(), pair.listener.measure())
        await pair.dialler.open(77)
        async with asyncio.timeout(5):
            while not seen:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert seen == [77]
