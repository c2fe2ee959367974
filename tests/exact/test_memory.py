"""Loading a shard takes no more memory than the shard and a tenth."""

import gc
from pathlib import Path

import mlx.core as mx
import psutil
import pytest

from tests.exact.shards import load_shard
from tests.support.smollm2 import smollm2_folder

pytestmark = pytest.mark.mlx

MIB = 1 << 20


@pytest.fixture(scope="module")
def folder() -> Path:
    return smollm2_folder()


@pytest.mark.parametrize(("start", "end", "head"), [(0, 10, True), (10, 20, False), (25, 30, False), (0, 30, True)])
def test_shard_when_loaded_then_peak_memory_is_at_most_a_tenth_more(
    folder: Path, start: int, end: int, head: bool
) -> None:
    gc.collect()  # what earlier tests left must not be freed meanwhile
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    shard = load_shard(folder, start, end, head)
    peak = mx.get_peak_memory() - before
    size = shard.weight_bytes
    shard.close()
    assert size >= 50 * MIB
    assert size <= peak <= 1.1 * size


@pytest.mark.parametrize(
    ("first", "then"),
    [((0, 20, True), (0, 10, True)), ((0, 20, True), (10, 30, False)), ((10, 20, False), (5, 15, False))],
    ids=["less", "on", "back"],
)
def test_shard_when_another_takes_over_then_peak_memory_is_a_tenth_more_than_the_larger(
    folder: Path, first: tuple[int, int, bool], then: tuple[int, int, bool]
) -> None:
    gc.collect()
    mx.clear_cache()
    held = mx.get_active_memory()
    before = load_shard(folder, *first)
    largest = before.weight_bytes
    mx.reset_peak_memory()
    shard = load_shard(folder, *then, before=before)
    peak = mx.get_peak_memory() - held
    largest = max(largest, shard.weight_bytes)
    now = mx.get_active_memory() - held
    shard.close()
    assert peak <= 1.1 * largest
    assert now <= 1.1 * shard.weight_bytes


def test_shard_when_it_shrinks_again_and_again_then_the_process_shrinks_with_it(folder: Path) -> None:
    """Freed is not enough: from the second time on the C library would keep it."""
    here = psutil.Process()
    shard = load_shard(folder, 9, 30, False)
    for _ in range(2):
        large = here.memory_info().rss
        freed = shard.weight_bytes
        shard = load_shard(folder, 26, 30, False, before=shard)
        freed -= shard.weight_bytes
        assert large - here.memory_info().rss >= 0.8 * freed
        shard = load_shard(folder, 9, 30, False, before=shard)
    large = here.memory_info().rss
    size = shard.weight_bytes
    shard.close()
    assert large - here.memory_info().rss >= 0.8 * size
