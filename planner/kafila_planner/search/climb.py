"""From good layouts to better ones: one member or one place changed at a time, and every change divided exactly.

The walk judges sets by bounds, which say little where memory is tight or blocks are unequal; here what is compared is
what the planner promises.
"""

from collections.abc import Iterator, Sequence

from kafila_planner.ring.tour import Ring, ring_weight
from kafila_planner.search.pool import FoundLayout, SearchBudget, best_of_ring, mask_of
from kafila_planner.search.rings import Rings

STARTS = 10
"""How many of the sets known are climbed from."""


def climbed(rings: Rings, known: Sequence[FoundLayout], budget: SearchBudget) -> list[FoundLayout]:
    """The tops that the best known layouts, of different sets, lead to."""
    starts = _best_by_set([*known, *rings.starts(known, budget)])[:STARTS]
    share = budget.left // max(1, len(starts))
    return [_top(rings, start, SearchBudget(share)) for start in starts]


def _best_by_set(known: Sequence[FoundLayout]) -> list[FoundLayout]:
    by_set: dict[int, FoundLayout] = {}
    for found in sorted(known, key=lambda found: (found.rank, found.layout.order)):
        by_set.setdefault(mask_of(found.layout.order), found)
    return list(by_set.values())


def _top(rings: Rings, here: FoundLayout, budget: SearchBudget) -> FoundLayout:
    while budget.left > 0:
        better = _best(rings, _changes(rings, here.layout.order), here, budget)
        if better.rank >= here.rank:
            break
        here = better
    return _best(rings, rings.finished(here.layout.order), here, budget)


def _best(rings: Rings, tried: Iterator[Ring], here: FoundLayout, budget: SearchBudget) -> FoundLayout:
    pool, best = rings.pool, here
    for ring in tried:
        if not budget.spend(len(ring) ** 2 + len(pool.case.members) * len(pool.speeds)):
            break
        for found in best_of_ring(pool, ring, ring_weight(ring, pool.weights), best.seconds, budget):
            best = min(best, found, key=lambda one: one.rank)
    return best


def _changes(rings: Rings, ring: Ring) -> Iterator[Ring]:
    """One member less, more, or another in its place; or the same in another order."""
    case, required = rings.pool.case, rings.pool.required
    outside = [member for member in range(len(case.members)) if member not in ring]
    removable = [place for place, member in enumerate(ring) if not required >> member & 1]
    if len(ring) > 1:
        for place in removable:
            yield rings.without(ring, place)
    if len(ring) < case.chain.atoms:
        for member in outside:
            yield from rings.with_member(ring, member)
    for place in removable:
        for member in outside:
            yield rings.instead(ring, place, member)
    yield from rings.reordered(ring)
