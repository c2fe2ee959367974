"""Measurements that are kept: for how long, for whom, and what was served in them."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from kafila_planner.correction import Slowness
from kafila_sidecar.runtime.probe.cost import Cost
from kafila_sidecar.runtime.probe.kept import LASTS_S, SERVED_LASTS_S, CostStore, key_of

COST = Cost(
    device="cpu: test",
    dtype="float32",
    block_bytes=1_000_000,
    block_s={1: 0.001, 8: 0.004},
    overhead_s=0.0001,
    head_s={1: 0.002},
    flops_per_s=1e10,
    spread=0.1,
    prefill_s={32: 0.02},
)
KEY = key_of("cpu: test", {"hidden_size": 64}, "float32", 8)


@dataclass(slots=True)
class Day:
    now: float = 1e9

    def __call__(self) -> float:
        return self.now


def test_cost_when_kept_then_the_same_until_it_is_old(tmp_path: Path) -> None:
    day = Day()
    store = CostStore(tmp_path / "costs", day)
    store.keep(KEY, COST)
    day.now += LASTS_S - 1
    assert CostStore(tmp_path / "costs", day).load(KEY) == COST
    day.now += 2
    assert store.load(KEY) is None


def test_cost_when_served_more_slowly_then_the_next_plan_has_it_for_a_while(tmp_path: Path) -> None:
    day = Day()
    store = CostStore(tmp_path, day)
    store.keep(KEY, COST)
    store.served(KEY, COST, Slowness(2.0, 3.0))
    told = store.load(KEY)
    assert told is not None
    assert told.block_s == pytest.approx({1: 0.002, 2: 0.003 + 9e-3 / 7, 8: 0.012})
    assert (told.overhead_s, told.head_s, told.prefill_s) == (0.0002, {1: 0.004}, {32: 0.04})
    assert told.flops_per_s == 5e9
    day.now += SERVED_LASTS_S
    assert store.load(KEY) is None


def test_cost_when_the_clock_was_turned_back_then_measured_anew(tmp_path: Path) -> None:
    day = Day()
    store = CostStore(tmp_path, day)
    store.keep(KEY, COST)
    day.now -= 3600
    assert store.load(KEY) is None


def test_cost_when_kept_then_nobody_else_may_read_it_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "costs"
    CostStore(folder).keep(KEY, COST)
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", ["", "[]", '{"at": 0}', '{"at": "x", "lasts_s": 1, "cost": {}}', "\xff"])
def test_cost_when_its_file_is_broken_then_none(tmp_path: Path, content: str) -> None:
    store = CostStore(tmp_path)
    store.keep(KEY, COST)
    (tmp_path / f"{KEY}.json").write_bytes(content.encode("latin-1"))
    assert store.load(KEY) is None


def test_key_when_nothing_differs_that_costs_time_then_the_same() -> None:
    same = {"hidden_size": 64, "max_position_embeddings": 9, "bos_token_id": 3}
    assert key_of("cpu: test", same, "float32", 8) == KEY
    assert key_of("cpu: test", {"hidden_size": 65}, "float32", 8) != KEY
    assert key_of("gpu", same, "float32", 8) != KEY
