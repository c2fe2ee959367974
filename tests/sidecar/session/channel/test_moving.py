"""A session's room at another rendezvous: opened by the host, followed by the others, good for newcomers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.session.channel.events import HostChanged, MessageFrom, RoomMoved
from kafila_sidecar.session.channel.whereabouts import MOVES_PER_HOST
from kafila_sidecar.session.opening import JoinDeadlines
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.session.rendezvous.elsewhere import Elsewhere, OfferedRendezvous, nowhere
from tests.sidecar.session.channel_world import PATIENT, ChannelPerson, Company, rendezvous

EMBEDDED = ring_pb2.SessionTerms(model="m", rendezvous_at_host=True)
NOBODY = RendezvousAddress("127.0.0.1", 9, None, insecure=True)


class OfferedPlaces:
    """Where somebody could open a room, and how many of these were looked at."""

    def __init__(self, *addresses: RendezvousAddress) -> None:
        self.looked_at = 0
        self._addresses = addresses

    async def __call__(self) -> AsyncGenerator[OfferedRendezvous, None]:
        for address in self._addresses:
            self.looked_at += 1
            yield OfferedRendezvous(address, at_host=True, note="it runs on this machine")


def join_by_link(one: ChannelPerson, other: ChannelPerson) -> None:
    """A wire between two members, as a link is."""
    one.channel.attach(other.channel.receive, other.channel.self_name)
    other.channel.attach(one.channel.receive, one.channel.self_name)


class Orphans:
    """A host that embeds the rendezvous and two members, who have a link to each other."""

    def __init__(self, folder: Path) -> None:
        self.company = Company(folder)
        self.old = AsyncExitStack()

    async def form(self, elm: Elsewhere, deadlines: JoinDeadlines = PATIENT) -> None:
        address = await self.old.enter_async_context(rendezvous(tls=True))
        self.host = await self.company.host(address, EMBEDDED)
        self.old_code = self.host.channel.code
        self.elm = await self.company.join(self.old_code, "elm", deadlines=deadlines, elsewhere=elm)
        self.oak = await self.company.join(self.old_code, "oak")
        while not all(len(one.channel.members) == 3 for one in (self.host, self.elm, self.oak)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        join_by_link(self.elm, self.oak)

    async def lose_host(self) -> None:
        """The host's machine is gone, and its rendezvous with it."""
        await self.host.channel.aclose()
        await asyncio.wait([self.host.run])
        await self.old.aclose()
        for one in (self.elm, self.oak):
            one.channel.vote("elm")
        await self.elm.hear(HostChanged)
        await self.oak.hear(HostChanged)


@pytest.fixture
async def orphans(tmp_path: Path) -> AsyncIterator[Orphans]:
    made = Orphans(tmp_path)
    yield made
    await made.company.end()
    await made.old.aclose()


async def test_room_when_its_rendezvous_died_with_the_host_then_the_successor_opens_another_and_all_meet_there(
    orphans: Orphans,
) -> None:
    async with rendezvous(tls=True) as new:
        await orphans.form(OfferedPlaces(new))
        await orphans.lose_host()
        await orphans.elm.hear(RoomMoved)
        await orphans.oak.hear(RoomMoved)
        code = orphans.elm.channel.code
        assert isinstance(code, Code)
        assert code.address == new
        assert orphans.elm.channel.note == "it runs on this machine"
        assert orphans.old_code is not None
        assert code.words != orphans.old_code.words
        newcomer = await orphans.company.join(code, "fir")
        for one in (orphans.elm, orphans.oak, newcomer):
            await one.channel.send(ring_pb2.Control(ask=ring_pb2.Ask(member="x")))
        for one in (orphans.elm, orphans.oak, newcomer):
            for other in {"elm", "oak", "fir"} - {one.channel.self_name}:
                await one.hear(
                    MessageFrom,
                    lambda m, other=other: m.sender == other and m.control.HasField("ask"),  # type: ignore[misc]
                )
        assert [one.channel.joining for one in (orphans.elm, orphans.oak)] == ["open", "open"]
        assert orphans.oak.channel.code is None
        places = orphans.oak.channel.keeper.kept.places
        assert [place.address for place in places] == [new, orphans.old_code.address]
        assert places[0].mailbox == orphans.oak.channel.rendezvous.place


async def test_mail_when_all_have_moved_then_it_reaches_everybody_without_a_link(orphans: Orphans) -> None:
    async with rendezvous(tls=True) as new:
        await orphans.form(OfferedPlaces(new))
        await orphans.lose_host()
        await orphans.oak.hear(RoomMoved)
        await orphans.elm.hear(RoomMoved)
        for one, other in ((orphans.elm, orphans.oak), (orphans.oak, orphans.elm)):
            one.channel.detach(other.channel.receive)
        newcomer = await orphans.company.join(orphans.elm.channel.code, "fir")
        await newcomer.channel.send(ring_pb2.Control(ask=ring_pb2.Ask(member="x")))
        for one in (orphans.elm, orphans.oak):
            await one.hear(MessageFrom, lambda m: m.sender == "fir" and m.control.HasField("ask"))
        await orphans.oak.channel.send(ring_pb2.Control(ask=ring_pb2.Ask(member="y")))
        for one in (orphans.elm, newcomer):
            await one.hear(MessageFrom, lambda m: m.sender == "oak" and m.control.HasField("ask"))


async def test_room_when_the_first_place_does_not_answer_then_the_next_one_is_taken(orphans: Orphans) -> None:
    async with rendezvous(tls=True) as new:
        await orphans.form(OfferedPlaces(NOBODY, new))
        await orphans.lose_host()
        await orphans.oak.hear(RoomMoved)
        assert orphans.oak.channel.rendezvous.address == new


async def test_room_when_nobody_can_come_there_then_it_is_no_place_and_the_next_one_is(orphans: Orphans) -> None:
    async with rendezvous(tls=True, places=1) as closed, rendezvous(tls=True) as new:
        await orphans.form(OfferedPlaces(closed, new), deadlines=JoinDeadlines(trial_s=0.5))
        await orphans.lose_host()
        await orphans.oak.hear(RoomMoved)
        await orphans.elm.hear(RoomMoved)
        assert orphans.elm.channel.rendezvous.address == orphans.oak.channel.rendezvous.address == new
        assert orphans.elm.channel.moves == orphans.oak.channel.moves == MOVES_PER_HOST + 2  # of the second host


async def test_rendezvous_when_it_lives_then_a_new_host_looks_for_no_other(orphans: Orphans) -> None:
    async with rendezvous(tls=True) as new:
        places = OfferedPlaces(new)
        await orphans.form(places)
        await orphans.host.channel.leave()
        await orphans.elm.hear(HostChanged)
        await asyncio.sleep(0.2)
        assert places.looked_at == 0
        assert orphans.elm.channel.moves == 0


async def test_move_when_somebody_else_than_the_host_tells_it_then_nobody_follows(orphans: Orphans) -> None:
    async with rendezvous(tls=True) as new:
        await orphans.form(OfferedPlaces(new))
        move = ring_pb2.Moved(number=1, address=str(new), room=1, since=3)
        await orphans.oak.channel.send(ring_pb2.Control(moved=move))
        await orphans.oak.channel.send(ring_pb2.Control(ask=ring_pb2.Ask(member="x")))
        await orphans.elm.hear(MessageFrom, lambda m: m.control.HasField("ask"))
        await asyncio.sleep(0.2)
        assert orphans.elm.channel.moves == 0


@pytest.mark.parametrize(
    "move",
    [
        ring_pb2.Moved(number=1, address="nonsense", room=1),
        ring_pb2.Moved(number=2**32 - 1, address="127.0.0.1:1", room=1),
        ring_pb2.Moved(number=10**6, address="127.0.0.1:1", room=1),
        ring_pb2.Moved(number=1, address="a..b:1#abcdefghijklmnop", room=1),
        ring_pb2.Moved(number=0, address="127.0.0.1:1", room=1),
        ring_pb2.Moved(number=1, address="127.0.0.1:1", room=0),
        ring_pb2.Moved(number=1, address="grpc+insecure://8.8.8.8:1", room=1),
    ],
)
async def test_move_when_it_leads_nowhere_then_it_is_dropped(move: ring_pb2.Moved, orphans: Orphans) -> None:
    await orphans.form(nowhere)
    await orphans.host.channel.send(ring_pb2.Control(moved=move))
    await orphans.host.channel.send(ring_pb2.Control(ask=ring_pb2.Ask(member="x")))
    await orphans.elm.hear(MessageFrom, lambda m: m.control.HasField("ask"))
    await asyncio.sleep(0.2)
    assert orphans.elm.channel.moves == 0
    assert not orphans.elm.run.done()
