"""What a member tells of itself as its stage shows what it really takes."""

import json
from typing import Any

import pytest

import kafila_planner
from kafila_planner.correction import Slowness
from kafila_sidecar.session.coordination.correction import REQUESTS, SHORTEST_ANSWER_TOKENS
from kafila_sidecar.session.coordination.effects import Proposal
from kafila_sidecar.session.driving.capability import MOST_REMEMBERED, MOST_SLOWNESS, Capabilities
from tests.sidecar.session.driver_world import MODEL

BLOCK_S = 0.01
ROWS = 3  # between those that were measured


def entry(name: str = "ada") -> dict[str, Any]:
    times = {
        "block_s": {"1": BLOCK_S, "4": 2 * BLOCK_S},
        "head_s": {"1": 0.001, "4": 0.002},
        "bandwidth_bytes_per_s": 1e6,
        "overhead_s": 0.0,
    }
    place = {"mapping": "endpoint-independent", "filtering": "endpoint-independent", "rtt_s": 0.01}
    return {"name": name, "memory_bytes": 1e9, **times, **place}


def planned(told: Capabilities, epoch: int = 1) -> Proposal:
    """With ada's latest entry and bob's."""
    problem = {"model": MODEL, "context_tokens": 64, "concurrency": 4, "require": ["all"]}
    read = kafila_planner.problem_from_json({**problem, "members": [told.entries[-1], entry("bob")]})
    plan = kafila_planner.make_plan(read)
    assert isinstance(plan, kafila_planner.Plan)
    return Proposal(epoch, read, plan)


def measured() -> Capabilities:
    told = Capabilities()
    told.measured(entry(), "cpu")
    return told


def serve(
    told: Capabilities, proposal: Proposal, times: float, answers: int = REQUESTS, *, shared: float | None = None
) -> list[bool]:
    """As many answers, in which ada's stage takes so many times what the plan says, and runs of `ROWS` so many."""
    stage = proposal.stage_of("ada")
    assert stage is not None
    assert stage.cost_s
    ada: dict[str, Any] = {"member": "ada", "measured_s": stage.cost_s * times}
    if shared is not None:
        planned_s = kafila_planner.run_s(proposal.problem, proposal.plan, proposal.plan.order.index("ada"), ROWS)
        assert planned_s
        ada |= {"shared_rows": ROWS, "shared_s": planned_s * shared}
    stages = [ada, {"member": "bob", "measured_s": 5.0}]
    trace = {"epoch": proposal.epoch, "output_tokens": SHORTEST_ANSWER_TOKENS, "stages": stages}
    return [told.served(proposal, trace) for _ in range(answers)]


@pytest.mark.parametrize("times", [0.5, 3.0])
def test_stage_when_it_takes_another_time_than_told_then_its_entry_is_told_anew_and_the_plan_is_right(
    times: float,
) -> None:
    told = measured()
    proposal = planned(told)
    assert serve(told, proposal, times) == [False] * (REQUESTS - 1) + [True]
    latest = told.entries[-1]
    assert latest["block_s"]["1"] == pytest.approx(BLOCK_S * times)
    assert {key: latest[key] for key in ("name", "memory_bytes", "rtt_s")} == {
        key: entry()[key] for key in ("name", "memory_bytes", "rtt_s")
    }
    again = planned(told, epoch=2)
    assert serve(told, again, 1.0) == [False] * REQUESTS  # what it takes is what was told


@pytest.mark.parametrize(
    ("alone", "shared", "then"),
    [
        pytest.param(1.0, 1.5, {"1": 1.0, "2": 2.0, "4": 3.0}, id="only shared runs take longer"),
        pytest.param(1.0, 0.5, {"1": 1.0, "2": 2 / 3, "4": 1.0}, id="only shared runs are quicker"),
        pytest.param(2.0, 2.0, {"1": 2.0, "2": 8 / 3, "4": 4.0}, id="everything does"),
        pytest.param(2.0, None, {"1": 2.0, "2": 8 / 3, "4": 4.0}, id="none was shared: they take longer too"),
        pytest.param(0.0, 1.5, {"1": 1.0, "2": 2.0, "4": 3.0}, id="all were shared"),
    ],
)
def test_stage_when_its_shared_runs_take_another_time_than_told_then_the_next_plan_knows_both(
    alone: float, shared: float | None, then: dict[str, float]
) -> None:
    told = measured()
    proposal = planned(told)
    assert serve(told, proposal, alone, shared=shared)[-1]
    assert told.entries[-1]["block_s"] == pytest.approx({rows: BLOCK_S * times for rows, times in then.items()})
    again = planned(told, epoch=2)
    assert not any(serve(told, again, 1.0, shared=1.0))
    assert serve(told, again, 3.0, shared=3.0)[-1]  # the machine is throttled: what sharing costs beside that stays
    assert told.entries[-1]["block_s"] == pytest.approx({rows: 3 * BLOCK_S * times for rows, times in then.items()})


@pytest.mark.parametrize("rows", [2, 3, 4])
@pytest.mark.parametrize("times", [0.5, 1.3, 1.7])
def test_shared_runs_when_they_take_the_same_time_again_then_the_plan_has_it_and_nothing_more_is_told(
    rows: int, times: float
) -> None:
    """However many sequences they have: one, and so the line from there to those that were measured, stays."""
    told = measured()
    proposal = planned(told)
    place = proposal.plan.order.index("ada")
    planned_s = kafila_planner.run_s(proposal.problem, proposal.plan, place, rows)
    assert planned_s
    stage = {"member": "ada", "measured_s": 0.0, "shared_rows": rows, "shared_s": planned_s * times}
    trace = {"epoch": 1, "output_tokens": SHORTEST_ANSWER_TOKENS, "stages": [stage]}
    assert [told.served(proposal, trace) for _ in range(REQUESTS)][-1]
    again = Proposal(2, planned(told).problem, proposal.plan)
    assert kafila_planner.run_s(again.problem, again.plan, place, rows) == pytest.approx(planned_s * times)
    assert not any(told.served(again, {**trace, "epoch": 2}) for _ in range(REQUESTS))


def test_slowness_when_a_head_says_what_cant_be_of_both_kinds_in_turn_then_each_stays_within_its_bound() -> None:
    heard: list[Slowness] = []
    told = Capabilities(heard.append)
    told.measured(entry(), "cpu")
    for epoch, (alone, shared) in enumerate([(1e-2, 1e2), (1e5, None), (0.0, 1e-6), (1e-9, None)], 1):
        serve(told, planned(told, epoch), alone, shared=shared)
    assert heard
    assert all(1 / MOST_SLOWNESS <= times <= MOST_SLOWNESS for one in heard for times in (one.alone, one.shared))


def test_stage_when_it_serves_as_told_then_nothing_is_told() -> None:
    told = measured()
    assert serve(told, planned(told), 1.05) == [False] * REQUESTS
    assert len(told.entries) == 1


@pytest.mark.parametrize(("times", "slowness"), [(1e6, MOST_SLOWNESS), (1e-6, 1 / MOST_SLOWNESS)])
def test_stage_when_a_head_says_what_cant_be_then_it_is_believed_up_to_a_bound(times: float, slowness: float) -> None:
    told = measured()
    assert any(serve(told, planned(told), times))
    assert told.entries[-1]["block_s"]["1"] == pytest.approx(BLOCK_S * slowness)


def test_stage_when_measured_or_moved_then_what_it_served_is_forgotten_or_stays() -> None:
    told = measured()
    serve(told, planned(told), 3.0)
    assert told.moved({"rtt_s": 0.5})
    assert told.entries[-1]["block_s"]["1"] == pytest.approx(3.0 * BLOCK_S)
    assert told.entries[-1]["rtt_s"] == 0.5
    told.measured(entry(), "cpu")
    assert told.entries[-1] == entry()


def test_entries_when_told_often_then_the_last_ones_count_and_each_can_be_planned_with() -> None:
    told = measured()
    for number in range(2 * MOST_REMEMBERED):
        serve(told, planned(told, epoch=number + 1), 2.0 if number % 2 else 0.5)
    assert len(told.entries) == MOST_REMEMBERED
    assert told.latest is not None
    assert json.loads(told.latest.member_json) == told.entries[-1]
    assert all(kafila_planner.member_from_json(one).name == "ada" for one in told.entries)


def test_stage_when_the_plan_knows_nothing_of_it_then_traces_say_nothing() -> None:
    told = measured()
    proposal = planned(told)
    assert serve(Capabilities(), proposal, 9.0) == [False] * REQUESTS
    other = Capabilities()
    other.measured({**entry(), "memory_bytes": 7e8}, "cpu")
    assert serve(other, proposal, 9.0) == [False] * REQUESTS


def test_capabilities_when_the_version_is_known_then_each_one_tells_it() -> None:
    told = Capabilities(kafila="1.2.3")
    told.measured({"name": "anna"}, "cpu")
    told.moved({"rtt_s": 0.02})
    assert told.latest is not None
    assert told.latest.kafila == "1.2.3"


def test_stage_when_it_takes_another_time_than_told_then_who_keeps_measurements_hears_of_it() -> None:
    heard: list[Slowness] = []
    told = Capabilities(heard.append)
    told.measured(entry(), "cpu")
    serve(told, planned(told), 3.0)
    assert [(one.alone, one.shared) for one in heard] == [pytest.approx((3.0, 3.0))]
    again = planned(told, epoch=2)
    serve(told, again, 1.0)
    assert len(heard) == 1
