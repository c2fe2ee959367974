"""A good layout where trying all is too much: of the sets that the walk met, the most promising are divided exactly."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

from kafila_planner.ring.tour import cheapest_ring, improved, ring_weight
from kafila_planner.search.exact import equals
from kafila_planner.search.pool import (
    FoundLayout,
    Pool,
    SearchBudget,
    States,
    best_of_ring,
    cautious,
    just_above,
    mask_of,
)
from kafila_planner.search.twins import first_choice, twins_of
from kafila_planner.search.walk import Ring, Walk

STATES = States(200_000, 500_000)
"""For the divisions."""

BOUNDS = 60_000
"""For the walks together; one takes some 10 µs."""

DIVIDED = 200
"""How many sets are divided at most."""

RING_EXACT_TO = 9
"""Sets up to this size get their exact ring; larger ones keep theirs, improved."""

EVERY_ORDER_TO = 5
"""Unequal blocks: members up to which every order of a set is tried; beyond, the ring both ways."""

EXCHANGED_TO = 16
"""Unequal blocks: members up to which exchanges of two are tried in the best order."""


def local_search(pool: Pool, budget: SearchBudget) -> list[FoundLayout]:
    """Layouts found, each the best until then. For unequal blocks the walk goes by what will pack, then by bounds."""
    guesses = [pool] if pool.case.chain.equal else [cautious(pool), pool]
    twins = twins_of(pool)
    found: list[FoundLayout] = []
    divided: set[int] = set()
    for guess in guesses:
        for bound, ring in Walk(guess, SearchBudget(BOUNDS // len(guesses))).promising()[:DIVIDED]:
            if found and bound > just_above(min(one.seconds for one in found)):
                break
            ring = first_choice(ring, twins)
            if mask_of(ring) not in divided:
                divided.add(mask_of(ring))
                found += _divided(pool, _orders(pool, ring), found, budget)
    return found if pool.case.chain.equal else [*found, *_exchanged(pool, found, budget)]


def _orders(pool: Pool, ring: Ring) -> Iterator[Ring]:
    """The orders in which a set is divided."""
    if not pool.case.chain.equal and len(ring) <= EVERY_ORDER_TO:
        yield from ((ring[0], *rest) for rest in permutations(sorted(ring[1:])))
        return
    members = sorted(ring)
    exact = len(ring) <= RING_EXACT_TO
    ring = cheapest_ring(members[0], members[1:], pool.weights) if exact else improved(ring, pool.weights)
    yield ring
    if not pool.case.chain.equal:
        yield ring[::-1]


def _divided(
    pool: Pool, rings: Iterable[Ring], known: Sequence[FoundLayout], budget: SearchBudget
) -> list[FoundLayout]:
    """The rings' divisions that are as good as all known and those before."""
    found: list[FoundLayout] = []
    for ring in rings:
        known_s = min((one.seconds for one in (*known, *found)), default=math.inf)
        found += best_of_ring(pool, ring, ring_weight(ring, pool.weights), known_s, budget)
    return found


def _exchanged(pool: Pool, known: Sequence[FoundLayout], budget: SearchBudget) -> list[FoundLayout]:
    """Exchange two members of the best order, as long as that helps."""
    best = equals(known)
    while best and len(best[0].layout.order) <= EXCHANGED_TO:
        better = equals([*best, *_divided(pool, exchanges(best[0].layout.order), best, budget)])
        if better[0].rank >= best[0].rank:
            break
        best = better
    return best


def exchanges(ring: Ring) -> Iterator[Ring]:
    """The orders in which two members have changed places."""
    for i in range(len(ring)):
        for j in range(i):
            other = list(ring)
            other[i], other[j] = other[j], other[i]
            yield tuple(other)
