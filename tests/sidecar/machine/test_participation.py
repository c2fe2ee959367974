"""One session on this machine: whatever ends it, its snapshot says so, and the node goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Denied, KafilaError
from kafila_sidecar.machine.participation import Participation
from kafila_sidecar.machine.watching import Changes, Shown, Snapshots
from kafila_sidecar.serving.stage import Stage
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.driving.changes import Change
from kafila_sidecar.session.driving.driver import SessionDriver
from kafila_sidecar.session.driving.links import StandingLinks
from kafila_sidecar.session.driving.turns import Turns
from kafila_sidecar.session.rendezvous.code import Code
from tests.sidecar.session.driver_world import TERMS, NoNetwork, PlayedChannel, PlayedShares, PlayedStage
from tests.support.no_outlook import NoOutlook

CHECKPOINT = SimpleNamespace(
    anatomy=SimpleNamespace(notices=("its window ends",)),
    config={},
    parameters=7,
    quantization="F32",
    generation_config={},
    small_files=Path(__file__).parent,  # where no template is
    weight_bytes=28,
    gap=None,
    in_use=nullcontext,
)


class EndingChannel(PlayedChannel):
    """A channel that runs until it is left, or fails."""

    def __init__(self) -> None:
        super().__init__("ada", "ada", "bob")
        self.session = b"0123456789abcdef"
        self.turns = Turns()
        self.ends_with: BaseException | None = None
        self.leaves_with: Exception | None = None
        self.left = 0
        self._ended = asyncio.Event()

    async def run(self) -> None:
        await self._ended.wait()
        if self.ends_with:
            raise self.ends_with

    async def leave(self) -> None:
        self.left += 1
        self._ended.set()
        if self.leaves_with:
            raise self.leaves_with

    def break_down(self, error: BaseException) -> None:
        self.ends_with = error
        self._ended.set()


def participation(channel: EndingChannel, typed: str = "", changes: Changes | None = None) -> Participation:
    async def measure() -> tuple[dict[str, Any], str]:
        await asyncio.Event().wait()
        raise AssertionError

    async def packings() -> dict[int, dict[str, Any]]:
        return {}

    changes, stage = changes or Changes(), PlayedStage()
    driver = SessionDriver(
        channel=cast(Any, channel),
        network=NoNetwork(),
        standing=StandingLinks(),
        stage=stage,
        turns=(turns := Turns()),
        terms=lambda: TERMS,
        shares=PlayedShares(),
        measure=measure,
        packings=packings,
        changed=changes.note,
    )
    channel.turns = turns
    return Participation(
        channel=cast(Any, channel),
        weights=cast(Any, SimpleNamespace(checkpoint=CHECKPOINT, in_use=nullcontext)),
        stage=cast(Stage, stage),
        driver=driver,
        outlook=NoOutlook(),
        changes=changes,
        typed=typed,
        note="at the host",
        spoken=str,
    )


@pytest.fixture
async def channel() -> EndingChannel:
    return EndingChannel()


async def test_session_when_left_then_it_ends_without_a_fault(channel: EndingChannel) -> None:
    session = participation(channel)
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0.05)
    session.driver.leave()
    await asyncio.wait_for(running, 5)
    assert not session.is_open
    session.check_open()
    assert channel.left == 1


async def test_session_when_its_history_is_forked_then_it_closes_with_that(channel: EndingChannel) -> None:
    session = participation(channel)
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0.05)
    channel.break_down(Denied("the host signed two histories"))
    await asyncio.wait_for(running, 5)
    with pytest.raises(Denied, match="two histories"):
        session.check_open()


@pytest.mark.parametrize("place", ["channel", "driver", "leaving"])
async def test_session_when_there_is_a_bug_then_it_closes_in_one_sentence_and_raises_nothing(
    channel: EndingChannel, place: str
) -> None:
    session = participation(channel)
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0.05)
    if place == "channel":
        channel.break_down(ExceptionGroup("unhandled errors in a TaskGroup", [ZeroDivisionError()]))
    elif place == "driver":
        channel.turns.soon(lambda: cast(Any, 1 // 0))
    else:
        channel.leaves_with = ZeroDivisionError()
        session.driver.leave()
    await asyncio.wait_for(running, 5)
    assert session.driver.follower.state is State.CLOSED
    if place != "leaving":
        with pytest.raises(KafilaError, match="a bug at ada ended the session") as fault:
            session.check_open()
        assert fault.value.code == "INTERNAL"


async def test_session_when_cancelled_then_everything_of_it_ends(channel: EndingChannel) -> None:
    session = participation(channel)
    before = asyncio.all_tasks()
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert asyncio.all_tasks() == before


class CountedSession:
    """A session that a test changes, and how often a snapshot of it was made."""

    def __init__(self) -> None:
        self.changes, self.session, self.taken = Changes(), pb.Session(doing="forming"), 0
        self.snapshots = Snapshots(self.changes, self._take)

    def _take(self) -> pb.Session:
        self.taken += 1
        return pb.Session.FromString(self.session.SerializeToString())

    def change(self, what: Change, **fields: Any) -> None:
        self.session.MergeFrom(pb.Session(**fields))
        self.changes.note(what)


@asynccontextmanager
async def watched_by(many: int, snapshots: Snapshots) -> AsyncIterator[list[list[Shown]]]:
    """Watchers, and what each was shown."""
    shown: list[list[Shown]] = [[] for _ in range(many)]

    async def watch(seen: list[Shown]) -> None:
        async with aclosing(snapshots.watch()) as watching:
            async for one in watching:
                seen.append(one)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch(seen)) for seen in shown]
        await settled()
        yield shown
        for task in tasks:
            task.cancel()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_snapshot_when_a_thousand_watch_one_change_then_it_is_made_once_for_all() -> None:
    counted = CountedSession()
    async with watched_by(1000, counted.snapshots) as shown:
        assert counted.taken == 1
        counted.change(Change.JOINING, code="7-ocean-velvet-lamp")
        await settled()
    assert counted.taken == 2
    assert {len(seen) for seen in shown} == {2}
    assert {seen[1].what for seen in shown} == {Change.JOINING}
    assert len({id(seen[1].session) for seen in shown}) == 1


async def test_snapshot_when_nobody_watches_or_nothing_changed_then_none_is_made() -> None:
    counted = CountedSession()
    counted.change(Change.STATE, doing="ready")
    assert counted.taken == 0
    async with watched_by(3, counted.snapshots):
        await asyncio.sleep(0.01)
    async with watched_by(3, counted.snapshots):
        pass
    assert counted.taken == 1


async def test_watcher_when_much_happens_before_it_looks_then_one_snapshot_names_it_all() -> None:
    counted = CountedSession()
    async with watched_by(1, counted.snapshots) as (seen,):
        counted.change(Change.STATE, doing="linking")
        counted.change(Change.PLAN, epoch=1)
        await settled()
        counted.changes.note(Change.LOAD)  # of which nothing shows
        await settled()
        counted.change(Change.LINKS, epoch=2)
        await settled()
    assert [one.what for one in seen[1:]] == [Change.STATE | Change.PLAN, Change.LOAD | Change.LINKS]


async def test_watch_when_the_session_changes_and_closes_then_each_change_has_its_name(channel: EndingChannel) -> None:
    changed = Changes()
    session = participation(channel, changes=changed)
    running = asyncio.create_task(session.run())
    seen: list[Shown] = []

    async def watch() -> None:
        async with aclosing(Snapshots(changed, session.snapshot).watch()) as watching:
            async for one in watching:
                seen.append(one)
                if one.session.state == "closed":
                    return

    watching = asyncio.create_task(watch())
    await settled()
    channel.joins("cyd")
    await settled()
    channel.joining, channel.code = "paused", Code(7, ("ocean", "velvet", "lamp"))
    session.told()
    await settled()
    session.driver.leave()
    await asyncio.wait_for(asyncio.gather(running, watching), 5)
    changes = [one.what for one in seen[1:]]
    assert [Change.MEMBERS in what for what in changes] == [True, False, False]
    assert changes[1] == Change.JOINING
    assert Change.STATE in changes[-1]
    assert seen[-1].session.state == "closed"


@pytest.mark.parametrize(
    ("event", "shown"),
    [("nothing", "7-ocean-velvet-lamp"), ("succession", ""), ("move", ""), ("room gone", "")],
)
async def test_typed_code_when_it_died_with_its_host_or_its_room_then_it_is_not_shown_any_more(
    event: str, shown: str, channel: EndingChannel
) -> None:
    session = participation(channel, "7-ocean-velvet-lamp")
    channel.host = "bob" if event == "succession" else channel.host
    channel.moves += event == "move"
    channel.has_room = event != "room gone"
    assert session.snapshot().code == shown
    assert session.code == "7-ocean-velvet-lamp"  # people may still call the session by it


async def test_note_when_this_member_moved_the_session_then_it_is_about_the_new_rendezvous(
    channel: EndingChannel,
) -> None:
    session = participation(channel)
    assert session.snapshot().rendezvous_note == "at the host"
    channel.note = "here"
    assert session.snapshot().rendezvous_note == "here"
