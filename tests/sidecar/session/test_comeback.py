"""Members that were started again come back through a real rendezvous: alone, to a live session, or all of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.session.admission.gathering import GatheringPace
from kafila_sidecar.session.calling.calling import Calling
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.channel.events import HostChanged, MemberJoined, MemberRemoved, MessageFrom
from kafila_sidecar.session.comeback import come_back, take_leave
from kafila_sidecar.session.join import approach, found
from kafila_sidecar.session.keeping.keeper import Keeper, kept_sessions
from kafila_sidecar.session.keeping.kept import KeptPlace
from kafila_sidecar.session.opening import JoinDeadlines, Local
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.session.rendezvous.mailbox import open_room
from kafila_sidecar.session.stay import CameBack, Outside
from kafila_sidecar.session.turnstile import Turnstile
from tests.sidecar.session.channel_world import TERMS, VERSIONS, rendezvous
from tests.sidecar.session.trust_world import go

PATIENCE_S = 20.0
BRISK = JoinDeadlines(gathering=GatheringPace(listen_s=0.5, knock_s=0.5, host_missed_s=2.0))


def to_nobody(datagrams: Sequence[bytes], target: Address) -> None:
    """Nobody can be called."""


class Home:
    """One machine's folder, its channel while its process runs, and what it hears."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.channel: Channel | None = None
        self.calling: Calling | None = None  # answers, once somebody may call
        self.heard: list[object] = []
        self.waits: list[str] = []
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def local(self) -> Local:
        return Local(self.folder / "one", VERSIONS, BRISK)

    @property
    def here(self) -> Channel:
        assert self.channel is not None
        return self.channel

    async def found(self, address: RendezvousAddress) -> None:
        self._run(await found(rendezvous=address, terms=TERMS, name=self.folder.name, local=self.local))

    async def join(self, code: Code | None) -> None:
        assert code is not None
        offer = await approach(code=code, name=self.folder.name, local=self.local)
        self._run(await offer.enrol())

    async def crash(self) -> None:
        """What its process knew is gone; the rendezvous sees the connection end."""
        await self.here.aclose()
        await asyncio.wait(self._tasks, timeout=PATIENCE_S)
        self.channel, self._tasks, self.heard = None, [], []

    async def restart(self) -> CameBack:
        keeper = self.kept()
        coming = come_back(
            keeper=keeper,
            local=self.local,
            told=self.waits.append,
            moved=asyncio.Event(),
            turnstile=Turnstile(),
            calling=self.calling or Calling(keeper, to_nobody),
        )
        back = await asyncio.wait_for(coming, PATIENCE_S)
        self._run(back.channel)
        return back

    def kept(self) -> Keeper:
        return next(kept_sessions(self.folder))

    async def hears(self, kind: type, text: str = "") -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not any(isinstance(one, kind) and text in repr(one) for one in self.heard):
                self._news.clear()
                await self._news.wait()

    def _run(self, channel: Channel) -> None:
        self.channel = channel
        self._tasks = [asyncio.create_task(channel.run()), asyncio.create_task(self._listen(channel))]

    async def _listen(self, channel: Channel) -> None:
        async for event in channel.events():
            self.heard.append(event)
            self._news.set()


@pytest.fixture
async def address() -> AsyncIterator[RendezvousAddress]:
    async with rendezvous(tls=False) as place:
        yield place


@pytest.fixture
async def homes(tmp_path: Path, address: RendezvousAddress) -> AsyncIterator[list[Home]]:
    """The host and two members, all in."""
    all_homes = [Home(tmp_path / name) for name in ("hal", "ada", "bob")]
    host, *others = all_homes
    await host.found(address)
    for one in others:
        await one.join(host.here.code)
    await all_homes[1].hears(MemberJoined, "bob")
    yield all_homes
    for one in all_homes:
        if one.channel is not None:
            with contextlib.suppress(KafilaError):
                await one.crash()


def names(home: Home) -> list[str]:
    return sorted(member.name for member in home.here.members)


async def test_member_when_started_again_then_it_is_the_same_one_without_a_code(homes: list[Home]) -> None:
    host, ada, bob = homes
    before = ada.here.identity.fingerprint
    await ada.crash()
    back = await ada.restart()
    assert not back.leads
    assert ada.here.identity.fingerprint == before
    await bob.hears(MemberRemoved, "ada")
    await ada.here.send(go(3))
    await bob.hears(MessageFrom, "epoch: 3")
    await bob.here.send(go(4))
    await ada.hears(MessageFrom, "epoch: 4")
    assert names(host) == names(ada) == names(bob) == ["ada", "bob", "hal"]


async def test_member_when_it_was_removed_as_lost_then_it_comes_back_and_reads_what_is_said(homes: list[Home]) -> None:
    host, ada, bob = homes
    await ada.crash()
    host.here.remove("ada", "lost")
    await bob.hears(MemberRemoved, "ada")
    host.here.lock(True)
    await ada.restart()
    await host.here.send(go(5))
    await ada.hears(MessageFrom, "epoch: 5")
    await ada.here.send(go(6))
    await bob.hears(MessageFrom, "epoch: 6")


@pytest.mark.parametrize("reason", ["removed", "left"])
async def test_member_when_it_was_put_out_or_left_then_there_is_no_way_back(homes: list[Home], reason: str) -> None:
    host, ada, _ = homes
    await ada.crash()
    host.here.remove("ada", reason)
    with pytest.raises(Outside, match="ask for its code"):
        await ada.restart()


async def test_member_when_the_session_is_over_then_there_is_no_way_back(homes: list[Home]) -> None:
    host, ada, _ = homes
    await ada.crash()
    host.here.end_admission()
    with pytest.raises(Outside, match="over"):
        await ada.restart()


async def test_session_when_all_were_started_again_then_it_is_there_with_the_same_code(homes: list[Home]) -> None:
    host, ada, bob = homes
    code = host.here.code
    for one in homes:
        await one.crash()
    backs = await asyncio.gather(*(one.restart() for one in homes))
    assert [back.leads for back in backs] == [True, False, False]
    assert host.here.code == code
    assert host.here.takeovers == 1  # so that its epochs are above all before
    await bob.here.send(go(7))
    await host.hears(MessageFrom, "epoch: 7")
    await ada.hears(MessageFrom, "epoch: 7")
    assert names(host) == names(ada) == names(bob) == ["ada", "bob", "hal"]


async def test_session_when_its_host_stays_away_then_the_others_go_on_without_it(homes: list[Home]) -> None:
    host, ada, bob = homes
    for one in homes:
        await one.crash()
    backs = await asyncio.gather(ada.restart(), bob.restart())
    assert [back.leads for back in backs] == [True, False]
    assert names(ada) == names(bob) == ["ada", "bob"]
    await host.restart()
    await host.here.send(go(8))
    await ada.hears(MessageFrom, "epoch: 8")
    assert host.here.host == "ada"
    assert names(host) == ["ada", "bob", "hal"]


async def test_host_when_it_went_on_alone_then_it_gives_way_to_the_others(homes: list[Home]) -> None:
    host, ada, bob = homes
    await ada.crash()
    await bob.crash()
    host.here.remove("ada", "lost")
    host.here.remove("bob", "lost")
    kept = host.kept().kept
    await host.crash()
    await asyncio.gather(ada.restart(), bob.restart())
    keeper = Keeper(host.folder / "one", replace(kept))
    keeper.note()
    await host.restart()
    assert host.here.host == "ada"
    assert names(host) == ["ada", "bob", "hal"]


async def test_member_when_nobody_is_there_then_it_says_for_whom_it_waits(homes: list[Home]) -> None:
    for one in homes:
        await one.crash()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(homes[1].restart(), 1.0)
    assert homes[1].waits[-1] == "waits for hal, bob"


async def test_leave_when_this_machine_was_on_its_way_back_then_the_host_hears_it_and_nobody_waits_for_it(
    homes: list[Home],
) -> None:
    host, ada, bob = homes
    await ada.crash()
    await take_leave(keeper=ada.kept(), local=ada.local)
    await host.hears(MemberRemoved, "left")
    await bob.hears(MemberRemoved, "left")
    with pytest.raises(Outside, match="ask for its code"):
        await ada.restart()


async def test_leave_when_all_were_on_their_way_back_then_the_host_goes_on_without_who_left(homes: list[Home]) -> None:
    host, ada, bob = homes
    for one in homes:
        await one.crash()
    back = asyncio.create_task(host.restart())
    await asyncio.sleep(0.2)
    await take_leave(keeper=ada.kept(), local=ada.local)
    assert (await back).leads
    assert names(host) == ["bob", "hal"]
    await bob.restart()
    assert names(bob) == ["bob", "hal"]


async def test_leave_when_nobody_hears_it_then_it_ends_in_a_few_seconds(homes: list[Home]) -> None:
    for one in homes:
        await one.crash()
    await asyncio.wait_for(take_leave(keeper=homes[1].kept(), local=homes[1].local), 10.0)


class Wire:
    """Carries calls to whoever has that address now."""

    def __init__(self) -> None:
        self.at: dict[Address, Home] = {}

    def plug(self, home: Home, address: Address) -> None:
        self.at = {one: other for one, other in self.at.items() if other is not home}
        self.at[address] = home
        keeper = home.here.keeper if home.channel is not None else home.kept()
        home.calling = Calling(keeper, lambda datagrams, target: self._carry(datagrams, address, target))

    def _carry(self, datagrams: Sequence[bytes], source: Address, target: Address) -> None:
        home = self.at.get(target)
        if home is not None and home.calling is not None:
            for datagram in datagrams:
                asyncio.get_running_loop().call_soon(home.calling.receive, datagram, source)


def at(number: int) -> Address:
    return f"192.0.2.{number}", 4000


def say_where(homes: list[Home]) -> None:
    """Everybody keeps where the others are, `at` 1, 2, …"""
    for one in homes:
        for number, other in enumerate(homes, 1):
            if other is not one:
                one.here.keeper.reached(other.here.residence.me, [at(number)])
        one.here.keeper.note()


@pytest.mark.parametrize("by", ["a call", "the host in the old room"])
async def test_host_when_the_others_moved_while_it_was_away_then_it_hears_where_and_is_a_member(
    tmp_path: Path, by: str
) -> None:
    """Its own old rendezvous is there, where it finds nobody who takes it back."""
    homes = [Home(tmp_path / name) for name in ("hal", "ada", "bob")]
    host, ada, bob = homes
    wire = Wire()
    async with rendezvous(tls=True) as old, rendezvous(tls=True) as new:
        await host.found(old)
        for one in (ada, bob):
            await one.join(host.here.code)
        await ada.hears(MemberJoined, "bob")
        say_where(homes)
        await host.crash()
        for one in (ada, bob):
            one.here.vote("ada")
        await ada.hears(HostChanged)
        await bob.hears(HostChanged)
        moved = await open_room(new)
        ada.here.residence.settle(moved, ring_pb2.Moved(number=1, address=str(new), room=moved.place.room, since=9), "")
        if by == "a call":
            ada.here.keeper.note(places=ada.here.keeper.kept.places[:1])  # it knows of no old room
            for number, one in ((7, host), (2, ada), (3, bob)):
                wire.plug(one, at(number))
        await host.restart()
        assert host.here.rendezvous.address == new
        assert host.here.host == ada.here.host == "ada"
        assert names(host) == ["ada", "bob", "hal"]
        for one in homes:
            with contextlib.suppress(KafilaError):
                await one.crash()


async def test_session_when_its_rendezvous_has_another_address_after_a_power_cut_then_all_meet_there(
    tmp_path: Path,
) -> None:
    """The host's machine has another address, and its rendezvous with it: the others hear so at theirs."""
    homes = [Home(tmp_path / name) for name in ("hal", "ada")]
    host, ada = homes
    wire = Wire()
    async with rendezvous(tls=True) as old:
        await host.found(old)
        await ada.join(host.here.code)
        say_where(homes)
        for one in homes:
            await one.crash()
    async with rendezvous(tls=True) as new:
        room = await open_room(new)
        keeper = host.kept()
        keeper.note(places=(KeptPlace(new, room.place),))
        await room.aclose()
        for number, one in ((7, host), (2, ada)):
            wire.plug(one, at(number))
        backs = await asyncio.gather(host.restart(), ada.restart())
        assert [back.leads for back in backs] == [True, False]
        assert ada.here.rendezvous.address == new
        assert names(host) == names(ada) == ["ada", "hal"]
        for one in homes:
            with contextlib.suppress(KafilaError):
                await one.crash()
