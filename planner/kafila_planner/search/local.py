"""A good layout where trying all is too much: of the sets that the walk met, the most promising are divided exactly."""

import math
from collections.abc import Iterable, Sequence

from kafila_planner.ring.tour import Ring, ring_weight
from kafila_planner.search.pool import (
    FoundLayout,
    Pool,
    SearchBudget,
    best_of_ring,
    equals,
    just_above,
    mask_of,
)
from kafila_planner.search.rings import Rings
from kafila_planner.search.twins import first_choice, twins_of
from kafila_planner.search.walk import Walk

BOUNDS = 60_000
"""For the walks together; one takes some 10 µs."""

DIVIDED = 200
"""How many sets are divided at most."""


def local_search(rings: Rings, budget: SearchBudget) -> list[FoundLayout]:
    """Layouts found, each the best until then."""
    guesses, twins = rings.guesses(), twins_of(rings.pool)
    found: list[FoundLayout] = []
    divided: set[int] = set()
    for guess in guesses:
        for bound, ring in Walk(guess, SearchBudget(BOUNDS // len(guesses))).promising()[:DIVIDED]:
            if found and bound > just_above(min(one.seconds for one in found)):
                break
            ring = first_choice(ring, twins)
            if mask_of(ring) not in divided:
                divided.add(mask_of(ring))
                found += _divided(rings.pool, rings.of_set(ring), found, budget)
    return [*found, *_exchanged(rings, found, budget)]


def _divided(
    pool: Pool, rings: Iterable[Ring], known: Sequence[FoundLayout], budget: SearchBudget
) -> list[FoundLayout]:
    """The rings' divisions that are as good as all known and those before."""
    found: list[FoundLayout] = []
    for ring in rings:
        known_s = min((one.seconds for one in (*known, *found)), default=math.inf)
        found += best_of_ring(pool, ring, ring_weight(ring, pool.weights), known_s, budget)
    return found


def _exchanged(rings: Rings, known: Sequence[FoundLayout], budget: SearchBudget) -> list[FoundLayout]:
    """Exchange two members of the best order, as long as that helps."""
    best = equals(known)
    while best:
        better = equals([*best, *_divided(rings.pool, rings.exchanged(best[0].layout.order), best, budget)])
        if better[0].rank >= best[0].rank:
            break
        best = better
    return best
