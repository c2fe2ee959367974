import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.errors import Refused
from kafila_sidecar.runtime.activity import Activity
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.probe import probe as probe_module
from kafila_sidecar.runtime.probe.cost import Cost
from kafila_sidecar.runtime.probe.host_lock import HostLock
from kafila_sidecar.runtime.probe.kept import LASTS_S, SERVED_LASTS_S
from kafila_sidecar.runtime.probe.probe import (
    MOST_READINGS,
    WIDE_SPREAD,
    Measurement,
    cost_of,
    doubts_of,
    line,
    probe,
    spread,
)
from kafila_sidecar.runtime.probe.rounds import (
    HEAD,
    LEAST_COUNTS,
    ROUND_S,
    SLOWEST_ROUND_S,
    Readings,
    counts_of,
)
from tests.support.tiny import SHAPE

pytestmark = pytest.mark.mlx

CONFIG: dict[str, Any] = {"model_type": "llama", **SHAPE}
COST = Cost(
    device="cpu: test",
    dtype="float32",
    block_bytes=1_000_000,
    block_s={1: 0.001, 8: 0.004},
    overhead_s=0.0001,
    head_s={1: 0.002},
    flops_per_s=1e10,
    spread=0.1,
)


@pytest.fixture
async def thread() -> AsyncIterator[MlxThread]:
    thread = MlxThread()
    yield thread
    thread.close()


def reading(*rounds: Mapping[int, float], head: float = 0.002) -> Any:
    rounds_s = {1: tuple({HEAD: head, **blocks} for blocks in rounds)}
    return Readings(block_bytes=10**6, rounds_s=rounds_s, flops_per_s=1e10)


def remembered(cache: Path) -> list[Path]:
    return list(cache.glob("probe-*.json"))


def test_line_when_times_are_on_one_then_its_slope_and_intercept() -> None:
    assert line({1: 3.0, 2: 5.0, 4: 9.0}) == pytest.approx((2.0, 1.0))
    assert line({2: 3.0}) == (1.5, 0.0)


def test_cost_when_one_round_was_disturbed_then_the_others_count() -> None:
    calm, disturbed = {1: 0.003, 2: 0.005, 4: 0.009}, {1: 0.003, 2: 0.9, 4: 0.8}
    cost = cost_of(reading(calm, disturbed, calm, calm, calm), device="d", dtype="float32")
    assert cost.block_s == pytest.approx({1: 0.002})
    assert cost.overhead_s == pytest.approx(0.001)


def test_cost_when_the_head_ran_in_rounds_of_its_own_then_it_counts() -> None:
    blocks, heads = [{1: 0.003, 2: 0.005}] * 3, [{HEAD: 0.002}, {HEAD: 0.004}, {HEAD: 0.001}]
    rounds_s = {1: (*blocks, *heads), 4: ({1: 0.004, 2: 0.007},)}
    together = replace(reading({1: 0.003, 2: 0.005}), rounds_s=rounds_s)
    cost = cost_of(together, device="d", dtype="float32")
    assert cost.head_s == {1: 0.002}
    assert cost.block_s == pytest.approx({1: 0.002, 4: 0.003})
    assert cost.spread == 0


def test_overhead_when_the_line_crosses_below_zero_then_none() -> None:
    assert cost_of(reading({1: 0.001, 2: 0.003}), device="d", dtype="float32").overhead_s == 0


@pytest.mark.parametrize(("values", "expected"), [([3.0], 0.0), ([1.0, 1.0, 1.0], 0.0), ([1.0, 2.0, 3.0], 0.25)])
def test_spread_when_taken_then_half_the_middle_half(values: list[float], expected: float) -> None:
    assert spread(values) == pytest.approx(expected)


@pytest.mark.parametrize(
    "change",
    [
        {"block_s": {1: -0.001}},
        {"block_s": {1: 0.0}},
        {"block_s": {1: nan}},
        {"block_s": {1: 1e-12}},
        {"block_s": {1: 0.001, 4: inf}},
        {"head_s": {1: 0.0}},
        {"flops_per_s": nan},
        {"spread": 2.0},
        {"spread": nan},
    ],
    ids=str,
)
def test_cost_when_it_makes_no_sense_then_doubted(change: dict[str, Any]) -> None:
    assert doubts_of(COST) == []
    assert doubts_of(replace(COST, **change)) != []


def test_measurement_when_made_json_then_the_planners_fields() -> None:
    member = Measurement(cost=COST, memory_bytes=7).member_json()
    assert json.loads(json.dumps(member)) == {
        "bandwidth_bytes_per_s": pytest.approx(1e9),
        "overhead_s": 0.0001,
        "flops_per_s": 1e10,
        "memory_bytes": 7,
        "block_s": {"1": 0.001, "8": 0.004},
        "head_s": {"1": 0.002},
    }


PACKINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "4 bits": {"group_size": 32, "bits": 4},
    "mxfp4": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    "nvfp4": {"group_size": 16, "bits": 4, "mode": "nvfp4"},
    "mxfp8": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
}


@pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS)
async def test_probe_when_first_asked_then_measures_and_afterwards_remembers(
    thread: MlxThread, tmp_path: Path, packing: dict[str, Any]
) -> None:
    config = CONFIG | ({"quantization": packing} if packing else {})
    began = time.monotonic()
    first = await probe(thread, config, "float32", most_rows=8, cache=tmp_path, lock=HostLock(tmp_path / "lock"))
    assert time.monotonic() - began < 10
    assert doubts_of(first.cost) == []
    assert first.memory_bytes > 0

    def never(config: Mapping[str, Any], dtype: str) -> Any:
        raise AssertionError

    config["max_position_embeddings"] = 9  # makes no difference
    again = await probe(thread, config, "float32", most_rows=8, cache=tmp_path, read=never)
    assert again.cost == first.cost


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"block_s": {"1": -1}, "head_s": {}}'])
async def test_probe_when_its_memory_is_broken_then_measures(thread: MlxThread, tmp_path: Path, content: str) -> None:
    def read(config: Mapping[str, Any], dtype: str) -> Any:
        return reading({1: 0.003, 2: 0.005})

    lock = HostLock(tmp_path / "lock")
    await probe(thread, CONFIG, "float32", most_rows=8, cache=tmp_path, lock=lock, read=read)
    (file,) = remembered(tmp_path)
    file.write_text(content)
    measured = await probe(thread, CONFIG, "float32", most_rows=8, cache=tmp_path, lock=lock, read=read)
    assert measured.cost.block_s == pytest.approx({1: 0.002})


async def test_probe_when_nonsense_once_then_measured_again(thread: MlxThread, tmp_path: Path) -> None:
    readings = [reading({1: 0.005, 2: 0.003}), reading({1: 0.003, 2: 0.005})]

    def read(config: Mapping[str, Any], dtype: str) -> Any:
        return readings.pop(0)

    measured = await probe(
        thread, CONFIG, "float32", most_rows=8, cache=tmp_path, lock=HostLock(tmp_path / "lock"), read=read
    )
    assert measured.cost.block_s == pytest.approx({1: 0.002})


@pytest.mark.parametrize(
    ("block_s", "counts"),
    [(0.001, [1, 2, 3, 4, 8]), (0.03, [1, 2, 3, 4]), (0.1, [1, 2, 3]), (0.19, [1, 2, 3]), (0.5, [1])],
)
def test_blocks_when_a_machine_is_slow_then_three_numbers_of_them_still(block_s: float, counts: list[int]) -> None:
    assert counts_of(30, block_bytes=10**6, block_s=block_s, room_bytes=10**9) == counts


@given(st.integers(1, 64), st.integers(1, 10**9), st.floats(1e-6, 2.0), st.integers(10**6, 10**11))
def test_blocks_when_chosen_then_they_fit_and_a_round_ends_in_time(
    blocks: int, block_bytes: int, block_s: float, room_bytes: int
) -> None:
    counts = counts_of(blocks, block_bytes=block_bytes, block_s=block_s, room_bytes=room_bytes)
    assert counts[0] == 1
    assert max(counts) <= blocks
    assert len(counts) == 1 or sum(counts) * block_bytes <= room_bytes
    assert len(counts) == 1 or sum(counts) * block_s <= (SLOWEST_ROUND_S if len(counts) <= LEAST_COUNTS else ROUND_S)
    is_free = blocks >= 3 and 6 * block_bytes <= room_bytes and 6 * block_s <= SLOWEST_ROUND_S
    assert len(counts) >= LEAST_COUNTS or not is_free


async def test_probe_when_readings_differ_much_then_more_are_taken_and_all_count(
    thread: MlxThread, tmp_path: Path
) -> None:
    wide = reading({1: 0.002, 2: 0.004}, {1: 0.004, 2: 0.008}, {1: 0.003, 2: 0.006})
    calm = reading(*[{1: 0.003, 2: 0.006}] * 9)
    readings = [wide, calm, calm]

    def read(config: Mapping[str, Any], dtype: str) -> Any:
        return readings.pop(0)

    measured = await probe(
        thread, CONFIG, "float32", most_rows=8, cache=tmp_path, lock=HostLock(tmp_path / "lock"), read=read
    )
    assert len(readings) == 1
    assert measured.cost.spread < WIDE_SPREAD
    assert measured.cost.block_s == pytest.approx({1: 0.003})


@pytest.mark.parametrize(("round_s", "sizes"), [(0.001, [1, 4, 8]), (0.2, [1, 4]), (1.0, [1])])
def test_batch_sizes_when_the_first_step_takes_long_then_those_that_later_ones_leave_time_for(
    round_s: float, sizes: list[int]
) -> None:
    """A GPU compiles its programs with the first step."""
    from kafila_sidecar.runtime.probe.readings import LATE_S, by_batch, clock

    def rounds(batch: int) -> Iterator[Mapping[int, float]]:
        time.sleep(0.3)
        yield from [{1: round_s / 2, 2: round_s / 2}] * 4

    assert list(by_batch(rounds, (1, 4, 8), clock() + LATE_S)) == sizes


async def test_probe_when_readings_differ_for_good_then_it_ends(thread: MlxThread, tmp_path: Path) -> None:
    taken = []

    def read(config: Mapping[str, Any], dtype: str) -> Any:
        taken.append(dtype)
        return reading({1: 0.002, 2: 0.004}, {1: 0.004, 2: 0.008}, {1: 0.003, 2: 0.006})

    await probe(thread, CONFIG, "float32", most_rows=8, cache=tmp_path, lock=HostLock(tmp_path / "lock"), read=read)
    assert len(taken) == MOST_READINGS


CALM = reading({1: 0.003, 2: 0.005})


async def test_probe_when_this_machine_answers_then_it_reads_afterwards_and_keeps_that_for_long(
    thread: MlxThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_module, "QUIET_S", 0.01)
    activity, taken = Activity(), list[str]()

    def read(config: Mapping[str, Any], dtype: str) -> Any:
        taken.append(dtype)
        return CALM

    await thread.run(lambda: None)
    with activity.at_work():
        probing = asyncio.create_task(
            probe(
                thread,
                CONFIG,
                "float32",
                most_rows=8,
                cache=tmp_path,
                activity=activity,
                lock=free(tmp_path),
                read=read,
            )
        )
        await asyncio.sleep(0.1)
        assert not taken
    await probing
    assert lasts_s(tmp_path) == LASTS_S


@pytest.mark.parametrize("answers", ["all the time", "from when it reads on", "while it reads"])
async def test_probe_when_answers_run_beside_it_then_it_measures_and_keeps_that_for_a_short_while(
    thread: MlxThread, tmp_path: Path, answers: str
) -> None:
    activity, loop = Activity(), asyncio.get_running_loop()
    work = loop.create_future()

    def begin() -> None:
        activity.at_work_until(work)
        if answers == "while it reads":
            work.set_result(None)

    def read(config: Mapping[str, Any], dtype: str) -> Any:
        if answers != "all the time":
            loop.call_soon_threadsafe(begin)
        return CALM

    if answers == "all the time":
        begin()
    measured = await probe(
        thread,
        CONFIG,
        "float32",
        most_rows=8,
        cache=tmp_path,
        activity=activity,
        most_wait_s=0.05,
        lock=free(tmp_path),
        read=read,
    )
    assert measured.cost.block_s == pytest.approx({1: 0.002})
    assert lasts_s(tmp_path) == SERVED_LASTS_S


def free(folder: Path) -> HostLock:
    return HostLock(folder / "lock")


def lasts_s(cache: Path) -> float:
    """For how long the only measurement there counts."""
    (file,) = remembered(cache)
    return float(json.loads(file.read_text())["lasts_s"])


async def test_probe_when_nonsense_twice_then_refused_by_name(thread: MlxThread, tmp_path: Path) -> None:
    def read(config: Mapping[str, Any], dtype: str) -> Any:
        return reading({1: 0.003, 2: 0.005}, head=0.0)

    with pytest.raises(Refused, match=r"the head at batch 1 took 0\.0 s"):
        await probe(thread, CONFIG, "float32", most_rows=8, cache=tmp_path, lock=HostLock(tmp_path / "lock"), read=read)
    assert not remembered(tmp_path)


async def test_lock_when_another_holds_it_then_waited_for_and_done_without(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    entered = []
    async with HostLock(path):
        async with HostLock(path, wait_s=0.1):
            entered.append("without")
        waiting = asyncio.create_task(entering(path, entered))
        await asyncio.sleep(0.1)
        assert entered == ["without"]  # who left without it took it from nobody
    await waiting
    assert entered == ["without", "with"]


async def entering(path: Path, entered: list[str]) -> None:
    async with HostLock(path):
        entered.append("with")


@pytest.mark.parametrize("what", ["a pipe", "a link", "a folder"])
async def test_lock_when_another_user_laid_something_else_there_then_done_without(tmp_path: Path, what: str) -> None:
    path, target = tmp_path / "lock", tmp_path / "target"
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a link":
        path.symlink_to(target)
    else:
        path.mkdir()
    async with HostLock(path, wait_s=0.1):
        assert not target.exists()


async def test_lock_when_its_file_is_another_users_then_still_taken(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch(mode=0o444)
    async with HostLock(path, wait_s=0.1):
        pass
