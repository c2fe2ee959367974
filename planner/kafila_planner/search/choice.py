"""`latency` and `throughput`: subset, order, head and division together, exact within a budget of counted states."""

import math
from collections.abc import Callable, Sequence

from kafila_planner.model.case import Case
from kafila_planner.model.rates import Layout
from kafila_planner.model.types import SearchKind
from kafila_planner.model.unequal import UnequalChain
from kafila_planner.search.climb import climbed
from kafila_planner.search.equal import EqualRings
from kafila_planner.search.local import local_search
from kafila_planner.search.pool import FoundLayout, SearchBudget, equals, measured, pool_of
from kafila_planner.search.rings import Rings
from kafila_planner.search.unequal import UnequalRings


def rings_of(case: Case) -> Rings:
    """The one place that asks whether blocks are equal."""
    pool, chain = pool_of(case), case.chain
    return UnequalRings(pool, chain) if isinstance(chain, UnequalChain) else EqualRings(pool)


def choose(
    case: Case, paper: Callable[[], Layout | None], budget: SearchBudget | None
) -> tuple[Layout, SearchKind] | None:
    """The best layout over subsets of the case's members, all of whom can hold a block; None if none was found.

    `paper` makes what the objective `paper` would: a search that is not exact must not be worse.
    budget: of the exact search; about a second's where it is None.
    """
    rings = rings_of(case)
    budget = budget or SearchBudget(rings.exact_states)
    known = local_search(rings, SearchBudget(rings.local_states))
    known_s = min((found.seconds for found in known), default=math.inf)
    best = equals([*known, *rings.exact(budget, known_s)])
    if budget.left >= 0:
        return (_preferred(rings, best), SearchKind.EXACT) if best else None
    together = paper()
    known = [*best, *known, *([measured(rings.pool, together)] if together else [])]
    best = equals([*known, *climbed(rings, known, SearchBudget(rings.climb_states))])
    return (_preferred(rings, best), SearchKind.HEURISTIC) if best else None


def _preferred(rings: Rings, best: Sequence[FoundLayout]) -> Layout:
    """Of equal layouts one with the anchor, then the lexicographically smallest order from it, then its head."""
    anchor = rings.pool.case.anchor
    best = rings.preferred([found for found in best if anchor in found.layout.order] or best)
    return min((found.layout for found in best), key=lambda layout: _key(layout, anchor))


def _key(layout: Layout, anchor: int) -> tuple[tuple[int, ...], bool, int, tuple[int, ...]]:
    order = layout.order
    place = order.index(anchor if anchor in order else min(order))
    return (*order[place:], *order[:place]), order[0] != anchor, order[0], layout.counts
