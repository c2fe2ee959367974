"""Served stage times against the prior."""

import pytest

from kafila_planner import make_plan
from kafila_planner.correction import better_plan, corrected
from kafila_planner.model.types import MeasuredEdge, Model, Node, Objective, Path, Plan, Problem

BLOCKS = 24


def problem(objective: Objective = Objective.PAPER, concurrency: int = 1) -> Problem:
    each = (10**8,) * BLOCKS
    model = Model(
        block_bytes=each,
        block_read_bytes=each,
        kv_bytes_per_token=(0,) * BLOCKS,
        kv_fixed_bytes=(0,) * BLOCKS,
        kv_window_tokens=(None,) * BLOCKS,
        embed_bytes=10**7,
        unembed_bytes=10**7,
        norm_bytes=0,
        tied=False,
    )
    members = tuple(
        Node(name, rtt_s=0.0, bandwidth_bytes_per_s=1e10, overhead_s=1e-4, memory_bytes=10**10) for name in "ABC"
    )
    edges = tuple(MeasuredEdge(pair, 0.001, Path.DIRECT) for pair in (("A", "B"), ("A", "C"), ("B", "C")))
    return Problem(model, members, "A", 1024, concurrency, objective=objective, edges=edges)


def planned(given: Problem) -> Plan:
    plan = make_plan(given)
    assert isinstance(plan, Plan)
    return plan


def as_served(plan: Plan, **factors: float) -> dict[str, float]:
    return {stage.member: (stage.cost_s or 0.0) * factors.get(stage.member, 1.0) for stage in plan.stages}


def test_corrected_when_served_as_predicted_then_nothing_changes() -> None:
    given = problem()
    plan = planned(given)
    assert planned(corrected(given, plan, as_served(plan))).stages == plan.stages


@pytest.mark.parametrize("factor", [0.3, 2.0, 7.0])
def test_corrected_when_a_stage_took_longer_then_its_own_prediction_is_what_was_served(factor: float) -> None:
    given = problem()
    plan = planned(given)
    fixed = corrected(given, plan, as_served(plan, B=factor))
    slow = next(member for member in fixed.members if member.name == "B")
    stage = next(stage for stage in plan.stages if stage.member == "B")
    cost = (slow.overhead_s or 0) + (stage.end - stage.start) * 1e8 / (slow.bandwidth_bytes_per_s or 1)
    assert cost == pytest.approx((stage.cost_s or 0) * factor, rel=0.02)


def test_better_plan_when_one_member_is_three_times_slower_then_blocks_move_away_from_it() -> None:
    given = problem(concurrency=4, objective=Objective.THROUGHPUT)
    plan = planned(given)
    slow = max(plan.stages, key=lambda stage: stage.end - stage.start)
    found = better_plan(given, plan, as_served(plan, **{slow.member: 3.0}))
    assert found is not None
    assert found.gain > 0.05
    after = next((stage for stage in found.plan.stages if stage.member == slow.member), None)
    assert after is None or after.end - after.start < slow.end - slow.start


def test_better_plan_when_the_gain_is_small_then_nothing_is_proposed() -> None:
    given = problem(concurrency=4, objective=Objective.THROUGHPUT)
    plan = planned(given)
    assert better_plan(given, plan, as_served(plan)) is None
    assert better_plan(given, plan, as_served(plan, **{plan.stages[0].member: 1.02})) is None


def test_corrected_when_a_member_served_nothing_then_it_keeps_its_prior() -> None:
    given = problem()
    plan = planned(given)
    assert corrected(given, plan, {"Z": 1.0, "A": 0.0}) == given
