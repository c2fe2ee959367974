"""The two baselines, and everything about the number of blocks and members."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_planner.division.baselines import memory_shares, uniform_shares
from tests.planner.problems import GB, QUICK, counts, member, model, plan, problem, refusal

CROWD = [member("A", memory_bytes=20 * GB), member("B", memory_bytes=60 * GB), member("C", memory_bytes=40 * GB)]


def test_uniform_when_there_is_a_remainder_then_it_goes_to_the_first() -> None:
    assert uniform_shares(5, 12) == [3, 3, 2, 2, 2]
    assert counts(plan(problem(CROWD, strategy="uniform", model=model(blocks=13)))) == [5, 4, 4]


def test_memory_when_shares_are_whole_then_proportional() -> None:
    assert dict(zip("ABC", counts(plan(problem(CROWD, strategy="memory"))), strict=True)) == {"A": 2, "B": 6, "C": 4}


@pytest.mark.parametrize(
    ("memory", "blocks", "shares"),
    [
        ([1, 1, 98], 10, [1, 1, 8]),
        ([1, 1, 1], 4, [2, 1, 1]),
        ([10, 20], 4, [1, 3]),
        ([0, 0], 2, [1, 1]),
        ([5], 7, [7]),
        ([1, 50, 50], 5, [1, 2, 2]),
    ],
)
def test_memory_shares_when_rounded_then_largest_remainder_and_at_least_one(
    memory: list[int], blocks: int, shares: list[int]
) -> None:
    assert memory_shares(memory, blocks) == shares


@QUICK
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8), st.integers(0, 60))
def test_memory_shares_when_any_then_all_blocks_and_at_least_one_each(memory: list[int], more: int) -> None:
    blocks = len(memory) + more
    shares = memory_shares(memory, blocks)
    assert sum(shares) == blocks
    assert min(shares) >= 1


@pytest.mark.parametrize("strategy", ["uniform", "memory"])
def test_baseline_when_another_head_would_be_better_then_the_anchor_stays(strategy: str) -> None:
    crowd = [*CROWD, member("D", head_s={"1": 1e-9})]
    found = plan(problem(crowd, strategy=strategy, anchor="B", objective="throughput"))
    assert found.head == "B"
    assert sorted(found.order) == ["A", "B", "C", "D"]


@pytest.mark.parametrize("strategy", ["uniform", "memory"])
def test_baseline_when_a_share_does_not_fit_then_refused_though_another_division_would(strategy: str) -> None:
    crowd = [member("A", memory_bytes=8 * GB), member("B", memory_bytes=8 * GB)]
    assert sum(counts(plan(problem(crowd)))) == 12
    found = refusal(problem(crowd, strategy=strategy))
    assert (found.undersized, found.missing_bytes) == ("A", 2 * GB)


@pytest.mark.parametrize("strategy", ["uniform", "memory"])
def test_baseline_when_cuts_are_forbidden_then_the_nearest_allowed_are_made(strategy: str) -> None:
    crowd = [member("A"), member("B")]
    found = plan(problem(crowd, strategy=strategy, model=model(no_cut_after=[4, 5, 6])))
    assert [stage.end for stage in found.stages] in ([4, 12], [8, 12])


@pytest.mark.parametrize("strategy", ["kafila", "uniform", "memory"])
@pytest.mark.parametrize("objective", ["paper", "latency", "throughput"])
def test_plan_when_more_members_than_blocks_then_the_slowest_are_idle(strategy: str, objective: str) -> None:
    speeds = {"A": 100, "B": 10, "C": 90, "D": 20, "E": 80}
    crowd = [member(name, bandwidth_bytes_per_s=speed * GB, rtt_s=0.0001) for name, speed in speeds.items()]
    found = plan(problem(crowd, strategy=strategy, objective=objective, model=model(blocks=3), concurrency=3))
    assert set(found.order) <= {"A", "C", "E"}
    if objective == "paper" or strategy != "kafila":
        assert set(found.order) == {"A", "C", "E"}
        assert [one.member for one in found.idle] == ["B", "D"]
        assert all("more members than blocks" in one.why and one.tokens_per_s_with is None for one in found.idle)


def test_baseline_when_the_anchor_is_the_slowest_of_too_many_then_it_is_still_the_head() -> None:
    crowd = [member("A", bandwidth_bytes_per_s=GB), member("B"), member("C")]
    assert plan(problem(crowd, strategy="uniform", model=model(blocks=2))).head == "A"


@pytest.mark.parametrize("objective", ["paper", "latency", "throughput"])
def test_plan_when_more_are_required_than_there_are_blocks_then_the_fastest_of_them(objective: str) -> None:
    crowd = [member("A", bandwidth_bytes_per_s=GB), member("B"), member("C"), member("D", overhead_s=0.0)]
    found = plan(problem(crowd, objective=objective, require=["A", "B", "C"], model=model(blocks=2)))
    assert sorted(found.order) == ["B", "C"]
    assert [one.member for one in found.idle] == ["A", "D"]


def test_baseline_when_somebody_can_not_even_hold_one_block_then_that_one_is_named() -> None:
    crowd = [member("A", memory_bytes=5 * GB), member("B", memory_bytes=GB - 1)]
    found = refusal(problem(crowd, strategy="uniform"))
    assert (found.undersized, found.missing_bytes) == ("B", 1)
