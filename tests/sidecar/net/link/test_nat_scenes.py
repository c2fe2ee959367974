"""Members in awkward networks, and networks that change under a link, in simulated time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from kafila_planner.model.types import Filtering, Mapping
from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream
from tests.sidecar.net.people import ignore
from tests.sidecar.net.simworld import PEOPLE, NetMember, SimRendezvous, linked
from tests.support.simnet import Box, Firewall, Hairpin, Host, Network, Realm
from tests.support.virtual_time import simulate

EI, AD, APD = Mapping.ENDPOINT_INDEPENDENT, Mapping.ADDRESS_DEPENDENT, Mapping.ADDRESS_AND_PORT_DEPENDENT
OPEN, STRICT = Filtering.ENDPOINT_INDEPENDENT, Filtering.ADDRESS_AND_PORT_DEPENDENT
KIND = 7


@dataclass
class NatWorld:
    """A network with its rendezvous, and members by the order in which they dial."""

    network: Network
    rendezvous: SimRendezvous
    hosts: dict[int, Host] = field(default_factory=dict)

    def member(self, i: int, *places: tuple[Realm, str]) -> NetMember:
        self.hosts[i] = Host(f"m{i}", *places)
        return NetMember(self.rendezvous, self.hosts[i], PEOPLE[i], mailbox=i)

    def home(self, i: int, **box: object) -> tuple[Box, NetMember]:
        """A member alone behind a router of its own."""
        router = Box(self.network.public, f"198.51.100.{i}", **box)  # type: ignore[arg-type]
        return router, self.member(i, (router.inner, "192.168.1.2"))


def world(*addresses: str, delay_s: float = 0.02, loss: float = 0.0) -> NatWorld:
    network = Network(delay_s=delay_s, loss=loss)
    return NatWorld(network, SimRendezvous.simulated(network, *(addresses or ("192.0.2.1", "192.0.2.2"))))


async def paths(a: NetMember, b: NetMember) -> tuple[str, str]:
    """How two members reach each other, after a moment for better paths."""
    _, (one, other) = await linked(a, b)
    await asyncio.sleep(4)
    outcome = (one.path, other.path)
    for member in (a, b):
        await member.close()
    return outcome


class Talk:
    """A dialogue: numbered messages go to a peer who answers each; nothing may be lost, repeated or out of order."""

    def __init__(self) -> None:
        self.answered = 0
        self.longest_s = 0.0  # from a message until its answer

    @staticmethod
    async def answer(stream: Stream) -> None:
        expected = 0
        while (message := await stream.receive()) is not None:
            assert int(message[:8]) == expected
            expected += 1
            await stream.send(message)

    async def run(self, link: Link) -> None:
        stream, loop = await link.open(KIND), asyncio.get_running_loop()
        while True:
            message = b"%08d" % self.answered + bytes(2000)
            sent_at = loop.time()
            await stream.send(message)
            assert await stream.receive(14) == message
            self.longest_s = max(self.longest_s, loop.time() - sent_at)
            self.answered += 1
            await asyncio.sleep(0.05)


Scene = Callable[[Link, "Talk"], Awaitable[None]]


async def talking(a: NetMember, b: NetMember, scene: Scene) -> None:
    """Links two members, lets them talk, and runs the scene meanwhile."""
    b.on_stream = Talk.answer
    _, (link, other) = await linked(a, b)
    await asyncio.sleep(1)
    talk = Talk()
    task = asyncio.create_task(talk.run(link))
    await scene(link, talk)
    assert not task.done(), task.exception()
    assert not link.closed.done()
    assert not other.closed.done()
    task.cancel()
    await asyncio.wait([task])
    for member in (a, b):
        await member.close()


async def until(condition: Callable[[], bool], *, within_s: float) -> float:
    """Waits for a condition; how long it took."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    while not condition():
        assert loop.time() - start < within_s, f"not within {within_s} s"
        await asyncio.sleep(0.02)
    return loop.time() - start


# ---- Awkward networks


@pytest.mark.parametrize("mapping", [EI, APD])
def test_same_network_when_behind_one_router_of_any_kind_then_host_candidates_join_them(mapping: Mapping) -> None:
    async def scene() -> None:
        w = world()
        router = Box(w.network.public, "198.51.100.1", mapping=mapping)
        a, b = w.member(0, (router.inner, "192.168.1.2")), w.member(1, (router.inner, "192.168.1.3"))
        _, (one, _) = await linked(a, b)
        assert one.remote_address == ("192.168.1.3", 5000)
        assert one.rtt_s < 0.001
        for member in (a, b):
            await member.close()

    simulate(scene)


@pytest.mark.parametrize(
    ("hairpin", "path"),
    [(Hairpin.EXTERNAL, "direct"), (Hairpin.NONE, "relay"), (Hairpin.ONE_WAY, "relay"), (Hairpin.INTERNAL, "relay")],
)
def test_same_router_when_its_hosts_are_kept_apart_then_only_a_whole_hairpin_joins_them(
    hairpin: Hairpin, path: str
) -> None:
    async def scene() -> tuple[str, str]:
        w = world()
        router = Box(w.network.public, "198.51.100.1", hairpin=hairpin, isolates=True)
        return await paths(w.member(0, (router.inner, "192.168.1.2")), w.member(1, (router.inner, "192.168.1.3")))

    assert simulate(scene) == (path, path)


@pytest.mark.parametrize(
    ("outer", "path"), [((EI, STRICT), "direct"), ((EI, OPEN), "direct"), ((APD, STRICT), "relay")]
)
def test_double_nat_when_the_peer_is_elsewhere_then_the_stricter_box_decides(
    outer: tuple[Mapping, Filtering], path: str
) -> None:
    async def scene() -> tuple[str, str]:
        w = world()
        carrier = Box(w.network.public, "198.51.100.9", mapping=outer[0], filtering=outer[1])
        home = Box(carrier.inner, "100.64.0.2")
        _, b = w.home(1)
        return await paths(w.member(0, (home.inner, "192.168.1.2")), b)

    assert simulate(scene) == (path, path)


@pytest.mark.parametrize(("hairpin", "path"), [(Hairpin.EXTERNAL, "direct"), (Hairpin.NONE, "relay")])
def test_double_nat_when_both_have_the_same_carrier_then_its_hairpin_decides(hairpin: Hairpin, path: str) -> None:
    async def scene() -> tuple[str, str]:
        w = world()
        carrier = Box(w.network.public, "198.51.100.9", hairpin=hairpin)
        homes = [Box(carrier.inner, f"100.64.0.{i}") for i in (2, 3)]
        a, b = (w.member(i, (home.inner, "192.168.1.2")) for i, home in enumerate(homes))
        return await paths(a, b)

    assert simulate(scene) == (path, path)


def test_ipv6_when_there_is_nothing_else_then_members_behind_firewalls_reach_each_other() -> None:
    async def scene() -> tuple[str, str]:
        w = world("2001:db8::1")
        homes = [Firewall(w.network.public) for _ in range(2)]
        a, b = (w.member(i, (home.inner, f"2001:db8:{i + 1}::2")) for i, home in enumerate(homes))
        return await paths(a, b)

    assert simulate(scene) == ("direct", "direct")


def test_ipv6_when_only_ipv4_is_behind_strict_boxes_then_it_is_the_direct_path() -> None:
    async def scene() -> str:
        w = world()
        members = []
        for i in range(2):
            router = Box(w.network.public, f"198.51.100.{i}", mapping=APD)
            firewall = Firewall(w.network.public)
            members.append(w.member(i, (router.inner, "192.168.1.2"), (firewall.inner, f"2001:db8:{i + 1}::2")))
        _, (link, _) = await linked(*members)
        await asyncio.sleep(3)
        assert link.remote_address is not None
        for member in members:
            await member.close()
        return link.remote_address[0]

    assert simulate(scene) == "2001:db8:2::2"


@pytest.mark.parametrize("blocked", [(0,), (1,), (0, 1)])
def test_udp_when_a_network_carries_none_then_the_relay_is_reached_by_stream(blocked: Sequence[int]) -> None:
    async def scene() -> None:
        w = world()
        homes = [w.home(i) for i in range(2)]
        for i in blocked:
            homes[i][0].blocks_udp = True

        async def go_on(link: Link, talk: Talk) -> None:
            await asyncio.sleep(5)
            assert link.path == "relay"
            assert talk.answered > 20

        await talking(homes[0][1], homes[1][1], go_on)

    simulate(scene)


def test_nobody_when_neither_path_nor_relay_works_then_the_error_names_each_candidate_and_its_outcome() -> None:
    async def scene() -> str:
        w = world()
        _, a = w.home(0, mapping=APD)
        _, b = w.home(1, mapping=APD)
        w.rendezvous.has_relay = False
        for one, other in ((a, b), (b, a)):
            one.announce([other])
        results = await asyncio.gather(a.link(b, deadline_s=3), b.link(a, deadline_s=3), return_exceptions=True)
        assert all(isinstance(result, Unavailable) for result in results)
        for member in (a, b):
            await member.close()
        return str(results[0])

    said = simulate(scene)
    assert "no link to m1 within 3 s" in said
    assert "192.168.1.2 port 5000 (host)" in said
    assert "no answer" in said
    assert "the relay does not answer" in said


# ---- Networks that change


@pytest.mark.parametrize("filtering", [OPEN, STRICT], ids=["open", "strict"])
@pytest.mark.parametrize("moved", [0, 1], ids=["dialler", "listener"])
def test_rebinding_when_in_the_middle_of_a_talk_then_it_goes_on_and_stays_direct(
    moved: int, filtering: Filtering
) -> None:
    async def scene() -> None:
        w = world()
        homes = [w.home(i, filtering=filtering) for i in range(2)]

        async def rebind(link: Link, talk: Talk) -> None:
            await asyncio.sleep(1.1)
            homes[moved][0].rebind()
            before = talk.answered
            await until(lambda: talk.answered > before + 5, within_s=4)
            await until(lambda: link.path == "direct", within_s=6)
            before = talk.answered
            await asyncio.sleep(20)
            assert talk.answered > before + 100
            assert link.path == "direct"
            assert talk.longest_s < (
                1.2 if filtering is OPEN else 2.2
            )  # one end of an idle link asks, the other answers

        await talking(homes[0][1], homes[1][1], rebind)

    simulate(scene)


@pytest.mark.parametrize("mover", [0, 1], ids=["dialler", "listener"])
def test_laptop_when_it_changes_its_network_then_the_talk_goes_on_directly(mover: int) -> None:
    async def scene() -> None:
        w = world()
        homes = [w.home(i) for i in range(2)]
        cafe = Box(w.network.public, "198.51.100.77")

        async def move(link: Link, talk: Talk) -> None:
            await asyncio.sleep(1)
            w.hosts[mover].move((cafe.inner, "10.7.0.9"))
            before = talk.answered
            await until(lambda: talk.answered > before + 5, within_s=6)
            await until(lambda: link.path == "direct", within_s=20)
            await asyncio.sleep(5)
            assert link.path == "direct"

        await talking(homes[0][1], homes[1][1], move)

    simulate(scene)


def test_laptop_when_long_relayed_and_then_in_a_better_network_then_a_direct_path_is_found_soon() -> None:
    async def scene() -> None:
        w = world()
        homes = [w.home(0, mapping=APD), w.home(1)]
        cafe = Box(w.network.public, "198.51.100.77")

        async def move(link: Link, talk: Talk) -> None:
            await asyncio.sleep(200)
            assert link.path == "relay"
            w.hosts[0].move((cafe.inner, "10.7.0.9"))
            await until(lambda: link.path == "direct", within_s=6)

        await talking(homes[0][1], homes[1][1], move)

    simulate(scene)


def test_laptop_when_it_leaves_a_network_without_udp_then_the_stream_is_left_too() -> None:
    async def scene() -> None:
        w = world()
        homes = [w.home(i) for i in range(2)]
        homes[0][0].blocks_udp = True
        cafe = Box(w.network.public, "198.51.100.77", mapping=APD)

        async def move(link: Link, talk: Talk) -> None:
            await asyncio.sleep(5)
            assert w.rendezvous.streams == 1
            w.hosts[0].move((cafe.inner, "10.7.0.9"))
            await asyncio.sleep(5)
            before = w.rendezvous.streamed
            await asyncio.sleep(5)
            assert (link.path, w.rendezvous.streamed) == ("relay", before)

        await talking(homes[0][1], homes[1][1], move)

    simulate(scene)


def test_laptop_when_it_comes_home_to_its_peer_then_the_local_path_is_taken() -> None:
    async def scene() -> None:
        w = world()
        home, a = w.home(0)
        _, b = w.home(1)

        async def move(link: Link, talk: Talk) -> None:
            w.hosts[1].move((home.inner, "192.168.1.3"))
            await until(lambda: link.remote_address == ("192.168.1.3", 5000), within_s=15)

        await talking(a, b, move)

    simulate(scene)


def test_relayed_path_when_the_router_starts_to_allow_more_then_the_talk_moves_to_a_direct_one() -> None:
    async def scene() -> None:
        w = world()
        router, a = w.home(0, mapping=APD)
        _, b = w.home(1)

        async def allow(link: Link, talk: Talk) -> None:
            await asyncio.sleep(5)
            assert link.path == "relay"
            router.mapping, router.filtering = EI, OPEN
            moved = asyncio.create_task(link.moved())
            await until(lambda: link.path == "direct", within_s=35)
            await asyncio.wait_for(moved, 0.1)
            before = talk.answered
            await asyncio.sleep(1)
            assert talk.answered > before + 8

        await talking(a, b, allow)

    simulate(scene)


def test_direct_path_when_it_dies_then_the_talk_moves_to_the_relay_and_back_when_it_lives_again() -> None:
    async def scene() -> None:
        w = world()
        homes = [w.home(i) for i in range(2)]

        async def cut(link: Link, talk: Talk) -> None:
            await asyncio.sleep(1)
            assert link.path == "direct"
            homes[0][0].refuses.add("198.51.100.1")
            took_s = await until(lambda: link.path == "relay", within_s=4)
            assert took_s < 3
            before = talk.answered
            await asyncio.sleep(2)
            assert talk.answered > before + 10
            homes[0][0].refuses.clear()
            await until(lambda: link.path == "direct", within_s=20)

        await talking(homes[0][1], homes[1][1], cut)

    simulate(scene)


def test_relay_when_the_rendezvous_restarts_under_a_direct_link_then_nothing_is_noticed() -> None:
    async def scene() -> None:
        w = world()
        homes = [w.home(i) for i in range(2)]

        async def lose(link: Link, talk: Talk) -> None:
            w.rendezvous.has_relay = False
            await asyncio.sleep(60)
            assert link.path == "direct"
            assert talk.longest_s < 0.2

        await talking(homes[0][1], homes[1][1], lose)

    simulate(scene)


@pytest.mark.parametrize("mapping", [EI, APD], ids=["direct", "relay"])
def test_bindings_when_the_router_forgets_idle_ones_quickly_then_keepalives_hold_the_path(mapping: Mapping) -> None:
    async def scene() -> None:
        w = world()
        homes = [w.home(i, idle_s=30.0, mapping=mapping) for i in range(2)]
        members = [member for _, member in homes]
        members[1].on_stream = Talk.answer
        _, (link, _) = await linked(*members)
        await asyncio.sleep(300)
        assert not link.closed.done()
        stream = await link.open(KIND)
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        await stream.send(b"00000000")
        assert await stream.receive(5) == b"00000000"
        assert loop.time() - asked_at < 0.2
        for member in members:
            await member.close()

    simulate(scene)


# ---- What it costs


async def formation(count: int) -> int:
    """Datagrams that members send from the start until a ring of `count`, and everybody's link to the head, stand."""
    w = world()
    members = [w.home(i, mapping=APD if i % 4 == 3 else EI)[1] for i in range(count)]
    for member in members:
        member.announce([peer for peer in members if peer is not member])
    await asyncio.gather(*(member.classify() for member in members))
    for member in members:
        member.announce([peer for peer in members if peer is not member])
    await asyncio.sleep(0.1)
    edges = [(members[i], members[(i + 1) % count]) for i in range(count)]
    edges += [(members[0], member) for member in members[2:-1]]  # everybody to the head
    await asyncio.gather(*(link for one, other in edges for link in (one.link(other), other.link(one))))
    sent = sum(n for name, n in w.network.sent.items() if name.startswith("m"))
    for member in members:
        member.on_stream = ignore
        await member.close()
    return sent


def test_packets_when_members_are_more_then_they_grow_in_proportion(capsys: pytest.CaptureFixture[str]) -> None:
    counts = {members: simulate(lambda members=members: formation(members)) for members in (3, 8, 16)}  # type: ignore[misc]
    with capsys.disabled():
        print(f"\ndatagrams to form a ring of 3, 8, 16: {', '.join(map(str, counts.values()))}")
    each = [sent / (2 * members - 3) for members, sent in counts.items()]  # a link
    assert max(each) < 1.5 * min(each)
