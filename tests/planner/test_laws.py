"""What holds for every plan, whatever the problem."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_planner import Plan, Refusal, make_plan, plan_to_json, problem_from_json, problem_to_json
from tests.planner.oracle import cost, holds, ring_cost, round_trip, seconds_a_token
from tests.planner.problems import QUICK, Json, problems, result


def layout(given_: Json, found: Plan) -> list[tuple[Json, int, int]]:
    by_name = {one["name"]: one for one in given_["members"]}
    return [(by_name[stage.member], stage.start, stage.end) for stage in found.stages]


@QUICK
@given(problems())
def test_plan_when_admitted_then_every_block_is_on_exactly_one_stage_in_order(given_: Json) -> None:
    found = result(given_)
    if isinstance(found, Refusal):
        return
    assert [stage.start for stage in found.stages] == [0, *(stage.end for stage in found.stages[:-1])]
    assert found.stages[-1].end == given_["model"]["blocks"]
    assert all(stage.end > stage.start for stage in found.stages)
    assert tuple(stage.member for stage in found.stages) == found.order
    assert found.head == found.order[0]
    assert len(set(found.order)) == len(found.order)
    assert not {stage.end - 1 for stage in found.stages[:-1]} & set(given_["model"]["no_cut_after"])


@QUICK
@given(problems())
def test_plan_when_admitted_then_limits_are_kept(given_: Json) -> None:
    found = result(given_)
    if isinstance(found, Refusal):
        return
    for place, (stage, (member, start, end)) in enumerate(zip(found.stages, layout(given_, found), strict=True)):
        assert holds(given_, member, start, end, place == 0)
        assert end - start <= stage.limit_blocks
        assert stage.resident_bytes <= member["memory_bytes"]


@QUICK
@given(problems())
def test_plan_when_admitted_then_its_figures_follow_from_its_stages_and_hops(given_: Json) -> None:
    found = result(given_)
    if isinstance(found, Refusal):
        return
    costs = [cost(given_, *stage, is_head=place == 0, batch=1) for place, stage in enumerate(layout(given_, found))]
    ring = tuple(member for member, _, _ in layout(given_, found))
    assert [stage.cost_s for stage in found.stages] == pytest.approx(costs)
    assert found.bottleneck_s == pytest.approx(max(costs))
    assert found.compute_s == pytest.approx(sum(costs))
    assert found.imbalance == pytest.approx(max(costs) / min(costs))
    assert found.utilisation == pytest.approx(sum(costs) / len(costs) / max(costs))
    assert found.ring_cost_s == pytest.approx(ring_cost(ring), abs=1e-9)
    assert found.circuit_s == pytest.approx(sum(costs) + ring_cost(ring) / 2)
    assert found.tokens_per_s_one_user == pytest.approx(1 / (found.circuit_s or 0))
    hops = zip(ring, (*ring[1:], ring[0]), strict=True) if len(ring) > 1 else []
    assert [hop.cost_s for hop in found.hops] == pytest.approx([round_trip(a, b) / 2 for a, b in hops], abs=1e-9)
    users = given_["concurrency"]
    assert found.tokens_per_s == pytest.approx(1 / seconds_a_token(given_, layout(given_, found), users, users))


@QUICK
@given(problems(), st.integers(0, 10**6))
def test_plan_when_members_come_in_another_order_then_it_is_the_same(given_: Json, seed: int) -> None:
    shuffled = {**given_, "members": list(given_["members"]), "anchor": given_["members"][0]["name"]}
    random.Random(seed).shuffle(shuffled["members"])
    assert plan_to_json(result(shuffled)) == plan_to_json(result(given_))


@QUICK
@given(problems())
def test_plan_when_an_objective_chooses_then_it_is_never_worse_than_paper_in_its_own_measure(given_: Json) -> None:
    paper = result({**given_, "objective": "paper"})
    if isinstance(paper, Refusal):
        return
    latency, throughput = (result({**given_, "objective": objective}) for objective in ("latency", "throughput"))
    assert isinstance(latency, Plan)
    assert isinstance(throughput, Plan)
    assert (latency.circuit_s or 0) <= (paper.circuit_s or 0) * (1 + 1e-9)
    assert (throughput.tokens_per_s or 0) >= (paper.tokens_per_s or 0) * (1 - 1e-9)


@QUICK
@given(problems())
def test_plan_when_some_are_left_out_then_everybody_is_either_in_the_ring_or_listed(given_: Json) -> None:
    found = result(given_)
    if isinstance(found, Refusal):
        return
    idle = [one.member for one in found.idle]
    assert sorted([*found.order, *idle]) == [one["name"] for one in given_["members"]]
    assert all(one.why for one in found.idle)


@QUICK
@given(problems(most=4, strategy="kafila"))
def test_problem_when_written_and_read_back_then_it_is_the_same(given_: Json) -> None:
    read = problem_from_json(given_)
    again = problem_from_json(json.loads(json.dumps(problem_to_json(read))))
    assert again == read
    assert plan_to_json(make_plan(again)) == plan_to_json(make_plan(read))


@QUICK
@given(problems(most=4))
def test_plan_when_told_as_json_then_it_is_plain_and_finite(given_: Json) -> None:
    told = plan_to_json(result(given_))
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["admitted"] is ("stages" in told)
