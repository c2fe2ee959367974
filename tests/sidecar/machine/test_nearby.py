"""A rendezvous is found on its own network by a code's number: real multicast, in network namespaces of its own."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address

import pytest

from kafila_rendezvous.series import EMBEDDED_STEP, embedded_series
from kafila_sidecar.machine.nearby.announcing import Announcement, announced
from kafila_sidecar.machine.nearby.finding import find, heard
from kafila_sidecar.machine.nearby.service import Announced, Network, from_service, own_networks, to_service
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from tests.support.natlab import Cut, NatLab, Space, missing

PIN = "mcwqzspzi5esea64axpg"
ROOM = embedded_series(PIN).first + 3 * EMBEDDED_STEP
HERE = [Network("192.0.2.7/24")]


@pytest.fixture(scope="module")
def lab() -> Iterator[NatLab]:
    if why := missing():
        pytest.skip(why)
    with NatLab() as made:
        yield made


@pytest.fixture(scope="module")
def ada(lab: NatLab) -> Space:
    return lab.host("ada", "0.1", "0.9")


@pytest.fixture(scope="module")
def bob(lab: NatLab) -> Space:
    return lab.host("bob", "0.2")


@asynccontextmanager
async def serving(space: Space, pin: str = PIN) -> AsyncIterator[tuple[int, bool]]:
    """Port of what listens in `space` and is announced there, and whether it is."""
    async with AsyncExitStack() as stack:
        with space.inside():
            server = await asyncio.start_server(lambda _, writer: writer.close(), "0.0.0.0", 0)
            port = server.sockets[0].getsockname()[1]
            is_announced = await stack.enter_async_context(announced(port, pin, own_networks()))
        async with server:
            yield port, is_announced


async def found(space: Space, room: int, *, patience_s: float = 3.0) -> RendezvousAddress | None:
    with space.inside():
        return await find(room, own_networks(), patience_s=patience_s)


async def test_find_when_it_is_announced_on_this_network_then_where_it_is_until_it_ends(ada: Space, bob: Space) -> None:
    async with serving(ada) as (port, is_announced):
        assert is_announced
        place = await found(bob, ROOM)
        assert place in [RendezvousAddress(address, port, PIN) for address in ("10.9.0.1", "10.9.0.9")]
    assert await found(bob, ROOM, patience_s=0.1) is None


async def heard_in(space: Space) -> Announced | None:
    """What is said there of the room, asked by a thread, since what is announced is in another namespace."""

    def asked() -> Announced | None:
        with space.inside():
            return asyncio.run(heard(ROOM, own_networks(), 3.0))

    return await asyncio.to_thread(asked)


@pytest.mark.long
async def test_announcement_when_its_machine_is_in_another_network_then_it_is_found_where_it_is_now(
    lab: NatLab, bob: Space
) -> None:
    eve, announcement = lab.host("eve", "0.5"), Announcement()
    said = None
    with eve.inside():
        async with announcement.kept(7770, PIN):
            assert announcement.stands
            eve.run("ip", "address", "delete", "10.9.0.5/16", "dev", "eth0")
            eve.run("ip", "address", "add", "10.9.0.77/16", "dev", "eth0")
            announcement.doubt()
            for _ in range(5):  # until it has said goodbye, and nobody objected to it anew
                if said := await heard_in(bob):
                    break
        assert not announcement.stands
    assert said == Announced(("10.9.0.77",), 7770, PIN)


async def test_announcement_when_its_machine_is_where_it_was_then_it_stays_as_it_is() -> None:
    looks, looked = [0], asyncio.Event()

    def nowhere() -> list[Network]:
        looks[0] += 1
        looked.set()
        return []

    announcement = Announcement(nowhere)
    async with announcement.kept(7770, PIN):
        begun = looks[0]
        for _ in range(3):
            looked.clear()
            announcement.doubt()
            await looked.wait()
        assert not announcement.stands  # nobody can be told here
    assert looks[0] == begun + 3  # it looks twice to begin anew


@pytest.mark.long
async def test_announced_when_another_one_has_its_number_then_it_is_not(ada: Space, bob: Space) -> None:
    async with serving(ada), serving(bob) as (_, is_announced):
        assert not is_announced


@pytest.mark.long
async def test_find_when_the_network_carries_nothing_then_nobody(ada: Space, bob: Space) -> None:
    async with serving(ada):
        with bob.cut(Cut.UDP):
            assert await found(bob, ROOM, patience_s=0.5) is None
    assert await find(ROOM, []) is None


@pytest.mark.parametrize("networks", [[], [Network("192.0.2.7/24"), Network("8.8.4.4/24")]], ids=["none", "public"])
async def test_announced_when_there_is_no_network_or_the_internet_reaches_it_then_it_is_not(
    networks: list[Network],
) -> None:
    async with announced(7770, PIN, networks) as is_announced:
        assert not is_announced


def test_service_when_it_is_made_then_it_says_no_name_and_no_room() -> None:
    service = to_service(Announced(("192.0.2.7",), 7770, PIN), ROOM)
    said = f"{service.name} {service.server} {service.decoded_properties}"
    assert service.name == f"{ROOM % EMBEDDED_STEP}._kafila._tcp.local."
    assert str(ROOM) not in said
    assert from_service(service, HERE) == Announced(("192.0.2.7",), 7770, PIN)


def test_service_when_it_names_many_addresses_elsewhere_too_then_those_here_are_heard() -> None:
    service = to_service(Announced(("192.0.2.7",), 7770, PIN), ROOM)
    elsewhere = [ip_address("203.0.113.0") + n for n in range(200)]
    service.addresses = [one.packed for one in (*elsewhere, ip_address("192.0.2.7"), *elsewhere)]
    assert from_service(service, HERE) == Announced(("192.0.2.7",), 7770, PIN)
    service.addresses = [(ip_address("192.0.2.0") + n).packed for n in range(200)]
    heard = from_service(service, HERE)
    assert heard is not None
    assert len(heard.addresses) == 8


@pytest.mark.parametrize(
    "said",
    [
        Announced(("203.0.113.1",), 7770, PIN),  # elsewhere
        Announced((), 7770, PIN),
        Announced(("192.0.2.7",), 0, PIN),
        Announced(("192.0.2.7",), 7770, ""),
    ],
)
def test_service_when_it_can_not_be_of_this_network_then_it_is_not_heard(said: Announced) -> None:
    assert from_service(to_service(said, ROOM), HERE) is None
