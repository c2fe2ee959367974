"""Runs that a device computes while the thread that builds them goes on: which begin, and when."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest

from kafila_sidecar.runtime.handed_over import HandedOver
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.finite import NotFinite
from kafila_sidecar.runtime.shard.picking import Pick
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.runtime.text.options import SamplingOptions
from kafila_sidecar.runtime.text.sample import Sampler
from kafila_sidecar.serving.running.headwork import HeadWork
from kafila_sidecar.serving.worker import Bounds
from tests.sidecar.serving.rings import PlainShard, PlainThread, Round, settle, state


class HandingShard(PlainShard):
    """Hands over every step."""

    hands_over = True

    def hand_over_rows(self, rows: Sequence[tuple[int, HiddenState]]) -> HandedOver[list[HiddenState | NotFinite]]:
        return HandedOver(partial(self.run_rows, rows))


class DeviceThread(PlainThread):
    """What is handed over ends when the test says so."""

    def __init__(self) -> None:
        self.given = deque[tuple[asyncio.Future[Any], HandedOver[Any]]]()

    def _answer(self, outcome: "asyncio.Future[Any]", call: Callable[[], Any]) -> None:
        result = call()
        if isinstance(result, HandedOver):
            self.given.append((outcome, result))
        else:
            outcome.set_result(result)

    def end_one(self) -> None:
        outcome, given = self.given.popleft()
        outcome.set_result(given.finish())


def pairs(users: int) -> int:
    return min(users, 2)


@pytest.fixture
async def stage() -> tuple[Round, DeviceThread]:
    """A ring whose only other stage hands over its runs."""
    bounds = Bounds(sequences=8, tokens=64, chunk_tokens=64)
    made, thread = Round(workers=1, rows=pairs, bounds=bounds), DeviceThread()
    made.shards[0].__class__ = HandingShard
    made.workers[0]._mlx = cast(MlxThread, thread)
    return made, thread


async def test_run_when_one_is_under_way_then_only_a_full_one_begins_behind_it_and_no_third(
    stage: tuple[Round, DeviceThread],
) -> None:
    made, thread = stage
    going = [asyncio.ensure_future(made.token(sequence, 0, value=sequence)) for sequence in range(1, 7)]
    begun = []
    while not all(one.done() for one in going):
        await settle()
        begun.append(len(thread.given))
        thread.end_one()
        await settle()
    assert begun == [2, 2, 1, 1]  # the first that came, two pairs, and the last one once nothing was under way
    assert [one.result() for one in going] == [sequence + 1 for sequence in range(1, 7)]
    assert made.shards[0].most_rows == 2
    await made.end()


async def test_run_when_the_ring_breaks_while_it_is_computed_then_nothing_is_left(
    stage: tuple[Round, DeviceThread],
) -> None:
    made, thread = stage
    going = [asyncio.ensure_future(made.token(sequence, 0)) for sequence in range(1, 5)]
    await settle()
    made.wires[0].cut()
    await settle()
    assert made.held == [set()]
    assert all(isinstance(error, Exception) for error in await asyncio.gather(*going, return_exceptions=True))
    thread.given.clear()
    await made.end()


async def test_frames_when_several_calls_send_them_at_the_same_moment_then_they_go_in_one_write_and_run_together() -> (
    None
):
    made = Round(workers=1)
    await asyncio.gather(*(made.token(sequence, 0) for sequence in (1, 2, 3)))
    writes = made.wires[0].ends[0][0].writes
    assert await asyncio.gather(*(made.token(sequence, 1, value=sequence) for sequence in (1, 2, 3))) == [2, 3, 4]
    assert made.wires[0].ends[0][0].writes == writes + 1
    assert made.shards[0].most_rows == 3
    await made.end()


class Preparing:
    """In place of a shard and its thread: which picks are built together."""

    hands_over = False

    def __init__(self) -> None:
        self.built: list[list[int]] = []

    def build_pick(self, rows: Sequence[Pick]) -> None:
        self.built.append([row.sequence for row in rows])

    def when_idle(self, call: Callable[..., object], *arguments: Any) -> None:
        call(*arguments)


@pytest.mark.parametrize(
    ("rows", "built"), [(1, [[1], [2], [3], [4], [5]]), (2, [[1, 2], [3, 4]]), (5, [[1, 2, 3, 4, 5]]), (8, [])]
)
async def test_picks_when_expected_at_the_same_moment_then_those_of_full_runs_are_built_together(
    rows: int, built: list[list[int]]
) -> None:
    prepared = Preparing()
    work = HeadWork(shard=cast(Shard, prepared), mlx=cast(MlxThread, prepared), rows=lambda _: rows)
    for sequence in range(1, 6):
        work.enter()
        work.expect(Pick(sequence, state(4), Sampler(SamplingOptions()), goes_on=True))
    await settle()
    assert prepared.built == built


async def test_step_when_it_is_built_ahead_then_what_the_stage_made_before_has_left() -> None:
    made = Round(workers=1)
    written: list[int] = []

    class WritesWatched(PlainThread):
        def when_idle(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
            written.append(made.wires[1].ends[0][0].writes)

    made.workers[0]._mlx = cast(MlxThread, WritesWatched())
    for position in range(4):
        await made.token(1, position)
        await settle()
    assert written == [2, 3, 4, 5]  # with the one that opened the stream
    await made.end()
