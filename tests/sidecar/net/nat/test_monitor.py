"""What a node knows of the network around it and keeps true, in simulated time."""

import asyncio
import errno
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest
from aioice.stun import Class, Message, Method, parse_message

from kafila_planner.model.types import Mapping
from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net.candidates import Address, Candidate, Interface
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.nat.behaviour import Nat, StunServer
from kafila_sidecar.net.nat.classify import OwnSocket, Strays
from kafila_sidecar.net.nat.mapped import KEEP_S, TRIES, MappedAddress
from kafila_sidecar.net.nat.monitor import Listener, NetworkMonitor
from kafila_sidecar.net.portmap.mapping import Mapped
from tests.support.virtual_time import simulate

SERVER = StunServer("192.0.2.1", 3478, 3479)
OTHER = StunServer("192.0.2.9", 3478)
OUTSIDE, MOVED = ("198.51.100.1", 4000), ("198.51.100.1", 4999)
BEHIND_NAT = Nat(udp=True, mapping=Mapping.ENDPOINT_INDEPENDENT, mapped=OUTSIDE, is_translated=True)
HOME, CAFE = (Interface("eth0", True, ("192.168.1.2",)),), (Interface("wlan0", True, ("10.7.0.9",)),)


class PlayedEndpoint:
    """The node's socket, with a server behind it that says `seen`; None: it is silent."""

    address: Address = ("::", 5000)

    def __init__(self) -> None:
        self.further: tuple[Candidate, ...] = ()
        self.on_path_died: Callable[[], None] = lambda: None
        self.seen: Address | None = OUTSIDE
        self.sent = self.searches = 0
        self.strays: Strays | None = None

    def send(self, datagrams: Sequence[bytes], target: Address) -> None:
        self.sent += 1
        if self.seen is not None:
            asyncio.get_running_loop().call_later(0.02, self.answer, datagrams[0], target, self.seen)

    def answer(self, asked: bytes, server: Address, seen: Address) -> None:
        assert self.strays is not None
        assert self.strays(bytes(answer(asked, seen)), server)

    def hear(self, strays: Strays | None) -> None:
        self.strays = strays

    def network_changed(self) -> None:
        self.searches += 1


def answer(asked: bytes, seen: Address) -> Message:
    transaction = parse_message(asked).transaction_id
    return Message(Method.BINDING, Class.RESPONSE, transaction, {"XOR-MAPPED-ADDRESS": seen})


@dataclass
class Scene:
    """A monitor that runs, with what the network does to it."""

    interfaces: Sequence[Interface] = HOME
    nat: Nat = BEHIND_NAT
    map_port: Callable[[int, Callable[[Mapped | None], None]], Awaitable[None]] | None = None
    asked: list[tuple[StunServer, ...]] = field(default_factory=list)
    told: int = 0
    is_blind: bool = False

    async def run(self, act: Callable[["Scene"], Awaitable[None]]) -> None:
        self.own = PlayedEndpoint()
        self.monitor = NetworkMonitor(self.own, interfaces=self.look, ask=self.ask, map_port=self.map_port)
        self.monitor.listen(Listener((SERVER,), self.hear))
        running = asyncio.create_task(self.monitor.run())
        await act(self)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    def look(self) -> Sequence[Interface]:
        if self.is_blind:
            raise OSError(errno.EMFILE, "Too many open files")
        return self.interfaces

    async def ask(self, own: OwnSocket, servers: Sequence[StunServer]) -> Nat:
        self.asked.append(tuple(servers))
        await asyncio.sleep(0.1)
        own.hear(None)
        return self.nat

    def hear(self) -> None:
        self.told += 1

    def addresses(self) -> list[Address]:
        return [candidate.target for candidate in self.own.further]


def play(scene: Scene, act: Callable[[Scene], Awaitable[None]]) -> None:
    simulate(lambda: scene.run(act))


def test_classification_when_several_want_it_then_each_set_of_servers_is_asked_once() -> None:
    async def act(scene: Scene) -> None:
        about = scene.monitor.about
        await asyncio.gather(about([SERVER]), about([SERVER]), about([SERVER, OTHER]))
        await about([SERVER])
        assert sorted(scene.asked, key=len) == [(SERVER,), (SERVER, OTHER)]
        assert scene.addresses() == [OUTSIDE]
        assert scene.told == 1

    play(Scene(), act)


def test_mapping_when_nothing_changes_then_it_is_kept_by_few_questions_and_nobody_is_told() -> None:
    async def act(scene: Scene) -> None:
        await scene.monitor.about([SERVER])
        await asyncio.sleep(100)
        assert 9 <= scene.own.sent <= 11
        assert (scene.told, scene.own.searches, len(scene.asked)) == (1, 0, 1)

    play(Scene(), act)


def test_mapping_when_it_is_another_then_links_search_and_the_network_is_classified_again() -> None:
    async def act(scene: Scene) -> None:
        await scene.monitor.about([SERVER])
        await asyncio.sleep(15)
        scene.own.seen = MOVED
        scene.nat = Nat(udp=True, mapped=MOVED, is_translated=True)
        await asyncio.sleep(11)
        assert (scene.own.searches, len(scene.asked)) == (1, 2)
        assert scene.addresses() == [MOVED]

    play(Scene(), act)


def test_mapping_when_somebody_listens_without_servers_then_it_is_kept_through_one_change_after_another() -> None:
    async def act(scene: Scene) -> None:
        scene.monitor.listen(Listener((), lambda: None))
        await scene.monitor.about([SERVER])
        assert (await scene.monitor.about([])).udp is None
        await asyncio.sleep(1)
        for number, seen in enumerate((MOVED, OUTSIDE, MOVED), 1):
            scene.own.seen = seen
            scene.nat = Nat(udp=True, mapped=seen, is_translated=True)
            await asyncio.sleep(12)
            assert (scene.own.searches, scene.addresses()) == (number, [seen])

    play(Scene(), act)


def test_mapping_when_the_network_is_another_and_nobody_has_servers_then_it_is_forgotten() -> None:
    async def act(scene: Scene) -> None:
        scene.monitor.listen(Listener((), lambda: None))
        await scene.monitor.about([SERVER])
        scene.monitor.unlisten(Listener((SERVER,), scene.hear))
        scene.interfaces = CAFE
        await asyncio.sleep(5)
        assert scene.addresses() == []

    play(Scene(), act)


def test_mapping_when_a_direct_path_has_died_then_it_is_looked_at_at_once() -> None:
    async def act(scene: Scene) -> None:
        await scene.monitor.about([SERVER])
        await asyncio.sleep(12)
        scene.own.seen = MOVED
        scene.own.on_path_died()
        await asyncio.sleep(0.1)
        assert scene.own.searches == 1

    play(Scene(), act)


def test_udp_when_it_was_blocked_and_passes_again_then_the_network_is_classified_again() -> None:
    async def act(scene: Scene) -> None:
        scene.own.seen = None
        await scene.monitor.about([SERVER])
        await asyncio.sleep(25)
        assert len(scene.asked) == 1
        scene.own.seen = OUTSIDE
        scene.nat = Nat(udp=True, mapped=OUTSIDE, is_translated=True)
        await asyncio.sleep(11)
        assert len(scene.asked) == 2
        assert scene.addresses() == [OUTSIDE]

    play(Scene(nat=Nat(udp=False)), act)


def test_addresses_when_they_change_then_links_search_peers_hear_and_servers_are_asked_again() -> None:
    async def act(scene: Scene) -> None:
        await scene.monitor.about([SERVER])
        scene.interfaces = CAFE
        await asyncio.sleep(5)
        assert (scene.own.searches, scene.asked) == (1, [(SERVER,), (SERVER,)])
        assert scene.told >= 2

    play(Scene(), act)


def test_addresses_when_a_look_fails_then_it_goes_on_and_the_next_look_counts() -> None:
    async def act(scene: Scene) -> None:
        await scene.monitor.about([SERVER])
        scene.interfaces, scene.is_blind = CAFE, True
        await asyncio.sleep(9)
        assert scene.own.searches == 0
        scene.is_blind = False
        await asyncio.sleep(5)
        assert scene.own.searches == 1

    play(Scene(), act)


def test_listener_when_it_has_gone_then_its_servers_are_not_asked_again() -> None:
    async def act(scene: Scene) -> None:
        mine = Listener((OTHER,), lambda: None)
        scene.monitor.listen(mine)
        await scene.monitor.about([OTHER])
        scene.monitor.unlisten(mine)
        scene.interfaces = CAFE
        await asyncio.sleep(5)
        assert scene.asked == [(OTHER,), (SERVER,)]

    play(Scene(), act)


def test_router_when_it_forwards_a_port_then_its_outside_is_a_candidate_until_the_network_changes() -> None:
    given_up = []

    async def map_port(port: int, told: Callable[[Mapped | None], None]) -> None:
        assert port == 5000
        try:
            await asyncio.sleep(0.5)
            told(Mapped("PCP", ("198.51.100.1", 7000)))
            await asyncio.Event().wait()
        finally:
            given_up.append(port)

    async def act(scene: Scene) -> None:
        await scene.monitor.about([SERVER])
        await asyncio.sleep(1)
        assert scene.addresses() == [OUTSIDE, ("198.51.100.1", 7000)]
        scene.interfaces = CAFE
        scene.nat = Nat(udp=True, mapped=("10.7.0.9", 5000), is_translated=False)
        await asyncio.sleep(5)
        assert given_up == [5000]
        assert scene.addresses() == []

    play(Scene(map_port=map_port), act)


def test_router_when_there_is_none_or_it_fails_then_nothing_else_suffers() -> None:
    async def fails(port: int, told: Callable[[Mapped | None], None]) -> None:
        raise Unavailable("no router here")

    async def act(scene: Scene) -> None:
        await scene.monitor.about([SERVER])
        await asyncio.sleep(1)
        assert scene.addresses() == [OUTSIDE]

    play(Scene(map_port=fails), act)


@pytest.mark.parametrize("kind", ["unasked", "another-server", "no-address", "garbage"])
def test_answer_when_it_answers_nothing_then_bad_datagram(kind: str) -> None:
    kept = MappedAddress(SERVER.place, blocked=False, entropy=lambda: bytes(12), now=0.0)
    ((asked, target),) = kept.handle_timer(0.0)
    assert target == SERVER.place
    datagram, source = bytes(answer(asked, OUTSIDE)), SERVER.place
    if kind == "unasked":
        datagram = datagram[:8] + b"x" * 12 + datagram[20:]
    if kind == "another-server":
        source = OTHER.place
    if kind == "no-address":
        datagram = bytes(Message(Method.BINDING, Class.RESPONSE, bytes(12)))
    if kind == "garbage":
        datagram = datagram[:15]
    with pytest.raises(BadDatagram):
        kept.receive(datagram, source)


def test_questions_when_nothing_answers_then_three_come_quickly_and_the_rest_rarely() -> None:
    numbers = iter(range(100))
    kept = MappedAddress(SERVER.place, blocked=False, entropy=lambda: next(numbers).to_bytes(12, "big"), now=0.0)
    sent = []
    while kept.next_timer() < 30:
        sent.append(kept.next_timer())
        assert kept.handle_timer(sent[-1])
    pauses = [later - earlier for earlier, later in itertools.pairwise(sent)]
    assert pauses[: TRIES + 1] == [1.0, 1.0, KEEP_S, 1.0]
