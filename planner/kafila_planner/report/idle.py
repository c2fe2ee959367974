"""Members without blocks: why, and the rate of the chosen members with each of them in."""

from math import fsum

from kafila_planner.admission import can_hold_a_block, size
from kafila_planner.division.crew import SURPLUS
from kafila_planner.model.case import Case, case_of
from kafila_planner.model.rates import Layout, best_batch, network_s, ring_ps, stage_costs
from kafila_planner.model.types import Idle, Objective, Tier
from kafila_planner.search.choice import rings_of
from kafila_planner.search.pool import SearchBudget
from kafila_planner.settle import Settled, takes_all, whole

ALL_TAKEN = "more members than blocks, and it would do better in nobody's place"

STATES = 30_000
"""For each member left out: enough for every head and batch size of a small ring, and for the likeliest of a large."""


def idle_of(settled: Settled) -> tuple[Idle, ...]:
    """Everybody who is not in the ring, by name."""
    problem = settled.case.problem
    taken = [settled.case.names[member] for member in settled.layout.order]
    out = sorted({member.name for member in problem.members} - set(taken))
    return tuple(_idle(settled, name, case_of(problem, [*taken, name])) for name in out)


def _idle(settled: Settled, name: str, case: Case) -> Idle:
    member = case.names.index(name)
    if not can_hold_a_block(case, member):
        memory = case.members[member].memory_bytes
        needs = case.chain.least_held() - case.room_bytes[member] + (memory or 0)
        offers = "its memory is not known" if memory is None else f"it offers {size(memory)}"
        return Idle(name, f"can't hold one block: that needs {size(needs)}, {offers}", None)
    layout = _layout_with(settled, case)
    rate = None if layout is None else 1 / best_batch(case, layout)[0]
    if name in case.problem.exclude:
        return Idle(name, "excluded", rate)
    if len(case.members) > case.chain.atoms:
        return Idle(name, SURPLUS if takes_all(case.problem) or name in settled.surplus else ALL_TAKEN, rate)
    if layout is None:
        return Idle(name, "the blocks can't be divided with it among the others", rate)
    return Idle(name, _comparison(settled, case, layout), rate)


def _layout_with(settled: Settled, case: Case) -> Layout | None:
    """All members of the case in a ring, divided as the problem wants it; None if no rate or no block is left."""
    if case.tier is not Tier.MEASURED or len(case.members) > case.chain.atoms:
        return None
    if takes_all(case.problem):
        together = whole(case)
        return together.layout if isinstance(together, Settled) else None
    present = tuple(case.names.index(settled.case.names[member]) for member in settled.layout.order)
    found = rings_of(case).everybody(present, SearchBudget(STATES))
    best = min(found, key=lambda one: (one.rank, one.layout.order), default=None)
    return None if best is None else best.layout


def _comparison(settled: Settled, case: Case, layout: Layout) -> str:
    """What the member would change, in the objective's own terms."""
    if case.problem.objective is Objective.LATENCY:
        without, with_it = 1e3 * _circuit_s(settled.case, settled.layout), 1e3 * _circuit_s(case, layout)
        return f"a token takes {without:.3g} ms without it, {with_it:.3g} ms with it"
    without, with_it = 1 / best_batch(settled.case, settled.layout)[0], 1 / best_batch(case, layout)[0]
    return f"{without:.3g} tokens/s without it, {with_it:.3g} with it"


def _circuit_s(case: Case, layout: Layout) -> float:
    return fsum(stage_costs(case, layout, case.prices[0])) + network_s(ring_ps(case, layout.order))
