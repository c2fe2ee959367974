"""The best of every subset, order, head, batch size and division, within a budget of counted states."""

import math
from collections.abc import Iterable, Iterator

from kafila_planner.ring.tour import ring_weights
from kafila_planner.search.pool import (
    FoundLayout,
    Pool,
    SearchBudget,
    best_of_ring,
    just_above,
    least_bound,
    members_of,
)
from kafila_planner.search.sequences import SequenceSearch
from kafila_planner.search.twins import is_first_choice, twins_of

FLOORS_TO = 12
"""Unequal blocks: members up to which every subset gets a lower bound beforehand."""


def exact_search(pool: Pool, budget: SearchBudget, known: list[FoundLayout]) -> list[FoundLayout]:
    """All best layouts, those known among them; empty if no set can hold the model.

    Exact unless the budget is spent: then the best until then.
    """
    known_s = min((found.seconds for found in known), default=math.inf)
    if pool.case.chain.equal:
        return equals([*known, *_sets(pool, budget, known_s)])
    floors = _floors(pool, budget) if len(pool.case.members) <= FLOORS_TO else None
    return equals([*known, *SequenceSearch(pool, budget, known_s, floors).run()])


def _sets(pool: Pool, budget: SearchBudget, known_s: float) -> Iterator[FoundLayout]:
    """Equal blocks: the cheapest ring of a set is best, whatever its order. The layouts are in no order yet.

    Subsets are tried in the order of a lower bound, until it passes the best found.
    """
    if not _affordable(pool, budget):
        return
    rings, twins = ring_weights(range(len(pool.case.members)), pool.weights), twins_of(pool)
    for least, mask in sorted((least, mask) for mask, least in enumerate(_bounds(pool, rings)) if least < math.inf):
        if not is_first_choice(mask, twins):
            continue
        if least > just_above(known_s) or budget.left < 0:
            break
        for found in best_of_ring(pool, members_of(mask), rings[mask], known_s, budget):
            known_s = min(known_s, found.seconds)
            yield found


def _floors(pool: Pool, budget: SearchBudget) -> list[float] | None:
    """For each set the least bound of those that contain it."""
    if not _affordable(pool, budget):
        return None
    size = len(pool.case.members)
    floors = _bounds(pool, ring_weights(range(size), pool.weights))
    for member in range(size):
        for mask in range(1 << size):
            if not mask >> member & 1:
                floors[mask] = min(floors[mask], floors[mask | 1 << member])
    return floors


def _affordable(pool: Pool, budget: SearchBudget) -> bool:
    """Pays for a ring and a bound of every subset."""
    size = len(pool.case.members)
    return budget.spend((1 << size) * (size // 2 + 3 * len(pool.speeds)))


def _bounds(pool: Pool, rings: list[int]) -> list[float]:
    """A lower bound for every subset; infinite without those required."""
    return [
        least_bound(pool, mask, weight) if mask and mask & pool.required == pool.required else math.inf
        for mask, weight in enumerate(rings)
    ]


def equals(found: Iterable[FoundLayout]) -> list[FoundLayout]:
    """Those of the best rank."""
    found = list(found)
    best = min((one.rank for one in found), default=None)
    return [one for one in found if one.rank == best]
