"""Algorithm 1 and the general partition against brute force."""

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_planner.division.measure import Goal, balance
from kafila_planner.model.device import Device
from kafila_planner.model.equal import EqualChain, largest_count, partition
from kafila_planner.model.unequal import UnequalChain
from tests.planner.problems import QUICK, at_length, compositions

DeviceCase = tuple[float, float, int]

awkward = st.sampled_from([0.1, 0.2, 0.3, 0.7, 1.0, 1.1, 3.3, 1e-3, 7e-5])
devices = st.lists(st.tuples(st.one_of(st.just(0.0), awkward), awkward, st.integers(0, 9)), min_size=1, max_size=4)


def brute(blocks: int, cases: list[DeviceCase]) -> float:
    """The least bottleneck over every composition within the limits."""
    best = math.inf
    for counts in compositions(blocks, len(cases)):
        if all(count <= limit for count, (_, _, limit) in zip(counts, cases, strict=True)):
            best = min(best, max(f + n * p for n, (f, p, _) in zip(counts, cases, strict=True)))
    return best


def check_equal(blocks: int, cases: list[DeviceCase]) -> None:
    fixed, per, limits = zip(*cases, strict=True)
    found = partition(blocks, fixed, per, limits)
    if found is None:
        assert math.isinf(brute(blocks, cases))
        return
    assert found.bottleneck_s == brute(blocks, cases)
    assert sum(found.counts) == blocks
    assert all(1 <= count <= limit for count, limit in zip(found.counts, limits, strict=True))
    assert max(f + n * p for n, (f, p, _) in zip(found.counts, cases, strict=True)) <= found.bottleneck_s


test_partition_when_equal_blocks_then_bottleneck_is_that_of_brute_force = QUICK(
    given(st.integers(1, 10), devices)(check_equal)
)
test_partition_when_tried_at_length_then_bottleneck_is_that_of_brute_force = at_length(
    given(st.integers(1, 12), devices)(check_equal)
)

sizes = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=9)


def chain(cases: list[tuple[int, int]]) -> UnequalChain:
    """A chain of single blocks with (read, held) bytes, treated as unequal."""
    read, held = zip(*cases, strict=True)
    return UnequalChain(tuple(range(len(cases) + 1)), (0, *accumulate(read)), (0, *accumulate(held)))


def check_unequal(cases: list[tuple[int, int]], each: list[tuple[float, float, int]]) -> None:
    blocks = chain(cases)
    best = math.inf
    for counts in compositions(len(cases), len(each)) if len(each) <= len(cases) else ():
        ends = list(accumulate(counts))
        spans = list(zip((end - count for end, count in zip(ends, counts, strict=True)), ends, strict=True))
        room = all(blocks.held[b] - blocks.held[a] <= held for (a, b), (_, _, held) in zip(spans, each, strict=True))
        if room:
            costs = (f + (blocks.read[b] - blocks.read[a]) * p for (a, b), (f, p, _) in zip(spans, each, strict=True))
            best = min(best, max(costs))
    found = blocks.divide([Device(*one) for one in each])
    assert (math.inf if found is None else found.bottleneck_s) == best
    if found is not None:
        assert sum(found.counts) == len(cases)
        assert min(found.counts) >= 1


roomy = st.lists(st.tuples(st.sampled_from([0.0, 0.5]), awkward, st.integers(0, 30)), min_size=1, max_size=4)
test_divide_when_blocks_are_unequal_then_bottleneck_is_that_of_brute_force = QUICK(given(sizes, roomy)(check_unequal))
test_divide_when_unequal_and_tried_at_length_then_bottleneck_is_that_of_brute_force = at_length(
    given(sizes, roomy)(check_unequal)
)


@QUICK
@given(st.floats(0, 2), awkward, awkward)
def test_largest_count_when_any_floats_then_one_more_would_pass_tau(tau: float, fixed: float, per: float) -> None:
    count = largest_count(tau, fixed, per, 1000)
    assert count == 0 or fixed + count * per <= tau
    assert count == 1000 or fixed + (count + 1) * per > tau


def test_largest_count_when_the_quotient_rounds_down_then_the_block_is_not_lost() -> None:
    tau = 0.7 + 2 * 0.1
    assert int((tau - 0.7) / 0.1) == 1, "what the paper's floor gives"
    assert largest_count(tau, 0.7, 0.1, 9) == 2


def test_partition_when_a_floor_would_lose_a_block_then_the_true_optimum_is_found() -> None:
    found = partition(4, [0.7, 0.7], [0.1, 0.1], [9, 9])
    assert found is not None
    assert found.counts == (2, 2)


def test_divide_when_the_greedy_pass_would_strand_a_large_block_then_it_is_still_found() -> None:
    """The first could take both small blocks, but then the second would have to hold the large one."""
    blocks = chain([(1, 1), (1, 1), (9, 9)])
    found = blocks.divide([Device(0.0, 1.0, 2), Device(0.0, 1.0, 1), Device(0.0, 1.0, 9)])
    assert found is not None
    assert found.counts == (1, 1, 1)


alike = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
"""Atoms, and what each reads and holds."""


@QUICK
@given(alike, roomy, st.integers(1, 4), st.integers(1, 4), st.floats(0, 5))
def test_chains_when_all_atoms_are_alike_then_both_kinds_give_the_same_figures(
    sizes: tuple[int, int, int], each: list[tuple[float, float, int]], users: int, batch: int, network_s: float
) -> None:
    atoms, read, held = sizes
    sums = [tuple(range(0, (atoms + 1) * step, step)) for step in (1, read, held)]
    equal, unequal = EqualChain(*sums), UnequalChain(*sums)
    devices = [Device(*one) for one in each]
    figures = []
    for blocks in (equal, unequal):
        division, split = blocks.divide(devices), balance(blocks, devices, Goal(users, batch, network_s))
        figures.append((division and division.bottleneck_s, split and Goal(users, batch, network_s).token_s(split)))
    assert figures[0] == pytest.approx(figures[1])
    assert not any(equal.limit_blocks(0, room) != unequal.limit_blocks(0, room) for _, _, room in each)
    if figures[0][0] is not None:
        assert equal.could_fill([room for _, _, room in each])
        assert unequal.could_fill([room for _, _, room in each])
