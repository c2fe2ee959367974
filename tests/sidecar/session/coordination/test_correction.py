"""What the host makes of the head's traces."""

from typing import Any

import pytest

import kafila_planner
from kafila_planner.correction import Slowness
from kafila_sidecar.session.coordination.correction import (
    REQUESTS,
    SHORTEST_ANSWER_TOKENS,
    AsPlanned,
    Served,
    look_anew,
    slower_entry,
)
from kafila_sidecar.session.coordination.effects import Proposal
from kafila_sidecar.session.driving.capability import MOST_SLOWNESS
from tests.sidecar.session.driver_world import MODEL

PREDICTED = {1: 0.1, 2: 0.15}.get  # seconds, by rows of a run


def trace(
    seconds: float = 0.1, *, epoch: int = 1, tokens: int = SHORTEST_ANSWER_TOKENS, name: str = "ada", **more: Any
) -> Any:
    return {"epoch": epoch, "output_tokens": tokens, "stages": [{"member": name, "measured_s": seconds, **more}]}


def member(name: str, block_s: float) -> Any:
    times = {"block_s": {"1": block_s}, "head_s": {"1": 0.001}, "bandwidth_bytes_per_s": 1e6, "overhead_s": 0.0}
    place = {"mapping": "endpoint-independent", "filtering": "endpoint-independent", "rtt_s": 0.01}
    return {"name": name, "memory_bytes": 1e9, **times, **place}


def problem(**slowness: float) -> Any:
    members = [
        slower_entry(member(name, 0.01), Slowness(slowness.get(name, 1.0), slowness.get(name, 1.0)))
        for name in ("ada", "bob")
    ]
    return {"model": MODEL, "context_tokens": 64, "concurrency": 1, "require": ["all"], "members": members}


def proposal() -> Proposal:
    read = kafila_planner.problem_from_json(problem())
    plan = kafila_planner.make_plan(read)
    assert isinstance(plan, kafila_planner.Plan)
    return Proposal(1, read, plan)


def test_served_when_enough_answers_came_then_their_medians() -> None:
    served = Served()
    told = [served.add(trace(seconds), "ada", PREDICTED) for seconds in (0.1, 0.1, 0.2, 9.0, 9.0)]
    assert told == [None] * (REQUESTS - 1) + [AsPlanned(2.0, None)]


def test_served_when_answers_are_short_or_the_epoch_ends_then_they_dont_count() -> None:
    served = Served()
    assert [served.add(trace(tokens=1), "ada", PREDICTED) for _ in range(2 * REQUESTS)] == [None] * (2 * REQUESTS)
    for epoch in (1, 2):
        told = [served.add(trace(epoch=epoch), "ada", PREDICTED) for _ in range(REQUESTS - 1)]
        assert told == [None] * (REQUESTS - 1)
    assert served.add(trace(0.3, epoch=2), "ada", PREDICTED) == AsPlanned(1.0, None)


def test_served_when_a_trace_names_others_then_they_are_not_kept() -> None:
    served = Served()
    for number in range(REQUESTS - 1):
        served.add(trace(name=f"nobody {number}"), "ada", PREDICTED)
    assert served.add(trace(name="nobody"), "ada", PREDICTED) == AsPlanned(None, None)


def test_served_when_runs_were_shared_then_they_are_held_against_the_plans_time_for_as_many() -> None:
    """Busy is not slow: a run of two takes longer than one, and says nothing where none of as many was priced."""
    served = Served()
    shared = [(2, 0.3), (2, 0.45), (2, 0.45), (3, 9.0), (0, 0.0)]
    told = [served.add(trace(0.0, shared_rows=rows, shared_s=took), "ada", PREDICTED) for rows, took in shared]
    assert told[-1] is not None
    assert told[-1].alone is None
    assert told[-1].shared == pytest.approx(3.0)


async def test_better_plan_when_a_stage_serves_far_slower_then_proposed_in_one_sentence() -> None:
    gain, sentence = await look_anew(proposal(), problem(ada=30.0))
    assert "another division" in sentence
    assert gain > 0.05
    assert await look_anew(proposal(), problem()) == (0.0, "")


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 600.0])
@pytest.mark.parametrize("name", ["ada", "bob"])
async def test_better_plan_when_times_are_at_the_edge_of_what_is_believed_then_no_error(
    seconds: float, name: str
) -> None:
    slowness = min(max(seconds / 0.01, 1 / MOST_SLOWNESS), MOST_SLOWNESS)
    await look_anew(proposal(), problem(**{name: slowness}))
