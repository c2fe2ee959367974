"""The rule for rows a run, against rings played event by event."""

import heapq
from collections import deque
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila_planner import Plan, RowsPace, make_plan, paces, problem_from_json, rows_for, tokens_per_s
from tests.planner.problems import QUICK
from tests.support.plans import MODEL

StepS = Callable[[int], float]

MOST = 8
PLAYED_S = 60.0
WORST = 0.85  # of the best cap's tokens a second
NEAR = 0.02  # of what a ring makes: what a plan may promise more, or less


def played(stages: Sequence[StepS], hop_s: float, users: int, cap: int) -> float:
    """Tokens a second of a ring whose stages take what waits, up to `cap` rows a run."""
    queues: list[deque[int]] = [deque() for _ in stages]
    busy = [False] * len(stages)
    queues[0].extend(range(users))
    events: list[tuple[float, int, int, list[int]]] = []  # when, which, at which stage; done (1) or arrived (0)
    now = tokens = number = 0.0

    def start(stage: int) -> None:
        nonlocal number
        if not busy[stage] and queues[stage]:
            rows = [queues[stage].popleft() for _ in range(min(cap, len(queues[stage])))]
            busy[stage] = True
            number += 1
            heapq.heappush(events, (now + stages[stage](len(rows)), int(number), stage, rows))

    start(0)
    while now < PLAYED_S:
        now, _, place, rows = heapq.heappop(events)
        if place >= 0:
            busy[place] = False
            following = (place + 1) % len(stages)
            number += 1
            heapq.heappush(events, (now + hop_s, int(number), -1 - following, rows))
            start(place)
        else:
            following = -1 - place
            tokens += len(rows) if following == 0 else 0
            queues[following].extend(rows)
            start(following)
    return tokens / now


def known_of(stages: Sequence[StepS], hop_s: float) -> list[RowsPace]:
    return [
        RowsPace(rows, sum(step(rows) for step in stages) + len(stages) * hop_s, max(step(rows) for step in stages))
        for rows in range(1, MOST + 1)
    ]


def flat(seconds: float, slope: float) -> StepS:
    return lambda rows: seconds * (1 + slope * (rows - 1))


def bent(seconds: float) -> StepS:
    """f32 on a processor: 1, 1.11, 1.16, 1.79 times for 1, 2, 4, 8 rows."""
    at = {1: 1.0, 2: 1.11, 3: 1.14, 4: 1.16, 5: 1.32, 6: 1.47, 7: 1.63, 8: 1.79}
    return lambda rows: seconds * at[rows]


PROFILES = {
    "gpu": lambda stages: [flat(0.025 / stages, 0.036)] * stages,
    "f32": lambda stages: [bent(0.065 / stages)] * stages,
    "bf16": lambda stages: [flat(0.13 / stages, 0.37)] * stages,
    "one slow": lambda stages: [flat(0.03, 0.1), *[flat(0.01, 0.1)] * (stages - 1)],
}


@pytest.mark.parametrize("hop_s", [0.0003, 0.005, 0.025])
@pytest.mark.parametrize("users", [2, 4, 8, 16])
@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("profile", PROFILES)
def test_rows_when_ruled_then_nearly_as_quick_as_the_best_cap(
    profile: str, count: int, users: int, hop_s: float
) -> None:
    stages = PROFILES[profile](count)
    known = known_of(stages, hop_s)
    speeds = {cap: played(stages, hop_s, users, cap) for cap in range(1, MOST + 1)}
    assert speeds[rows_for(users, known)] >= WORST * max(speeds.values())


def test_rows_when_one_user_is_there_then_one() -> None:
    assert rows_for(1, [RowsPace(1, 1.0, 0.5), RowsPace(2, 1.0, 0.5)]) == 1
    assert rows_for(9, []) == 1


def test_paces_when_a_plan_is_measured_then_its_own_figures_at_one_row() -> None:
    members = [
        {
            "name": name,
            "block_s": {"1": 0.01, "4": 0.012},
            "overhead_s": 0.001,
            "memory_bytes": 100_000_000,
            "rtt_s": 0.004,
        }
        for name in ("ada", "bob")
    ]
    problem = problem_from_json({"model": MODEL, "members": members, "concurrency": 4, "require": ["all"]})
    plan = make_plan(problem)
    assert isinstance(plan, Plan)
    alone = paces(problem, plan)[0]
    assert alone.rows == 1
    assert alone.busiest_s == pytest.approx(max(stage.cost_s or 0.0 for stage in plan.stages))
    assert alone.circuit_s == pytest.approx(plan.circuit_s)


UNEQUAL = st.lists(st.tuples(st.floats(0.002, 0.05), st.floats(0.03, 0.6)), min_size=1, max_size=5)


@settings(QUICK, max_examples=40)
@given(UNEQUAL, st.integers(1, 16), st.floats(0.0, 0.03), st.floats(0.0, 0.002))
def test_turn_when_stages_are_unequal_then_no_more_than_the_ring_makes_and_not_much_less(
    drawn: list[tuple[float, float]], users: int, hop_s: float, handling_s: float
) -> None:
    stages: list[StepS] = [
        lambda rows, alone=alone, slope=slope: alone * (1 + slope * (rows - 1)) + rows * handling_s  # type: ignore[misc]
        for alone, slope in drawn
    ]
    known = known_of(stages, hop_s)
    made = played(stages, hop_s, users, rows_for(users, known))
    assert WORST * made <= tokens_per_s(users, known) <= (1 + NEAR) * made


@pytest.mark.parametrize("users", [1, 2, 3, 4, 6, 8, 16])
@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("profile", PROFILES)
def test_plan_when_the_engine_makes_whole_runs_then_it_promises_what_the_ring_makes(
    profile: str, count: int, users: int
) -> None:
    """From JSON to the figure that people see, with members whose blocks cost what the profile's stages do."""
    stages = PROFILES[profile](count)
    blocks = 2
    members = [
        {
            "name": f"m{place}",
            "block_s": {str(rows): step(rows) / blocks for rows in range(1, MOST + 1)},
            "head_s": {str(rows): 1e-9 for rows in range(1, MOST + 1)},
            "overhead_s": 0.0,
            "memory_bytes": 10**9,
            "rtt_s": 0.001,
            "nat": "permissive",
        }
        for place, step in enumerate(stages)
    ]
    edges = [{"between": [f"m{b}", f"m{a}"], "rtt_s": 0.002, "path": "direct"} for a in range(count) for b in range(a)]
    given = {
        "model": MODEL | {"blocks": blocks * count},
        "members": members,
        "edges": edges,
        "concurrency": users,
        "most_rows": MOST,
        "strategy": "uniform",
        "objective": "throughput",
    }
    plan = make_plan(problem_from_json(given))
    assert isinstance(plan, Plan)
    assert plan.tokens_per_s == pytest.approx(played(stages, 0.001, users, plan.batch), rel=NEAR)
    assert plan.batch == rows_for(users, paces(problem_from_json(given), plan))
