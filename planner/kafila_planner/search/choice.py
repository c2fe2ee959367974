"""`latency` and `throughput`: subset, order, head and division together."""

from collections.abc import Callable, Sequence

from kafila_planner.model.case import Case
from kafila_planner.model.rates import Layout
from kafila_planner.model.types import SearchKind
from kafila_planner.ring.order import ring_through
from kafila_planner.ring.tour import EXACT_TO
from kafila_planner.search import climb, local
from kafila_planner.search.climb import climbed
from kafila_planner.search.exact import equals, exact_search
from kafila_planner.search.local import local_search
from kafila_planner.search.pool import FoundLayout, Pool, SearchBudget, measured, pool_of

TIED_STATES = 1 << 14
"""Exact rings of equal sets, counted in their subsets, that are compared by order; of more, the first by name."""


def choose(case: Case, paper: Callable[[], Layout | None], budget: SearchBudget) -> tuple[Layout, SearchKind] | None:
    """The best layout over subsets of the case's members, all of whom can hold a block; None if none was found.

    `paper` makes what the objective `paper` would: a search that is not exact must not be worse.
    """
    pool = pool_of(case)
    known = local_search(pool, local.STATES.budget(case))
    best = exact_search(pool, budget, known)
    if budget.left >= 0:
        return (_preferred(pool, best), SearchKind.EXACT) if best else None
    together = paper()
    known = [*best, *known, *([measured(pool, together)] if together else [])]
    best = equals([*known, *climbed(pool, known, climb.STATES.budget(case))])
    return (_preferred(pool, best), SearchKind.HEURISTIC) if best else None


def _preferred(pool: Pool, best: Sequence[FoundLayout]) -> Layout:
    """Of equal layouts one with the anchor, then the lexicographically smallest order from it, then its head."""
    anchor = pool.case.anchor
    best = [found for found in best if anchor in found.layout.order] or list(best)
    if pool.case.chain.equal:
        found_by_set = {tuple(sorted(found.layout.order)): found.layout.order for found in best}
        sets = sorted(found_by_set)[: max(1, TIED_STATES >> max(map(len, found_by_set)))]
        rings = {members: _ring(pool.case, members, found_by_set[members]) for members in sets}
        members, ring = min(rings.items(), key=lambda one: one[1])
        best = [_along(ring, found) for found in best if tuple(sorted(found.layout.order)) == members]
    return min((found.layout for found in best), key=lambda layout: _key(layout, anchor))


def _ring(case: Case, members: Sequence[int], found: tuple[int, ...]) -> tuple[int, ...]:
    """From the anchor, if it is in the set. Where no exact ring can be had, the one that was found."""
    start = case.anchor if case.anchor in members else members[0]
    if len(members) > EXACT_TO and case.links.priced:
        place = found.index(start)
        ring = (*found[place:], *found[:place])
        return min(ring, (start, *reversed(ring[1:])))
    return ring_through(case, start, [member for member in members if member != start])


def _along(ring: tuple[int, ...], found: FoundLayout) -> FoundLayout:
    """The same head and counts in the ring's order."""
    counts = dict(zip(found.layout.order, found.layout.counts, strict=True))
    place = ring.index(found.layout.order[0])
    order = (*ring[place:], *ring[:place])
    return FoundLayout(found.rank, found.seconds, Layout(order, tuple(counts[member] for member in order)))


def _key(layout: Layout, anchor: int) -> tuple[tuple[int, ...], bool, int, tuple[int, ...]]:
    order = layout.order
    place = order.index(anchor if anchor in order else min(order))
    return (*order[place:], *order[:place]), order[0] != anchor, order[0], layout.counts
