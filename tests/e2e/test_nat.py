"""Real kernel NAT: members in network namespaces behind routers of every behaviour.

The first part links the node's own endpoints, with no model, in this process: each socket is made inside its
namespace. The second part forms real sessions.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

import pytest

from kafila_sidecar.net.candidates import Interface, system_interfaces
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.net.udp import Socket, UdpSocket, open_socket
from tests.sidecar.net.simworld import PEOPLE, Deliver, NetMember, SimRendezvous, linked
from tests.support.natlab import Behaviour, NatLab, Router, Space, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "none")

PERMISSIVE, ORDINARY, RESTRICTIVE = Behaviour.PERMISSIVE, Behaviour.ORDINARY, Behaviour.RESTRICTIVE
ADDRESS_DEPENDENT = Behaviour.ADDRESS_DEPENDENT
CLASSES = (PERMISSIVE, ORDINARY, RESTRICTIVE)
RELAYED = {frozenset((ORDINARY, RESTRICTIVE)), frozenset((RESTRICTIVE,))}
KIND = 7


@dataclass
class NamespaceMachine:
    """A namespace as members use it."""

    name: str
    space: Space

    def open(self, port: int, deliver: Deliver) -> Socket:
        """A port that the kernel chooses, so that no test meets what routers remember of another one."""
        with self.space.inside():
            return UdpSocket(open_socket(None, 0), deliver)

    def interfaces(self) -> list[Interface]:
        with self.space.inside():
            return system_interfaces()


@dataclass
class Lab:
    """One internet with a rendezvous host, and a home behind each router that was asked for."""

    net: NatLab
    rendezvous: Space
    homes: dict[tuple[Behaviour, int], tuple[Router, Space]] = field(default_factory=dict)

    def home(self, behaviour: Behaviour, i: int) -> tuple[Router, Space]:
        """The home of dialler 0 or listener 1; made once, and its router behaves as asked again."""
        known = self.homes.get((behaviour, i))
        if known is None:
            router = self.net.router(behaviour)
            known = self.homes[behaviour, i] = router, self.net.home(f"{behaviour.name.lower()}{i}", router)
        known[0].behave(behaviour)
        return known


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with NatLab() as net:
        yield Lab(net, net.host("rendezvous", "0.1", "0.2"))


@pytest.fixture
async def rendezvous(lab: Lab) -> AsyncIterator[SimRendezvous]:
    def open_at(address: str, port: int, deliver: Deliver) -> Socket:
        with lab.rendezvous.inside():
            return UdpSocket(open_socket(address, port), deliver)

    made = SimRendezvous("10.9.0.1", "10.9.0.2", delay_s=0.0005, open_at=open_at)
    yield made
    made.close()


def member(rendezvous: SimRendezvous, space: Space, i: int) -> NetMember:
    return NetMember(rendezvous, NamespaceMachine(f"m{i}", space), PEOPLE[i], mailbox=i)


async def close(*members: NetMember) -> None:
    for one in members:
        await one.close()


async def echo(stream: Stream) -> None:
    while (message := await stream.receive()) is not None:
        await stream.send(message)


async def until(condition: Callable[[], bool], within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  (what is waited for has no event)
            await asyncio.sleep(0.02)


class LabTalk:
    """Numbered messages to a peer that echoes them, one after the other."""

    def __init__(self, link: Link) -> None:
        self.answered = 0
        self._link = link
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        stream = await self._link.open(KIND)
        for number in itertools.count():
            message = number.to_bytes(8, "big") + bytes(4000)
            await stream.send(message)
            assert await stream.receive(14) == message
            self.answered = number + 1
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        assert not self._task.done(), self._task.exception()
        self._task.cancel()
        await asyncio.wait([self._task])


@pytest.mark.parametrize(
    ("dialler", "listener"),
    [
        *itertools.product(CLASSES, CLASSES),
        *((ADDRESS_DEPENDENT, other) for other in (*CLASSES, ADDRESS_DEPENDENT)),
        *((other, ADDRESS_DEPENDENT) for other in CLASSES),
    ],
    ids=lambda behaviour: behaviour.name.lower(),
)
async def test_pair_when_behind_two_kernel_nats_then_the_path_is_the_predicted_one(
    dialler: Behaviour, listener: Behaviour, lab: Lab, rendezvous: SimRendezvous
) -> None:
    members = [member(rendezvous, lab.home(b, i)[1], i) for i, b in enumerate((dialler, listener))]
    nats, links = await linked(*members)
    expected = "relay" if frozenset((dialler, listener)) in RELAYED else "direct"
    if links[0].path != expected:
        await asyncio.wait_for(links[0].moved(), 5)
    assert (links[0].path, links[1].path) == (expected, expected)
    for nat, behaviour in zip(nats, (dialler, listener), strict=True):
        assert (nat.mapping.value == "endpoint-independent") == (behaviour is not RESTRICTIVE)
        assert not nat.mapping_is_assumed
    await close(*members)


async def test_udp_when_a_router_drops_it_all_then_the_relay_is_reached_by_stream(
    lab: Lab, rendezvous: SimRendezvous
) -> None:
    members = [member(rendezvous, lab.home(b, i)[1], i) for i, b in enumerate((Behaviour.BLOCKED, ORDINARY))]
    members[1].on_stream = echo
    _, links = await linked(*members)
    assert links[0].path == "relay"
    talk = LabTalk(links[0])
    await until(lambda: talk.answered > 20, 10)
    await talk.stop()
    await close(*members)


async def test_relayed_path_when_the_router_gets_other_rules_then_it_becomes_direct_and_no_byte_is_lost(
    lab: Lab, rendezvous: SimRendezvous
) -> None:
    router, space = lab.home(RESTRICTIVE, 0)
    members = [member(rendezvous, space, 0), member(rendezvous, lab.home(ORDINARY, 1)[1], 1)]
    members[1].on_stream = echo
    _, links = await linked(*members)
    talk = LabTalk(links[0])
    await asyncio.sleep(1)
    assert links[0].path == "relay"
    router.behave(PERMISSIVE)
    await until(lambda: links[0].path == links[1].path == "direct", 30)
    before = talk.answered
    await until(lambda: talk.answered > before + 20, 5)
    await talk.stop()
    await close(*members)


@pytest.mark.parametrize("filtering", [PERMISSIVE, ORDINARY], ids=["permissive", "ordinary"])
@pytest.mark.parametrize("moved", [0, 1], ids=["dialler", "listener"])
async def test_rebinding_when_in_the_middle_of_a_stream_then_it_goes_unnoticed(
    moved: int, filtering: Behaviour, lab: Lab, rendezvous: SimRendezvous
) -> None:
    homes = [lab.home(filtering, i) for i in (0, 1)]
    members = [member(rendezvous, space, i) for i, (_, space) in enumerate(homes)]
    members[1].on_stream = echo
    _, links = await linked(*members)
    talk = LabTalk(links[0])
    await asyncio.sleep(1)
    assert links[0].path == "direct"
    router = homes[moved][0]
    router.move(f"10.9.2.{router.number}" if ".1." in router.space.address else f"10.9.1.{router.number}")
    before = talk.answered
    await until(lambda: talk.answered > before + 20, 6)
    await until(lambda: links[0].path == links[1].path == "direct", 25)
    await talk.stop()
    assert not links[0].closed.done()
    await close(*members)


@pytest.mark.parametrize("side", [0, 1], ids=["dialler", "listener"])
async def test_udp_when_a_router_drops_it_for_a_while_then_the_talk_goes_on_by_tcp_within_three_seconds_and_comes_back(
    side: int, lab: Lab, rendezvous: SimRendezvous
) -> None:
    homes = [lab.home(ORDINARY, i) for i in (0, 1)]
    members = [member(rendezvous, space, i) for i, (_, space) in enumerate(homes)]
    members[1].on_stream = echo
    _, links = await linked(*members)
    talk = LabTalk(links[0])
    await asyncio.sleep(1)
    assert links[0].path == "direct"
    with homes[side][0].without_udp():
        await asyncio.sleep(0.2)  # what was on its way
        before = talk.answered
        await until(lambda: talk.answered > before + 2, 3.5)
        await asyncio.sleep(16)
        assert links[0].path == "relay"
    await until(lambda: links[0].path == links[1].path == "direct", 40)
    before = talk.answered
    await until(lambda: talk.answered > before + 20, 5)
    await talk.stop()
    assert not any(link.closed.done() for link in links)
    await close(*members)
