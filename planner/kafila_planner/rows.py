"""How many sequences' tokens a stage runs at once.

Never all that wait: they would travel as a convoy, one stage at work and the others idle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from kafila_planner.model.case import case_of
from kafila_planner.model.rates import Layout, network_s, ring_ps, stage_costs
from kafila_planner.model.types import Plan, Problem, Tier


@dataclass(frozen=True, slots=True)
class RowsPace:
    """What a ring does with so many rows a run: seconds once round it, and of its slowest stage in it."""

    rows: int
    circuit_s: float
    busiest_s: float


def paces(problem: Problem, plan: Plan) -> tuple[RowsPace, ...]:
    """One for each number of rows that was priced, 1 first; none where the members' speeds are not known."""
    case = case_of(problem, plan.order)
    if case.tier is not Tier.MEASURED:
        return ()
    layout = layout_of(problem, plan)
    network = network_s(ring_ps(case, layout.order))
    costs = [(prices.batch, stage_costs(case, layout, prices)) for prices in case.prices]
    return tuple(RowsPace(rows, fsum(cost) + network, max(cost)) for rows, cost in costs)


def layout_of(problem: Problem, plan: Plan) -> Layout:
    """A plan's ring as the case of its own members sees it."""
    case = case_of(problem, plan.order)
    places = {block: place for place, block in enumerate(case.chain.cuts)}
    counts = tuple(places[stage.end] - places[stage.start] for stage in plan.stages)
    return Layout(tuple(case.names.index(name) for name in plan.order), counts)


def rows_for(users: int, known: Sequence[RowsPace]) -> int:
    """The fewest rows a run that are best for so many sequences at once.

    A token of each takes a circuit, or the slowest stage's ceil(users / rows) runs, whichever is longer.
    """
    if not known or users < 2:
        return 1
    return min(known, key=lambda pace: (max(pace.circuit_s, -(-users // pace.rows) * pace.busiest_s), pace.rows)).rows
