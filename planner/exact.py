"""The best of every subset, order, head, batch size and division, within a budget of counted states.

Subsets are tried in the order of a lower bound, until it passes the best found.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import permutations

from planner.pool import Budget, Found, Pool, best_of_ring, bounds, just_above, members_of
from planner.tour import ring_weight, ring_weights


def exact_search(pool: Pool, budget: Budget) -> list[Found] | None:
    """All best layouts, or None when the budget did not reach. Empty if no set can hold the model.

    For equal blocks the layouts' orders are not yet rings: see `choice`.
    """
    size = len(pool.case.members)
    if not budget.spend((1 << size) * (size // 2 + 3 * len(pool.speeds))):
        return None
    rings = ring_weights(range(size), pool.weights)
    best: list[Found] = []
    known = math.inf
    for least, mask in sorted(_candidates(pool, rings)):
        if least > just_above(known):
            break
        for found in _best_of_set(pool, mask, rings[mask], known, budget):
            known = min(known, found.seconds)
            best.append(found)
        if budget.left < 0:
            return None
    return equals(best)


def equals(found: Iterable[Found]) -> list[Found]:
    """Those of the best rank."""
    found = list(found)
    best = min((one.rank for one in found), default=None)
    return [one for one in found if one.rank == best]


def _candidates(pool: Pool, rings: list[int]) -> Iterator[tuple[float, int]]:
    for mask in range(1, len(rings)):
        if mask & pool.required == pool.required and mask.bit_count() <= pool.case.chain.atoms:
            lower = bounds(pool, mask, rings[mask])
            if lower:
                yield lower[0][0], mask


def _best_of_set(pool: Pool, mask: int, weight: int, known_s: float, budget: Budget) -> Iterator[Found]:
    """For equal blocks the cheapest ring is best, whatever its order; for unequal ones every order is tried."""
    members = members_of(mask)
    if pool.case.chain.equal:
        yield from best_of_ring(pool, members, weight, known_s, budget)
    else:
        yield from every_order(pool, members, known_s, budget)


def every_order(pool: Pool, members: tuple[int, ...], known_s: float, budget: Budget) -> Iterator[Found]:
    """All rings of the members, each with every head, so all orders of the chain."""
    for rest in permutations(members[1:]):
        ring = (members[0], *rest)
        if not budget.spend(2 * len(pool.speeds)):
            return
        for found in best_of_ring(pool, ring, ring_weight(ring, pool.weights), known_s, budget):
            known_s = min(known_s, found.seconds)
            yield found
