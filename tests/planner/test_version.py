"""The planner's version stands for its plans: members who have the same number get the same plans."""

from kafila_planner import PLANNER_VERSION, Plan
from tests.planner.freeze import SEEDS, digests, drawn, frozen
from tests.planner.problems import result


def test_planner_version_when_plans_change_then_it_has_to_be_raised() -> None:
    told = frozen()
    assert told["planner_version"] == PLANNER_VERSION, (
        "PLANNER_VERSION was raised: write the plans that belong to it with `python -m tests.planner.freeze`"
    )
    found = digests()
    changed = [seed for seed, digest in found.items() if told["plans"].get(seed) != digest]
    assert not changed, (
        f"the problems of seeds {', '.join(changed)} give other plans than those of planner version {PLANNER_VERSION}: "
        "members on both sides of this change could not plan together. If it is meant, raise PLANNER_VERSION in "
        "kafila_planner/version.py and run `python -m tests.planner.freeze`"
    )
    assert told["plans"].keys() == found.keys()


def test_frozen_problems_when_planned_then_they_are_of_all_kinds() -> None:
    found = [result(drawn(seed)) for seed in range(SEEDS)]
    plans = [one for one in found if isinstance(one, Plan)]
    assert 5 < len(plans) < SEEDS
    assert {plan.tier for plan in plans} == {"measured", "arithmetic", "working-set"}
    assert {plan.search for plan in plans} == {"exact", "heuristic"}
    assert {plan.ordered_by for plan in plans} == {"priced", "counting"}
