"""`latency` and `throughput` against brute force, and the heuristic against the exact search."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_planner import Plan, Refusal, problem_from_json
from kafila_planner.model.types import SearchKind
from kafila_planner.search.pool import SearchBudget, measured, pool_of
from kafila_planner.settle import Settled, settle
from tests.planner.oracle import least_seconds
from tests.planner.problems import (
    GB,
    QUICK,
    Json,
    at_length,
    member,
    members,
    model,
    models,
    plan,
    problem,
    problems,
    result,
)

HARD = Path(__file__).parent / "hard"


def check_exact(given_: Json) -> None:
    found = result(given_)
    least = least_seconds(given_)
    if isinstance(found, Refusal):
        assert math.isinf(least)
        return
    alone = given_["objective"] == "latency"
    rate = found.tokens_per_s_one_user if alone else found.tokens_per_s
    assert found.search is SearchKind.EXACT
    assert 1 / (rate or 0) == pytest.approx(least, rel=1e-9)


choosing = problems(most=4, blocks=(1, 6), objective="latency") | problems(
    most=4, blocks=(1, 6), objective="throughput"
)
test_objective_when_small_then_it_is_the_best_of_all_subsets_orders_heads_and_divisions = QUICK(
    given(choosing)(check_exact)
)
test_objective_when_tried_at_length_then_it_is_the_best_of_all = at_length(given(choosing)(check_exact))


@st.composite
def hard(draw: st.DrawFn, unequal: bool, most: int) -> Json:
    return problem(
        draw(members(least=2, most=most, memory=(2, 20))),
        model=draw(models(blocks=(4, 20), unequal=unequal)),
        concurrency=draw(st.sampled_from([1, 2, 4])),
        objective=draw(st.sampled_from(["latency", "throughput"])),
    )


def seconds(settled: Settled) -> float:
    return measured(pool_of(settled.case), settled.layout).seconds


def check_heuristic(given_: Json) -> None:
    """Budget 0 leaves the local search alone."""
    read = problem_from_json(given_)
    exact, quick = settle(read, SearchBudget(10**9)), settle(read, SearchBudget(0))
    if not isinstance(exact, Settled):
        assert not isinstance(quick, Settled)
        return
    assert isinstance(quick, Settled)
    assert (exact.search, quick.search) == (SearchKind.EXACT, SearchKind.HEURISTIC)
    assert seconds(exact) <= seconds(quick) * (1 + 1e-9)
    assert seconds(quick) <= 1.02 * seconds(exact)


test_heuristic_when_equal_blocks_then_within_two_per_cent_of_exact = QUICK(
    given(hard(unequal=False, most=7))(check_heuristic)
)
test_heuristic_when_unequal_blocks_then_within_two_per_cent_of_exact = QUICK(
    given(hard(unequal=True, most=5))(check_heuristic)
)
test_heuristic_when_equal_and_tried_at_length_then_within_two_per_cent_of_exact = at_length(
    given(hard(unequal=False, most=8))(check_heuristic)
)


def fleet(size: int) -> list[Json]:
    """Members that no two alike, without chance."""
    return [
        member(
            f"m{place:02}",
            nat=["permissive", "ordinary", "restrictive"][place * 7 % 3],
            rtt_s=0.001 * (1 + place * 11 % 23),
            bandwidth_bytes_per_s=(40 + place * 53 % 400) * GB,
            memory_bytes=(3 + place * 5 % 11) * GB,
        )
        for place in range(size)
    ]


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("size", [16, 24])
def test_objective_when_too_many_for_the_budget_then_marked_heuristic_and_no_worse_than_paper(
    objective: str, size: int
) -> None:
    given_ = problem(fleet(size), objective=objective, concurrency=4, model=model(blocks=40))
    found, paper = plan(given_), plan({**given_, "objective": "paper"})
    assert found.search is SearchKind.HEURISTIC
    alone = objective == "latency"
    ours, theirs = ((p.tokens_per_s_one_user if alone else p.tokens_per_s) or 0 for p in (found, paper))
    assert ours >= theirs


def test_objective_when_planned_twice_then_the_same_plan() -> None:
    given_ = problem(fleet(18), objective="throughput", concurrency=4, model=model(blocks=40))
    assert plan(given_) == plan(given_)


def test_latency_when_one_member_holds_all_and_is_fast_then_it_is_alone() -> None:
    found = plan(problem([member("A"), member("B"), member("C")], objective="latency"))
    assert found.order == ("A",)
    assert found.hops == ()
    assert (found.network_s, found.ring_cost_s) == (0.0, 0.0)
    assert [one.member for one in found.idle] == ["B", "C"]


def test_latency_when_all_are_required_then_all_take_part() -> None:
    found = plan(problem([member("A"), member("B"), member("C")], objective="latency", require=["all"]))
    assert sorted(found.order) == ["A", "B", "C"]
    assert found.idle == ()


def test_latency_when_a_member_is_excluded_then_it_is_idle_and_says_so() -> None:
    found = plan(problem([member("A"), member("B", overhead_s=0.0)], objective="latency", exclude=["B"]))
    assert found.order == ("A",)
    assert [(one.member, one.why) for one in found.idle] == [("B", "excluded")]


def test_throughput_when_several_users_then_stages_work_side_by_side() -> None:
    crowd = [member(name, rtt_s=0.001) for name in "ABCD"]
    assert len(plan(problem(crowd, objective="throughput", concurrency=4)).order) > 1
    assert len(plan(problem(crowd, objective="throughput", concurrency=1)).order) == 1


def test_idle_when_included_then_its_rate_is_that_of_a_plan_with_it() -> None:
    crowd = [member("A"), member("B", rtt_s=0.2), member("C", bandwidth_bytes_per_s=30 * GB)]
    for objective in ("latency", "throughput"):
        given_ = problem(crowd, objective=objective, concurrency=2)
        found = plan(given_)
        assert found.idle
        for one in found.idle:
            forced = plan(
                {**given_, "require": [*found.order, one.member], "exclude": list(_others(found, one.member))}
            )
            assert one.tokens_per_s_with == pytest.approx(forced.tokens_per_s)


def _others(found: Plan, name: str) -> set[str]:
    return {one.member for one in found.idle} - {name}


def test_objective_when_equal_members_then_the_anchor_and_the_first_names_are_taken() -> None:
    crowd = [member(name, memory_bytes=9 * GB) for name in "EDCBA"]
    found = plan(problem(crowd, objective="latency", anchor="C"))
    assert found.order == ("C", "A")
    assert found.head == "C"


@QUICK
@given(choosing, st.integers(2, 4))
def test_objective_when_members_are_copies_then_the_rate_is_that_of_brute_force(given_: Json, copies: int) -> None:
    first = given_["members"][0]
    check_exact({**given_, "members": [{**first, "name": f"c{n}"} for n in range(copies)]})


def test_objective_when_many_are_alike_then_the_first_names_are_taken_by_the_heuristic_too() -> None:
    crowd = [member(f"m{place:02}", memory_bytes=9 * GB) for place in range(20)]
    found = plan(problem(crowd, objective="latency", anchor="m07"))
    assert found.search is SearchKind.HEURISTIC
    assert found.order == ("m07", "m00")


@pytest.mark.parametrize(
    ("file", "without"),
    [
        ("fifteen-members-equal-blocks", "D"),
        ("eight-members-unequal-blocks", "A"),
        ("eight-members-unequal-blocks-tight", "A"),
    ],
)
def test_heuristic_when_memory_is_tight_then_leaving_out_one_by_hand_is_hardly_better(file: str, without: str) -> None:
    given_ = json.loads((HARD / f"{file}.json").read_text())
    ours, theirs = plan(given_), plan({**given_, "exclude": [without]})
    alone = given_.get("objective", "latency") == "latency"
    rate, by_hand = ((p.tokens_per_s_one_user if alone else p.tokens_per_s) or 0 for p in (ours, theirs))
    assert rate >= by_hand / 1.02


def test_objective_when_a_member_has_less_room_than_the_smallest_block_reads_then_still_planned() -> None:
    found = plan(json.loads((HARD / "two-members-less-than-an-atom-to-spare.json").read_text()))
    assert found.order == ("A", "B")


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("unknown", [1, 5])
def test_objective_when_a_stranger_to_the_network_stands_by_then_the_others_are_priced(
    objective: str, unknown: int
) -> None:
    """A and B, C and D are far from each other: only a priced ring avoids that."""
    trips = {"A": 1.0, "B": 2.0, "C": 1.0, "D": 2.0}
    crowd = [member(name, rtt_s=rtt_s, memory_bytes=8 * GB) for name, rtt_s in trips.items()]
    slow = {"rtt_s": None, "bandwidth_bytes_per_s": GB / 100, "memory_bytes": 8 * GB}
    strangers = [member(f"E{n}", **slow) for n in range(unknown)]
    edges = [{"between": list(pair), "rtt_s": 9.0} for pair in ("AB", "CD")]
    asked = problem(crowd + strangers, objective=objective, concurrency=2, edges=edges, model=model(blocks=16))
    found, paper = plan(asked), plan({**asked, "exclude": [one["name"] for one in strangers], "objective": "paper"})
    assert found.order == paper.order == ("A", "C", "B", "D")
    assert found.ordered_by == "priced"
    assert found.tokens_per_s == paper.tokens_per_s
    assert {one.member for one in found.idle} == {one["name"] for one in strangers}


def test_objective_when_the_stranger_to_the_network_is_worth_it_then_it_takes_part() -> None:
    slow = [member(name, bandwidth_bytes_per_s=GB, rtt_s=1.0) for name in "AB"]
    found = plan(problem([*slow, member("C", rtt_s=None)], objective="latency"))
    assert found.order == ("C",)
    assert found.search is SearchKind.EXACT
