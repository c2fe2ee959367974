"""Equal blocks: the best of every subset, head, batch size and division, within a budget of counted states."""

import math
from collections.abc import Iterator

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
from kafila_planner.search.twins import is_first_choice, twins_of


def search_sets(pool: Pool, budget: SearchBudget, known_s: float) -> Iterator[FoundLayout]:
    """The cheapest ring of a set is best, whatever its order. The layouts are in no order yet.

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


def floors_of(pool: Pool, budget: SearchBudget) -> list[float] | None:
    """For each set the least bound of those that contain it; None where the budget is too small for that."""
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
