"""What a machine expects of each loss, says, tells of itself, and fetches for, while the session is ready and rests."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from kafila_planner import Plan, make_plan, problem_from_json
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Unavailable
from kafila_sidecar.machine.outlook import Outlook
from kafila_sidecar.machine.watching import Changes
from kafila_sidecar.runtime.activity import Activity
from kafila_sidecar.serving.holding import Part
from kafila_sidecar.session.coordination.effects import Proposal
from kafila_sidecar.session.coordination.follower import Follower
from kafila_sidecar.session.coordination.knowledge import Knowledge
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.driving.changes import Change
from kafila_sidecar.sharing.rates import Rates
from kafila_sidecar.sharing.spares import SpareRoom, Spares

GB = 10**9
NAMES = ("ada", "bob", "cyd")
MODEL = {
    "blocks": 6,
    "block_bytes": GB,
    "embed_bytes": GB,
    "unembed_bytes": GB,
    "kv_bytes_per_token_per_block": 0,
}
TERMS = PlanningTerms(3, MODEL, 64, 1, objective="latency", require=("all",))


class PlayedDisk:
    """A checkpoint of six blocks and a head, a name each, and the weights that a session has of it here."""

    sizes = MODEL

    def __init__(self, *here: str) -> None:
        self.here = set(here)
        self.rates = Rates(Path("rates.json"))  # nothing is measured, and so nothing written
        self.fetched: list[str] = []

    @property
    def checkpoint(self) -> "PlayedDisk":
        return self

    def shard(self, *, start: int, end: int, head: bool) -> frozenset[str]:
        return frozenset([str(block) for block in range(start, end)] + ["head"] * head)

    def shard_bytes(self, names: Iterable[str]) -> int:
        return sum(2 * GB if name == "head" else GB for name in names)

    def download_bytes(self, names: Iterable[str]) -> int:
        return self.shard_bytes(set(names) - self.here)

    async def fetch(self, names: Iterable[str]) -> None:
        self.fetched += sorted(names)
        self.here |= set(names)


class PlayedDriver:
    """Ada's, in a session that is ready; what she tells of herself all know at once."""

    def __init__(self, changes: Changes, *, rooms: int) -> None:
        self.knowledge = Knowledge()
        for name in NAMES:
            self.knowledge.measured(name, entry(name, rooms))
        made = make_plan(problem_from_json(self.knowledge.problem(TERMS, NAMES, host="ada")))
        assert isinstance(made, Plan)
        self.follower = Follower(name="ada", host="ada", members=NAMES)
        problem = problem_from_json(self.knowledge.problem(TERMS, NAMES, host="ada"))
        self.follower.proposal = Proposal(1, problem, made)
        self.follower.state = State.READY
        self.told: list[dict[str, Any]] = []
        self._changes = changes

    @property
    def plan(self) -> Plan:
        assert self.follower.proposal is not None
        return self.follower.proposal.plan

    def tell(self, fields: dict[str, Any]) -> None:
        known = self.knowledge.capabilities["ada"]
        if json.dumps({**known, **fields}) != json.dumps(known):
            self.told.append(fields["holds"])
            self.knowledge.measured("ada", {**known, **fields})
            self._changes.note(Change.PROGRESS)


class LoadedPart:
    """What ada's stage has in memory."""

    part = Part(0, 2, True)

    def __init__(self) -> None:
        self.text_is_read = asyncio.Event()
        self.has_no_text: Exception | None = None

    async def read_text(self) -> None:
        self.text_is_read.set()
        if self.has_no_text is not None:
            raise self.has_no_text


def entry(name: str, rooms: int) -> dict[str, Any]:
    return {
        "name": name,
        "nat": "permissive",
        "rtt_s": 0.01,
        "bandwidth_bytes_per_s": 100 * GB,
        "overhead_s": 0.001,
        "memory_bytes": rooms * GB,
    }


class Watched:
    """Ada's outlook, that runs. `rooms`: gigabytes of each machine."""

    def __init__(self, folder: Path, *here: str, rooms: int = 6, spare_bytes: int = 100 * GB) -> None:
        self.changes, self.rest, self.stage = Changes(), Activity(), LoadedPart()
        self.disk = PlayedDisk(*here)
        self.driver = PlayedDriver(self.changes, rooms=rooms)
        room = PlayedRoom(folder, bound_bytes=spare_bytes, left_bytes=lambda: None)
        self.outlook = Outlook(
            driver=cast(Any, self.driver),
            stage=cast(Any, self.stage),
            weights=cast(Any, self.disk),
            terms=lambda: TERMS,
            spares=Spares(weights=self.disk, room=room, rest=self.rest, quiet_s=0.0),
            rest=self.rest,
            changes=self.changes,
            quiet_s=0.0,
        )

    @property
    def said(self) -> dict[str, str]:
        session = pb.Session(members=[pb.Member(name=name) for name in NAMES])
        self.outlook.show(session)
        return {member.name: member.if_lost for member in session.members}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            with self.changes.watch() as watch:
                while not condition():
                    await watch.next()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.outlook.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()


class PlayedRoom(SpareRoom):
    """On a disk without an end."""

    def left(self, spare_bytes: int) -> int:
        return max(0, (self._bound_bytes or 0) - spare_bytes)


async def test_outlook_when_the_session_is_ready_then_it_says_of_each_what_its_loss_would_mean(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "0", "1", "head", spare_bytes=0)
    async with watched.running():
        await watched.until(lambda: all(watched.said.values()))
        assert all(told.startswith("goes on after about") for told in watched.said.values())
        assert watched.driver.told[0]["memory_blocks"] == [[0, 2]]
        assert watched.disk.fetched == []


async def test_outlook_when_the_others_are_too_small_then_it_says_how_much_is_lacking(tmp_path: Path) -> None:
    watched = Watched(tmp_path, rooms=3, spare_bytes=0)
    async with watched.running():
        await watched.until(lambda: all(watched.said.values()))
        assert set(watched.said.values()) == {"can't go on: 2.0 GB too little"}
        session = pb.Session(members=[pb.Member(name="bob")])
        watched.outlook.show(session)
        assert session.members[0].if_lost_missing_bytes == 2 * GB
        assert not session.members[0].HasField("if_lost_wait_s")


async def test_outlook_when_idle_then_what_any_loss_would_need_here_is_fetched_and_told(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "0", "1", "head")
    async with watched.running():
        await watched.until(lambda: len(watched.driver.told) > 1)
        assert watched.disk.fetched
        assert watched.driver.told[-1]["disk_blocks"] != watched.driver.told[0]["disk_blocks"]
        assert set(watched.disk.fetched) <= {str(block) for block in range(6)} | {"head"}


async def test_outlook_when_the_session_is_planned_again_then_nothing_is_said_until_it_is_ready(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "0", "1", "head", spare_bytes=0)
    async with watched.running():
        await watched.until(lambda: all(watched.said.values()))
        watched.driver.follower.state = State.REPLANNING
        watched.changes.note(Change.STATE)
        await watched.until(lambda: not any(watched.said.values()))
        watched.driver.follower.state = State.READY
        watched.changes.note(Change.STATE)
        await watched.until(lambda: all(watched.said.values()))


async def test_outlook_when_an_answer_runs_then_nothing_is_fetched_before_it_ends(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "0", "1", "head")
    with watched.rest.at_work():
        async with watched.running():
            for _ in range(20):
                await asyncio.sleep(0)
            assert watched.disk.fetched == []
            assert not any(watched.said.values())


@pytest.mark.parametrize("me", NAMES)
async def test_outlook_when_idle_then_who_would_be_the_next_head_starts_its_text_and_nobody_else(
    tmp_path: Path, me: str
) -> None:
    watched = Watched(tmp_path, spare_bytes=0)
    watched.driver.follower.name = me
    head = watched.driver.plan.head
    async with watched.running():
        await watched.until(lambda: all(watched.said.values()))
        then = watched.outlook._aftermaths[head].plan
        assert then is not None
        if me == then.head:
            await asyncio.wait_for(watched.stage.text_is_read.wait(), 10)
    assert watched.stage.text_is_read.is_set() == (me == then.head != head)


@pytest.mark.parametrize(
    "why", [Unavailable("the text process can't be started"), MemoryError()], ids=["said", "lacking"]
)
async def test_next_head_when_its_text_can_not_be_had_then_it_fetches_what_it_would_need_all_the_same(
    tmp_path: Path, why: Exception
) -> None:
    watched = Watched(tmp_path, "0", "1")
    watched.driver.follower.name = next(name for name in NAMES if name != watched.driver.plan.head)
    watched.stage.has_no_text = why
    async with watched.running():
        await watched.until(lambda: len(watched.driver.told) > 1)
    assert watched.stage.text_is_read.is_set()
    assert watched.disk.fetched


async def test_outlook_when_it_breaks_then_the_log_says_so_and_nobody_else_hears_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(tmp_path)
    watched.disk.sizes = {}
    watched.disk.shard = None  # type: ignore[assignment,method-assign]
    await asyncio.wait_for(watched.outlook.run(), 10)
    assert "outlook_failed" in caplog.text
