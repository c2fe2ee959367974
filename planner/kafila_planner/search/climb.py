"""From good layouts to better ones: one member or one place changed at a time, and every change divided exactly.

The walk judges sets by bounds, which say little where memory is tight or blocks are unequal; here what is compared is
what the planner promises.
"""

import math
from collections.abc import Iterator, Sequence

from kafila_planner.ring.tour import cheapest_ring, improved, insert_all, ring_weight
from kafila_planner.search.local import exchanges
from kafila_planner.search.pool import FoundLayout, Pool, SearchBudget, States, best_of_ring, mask_of
from kafila_planner.search.sequences import SequenceSearch
from kafila_planner.search.walk import Ring

STATES = States(240_000, 400_000)
"""For the climbs together."""

STARTS = 10
"""How many of the sets known are climbed from."""

SEARCHED_TO = 12
"""Unequal blocks: members up to which all orders are searched, with one left out."""

MOVED_TO = 16
"""Unequal blocks: members up to which the order is changed, too."""

RING_EXACT_TO = 11
"""Equal blocks: members up to which a set gets its exact ring in the end."""


def climbed(pool: Pool, known: Sequence[FoundLayout], budget: SearchBudget) -> list[FoundLayout]:
    """The tops that the best known layouts, of different sets, lead to."""
    if not pool.case.chain.equal and len(pool.case.members) <= SEARCHED_TO:
        half = budget.left // 2
        known = [*known, *_without_each(pool, known, half)]
        budget.spend(half)
    starts = _starts(known)
    share = budget.left // max(1, len(starts))
    return [_top(pool, start, SearchBudget(share)) for start in starts]


def _without_each(pool: Pool, known: Sequence[FoundLayout], states: int) -> list[FoundLayout]:
    """Unequal blocks: every order of the others, for each member that may be left out, as far as the states go."""
    left_out = [member for member in range(len(pool.case.members)) if not pool.required >> member & 1]
    known_s = min((found.seconds for found in known), default=math.inf)
    found: list[FoundLayout] = []
    for member in left_out:
        search = SequenceSearch(pool, SearchBudget(states // len(left_out)), known_s, None, without=1 << member)
        found += search.run()
        known_s = search.known_s
    return found


def _starts(known: Sequence[FoundLayout]) -> list[FoundLayout]:
    by_set: dict[int, FoundLayout] = {}
    for found in sorted(known, key=lambda found: (found.rank, found.layout.order)):
        by_set.setdefault(mask_of(found.layout.order), found)
    return list(by_set.values())[:STARTS]


def _top(pool: Pool, here: FoundLayout, budget: SearchBudget) -> FoundLayout:
    while budget.left > 0:
        better = _best(pool, _changes(pool, here.layout.order), here, budget)
        if better.rank >= here.rank:
            break
        here = better
    return _best(pool, _exact_ring(pool, here.layout.order), here, budget)


def _best(pool: Pool, rings: Iterator[Ring], here: FoundLayout, budget: SearchBudget) -> FoundLayout:
    best = here
    for ring in rings:
        if not budget.spend(len(ring) ** 2 + len(pool.case.members) * len(pool.speeds)):
            break
        for found in best_of_ring(pool, ring, ring_weight(ring, pool.weights), best.seconds, budget):
            best = min(best, found, key=lambda one: one.rank)
    return best


def _changes(pool: Pool, ring: Ring) -> Iterator[Ring]:
    """One member less, more, or another in its place; for unequal blocks the order, too."""
    equal = pool.case.chain.equal
    outside = [member for member in range(len(pool.case.members)) if member not in ring]
    removable = [place for place, member in enumerate(ring) if not pool.required >> member & 1]
    if len(ring) > 1:
        for place in removable:
            yield _tidied(pool, ring[:place] + ring[place + 1 :])
    if len(ring) < pool.case.chain.atoms:
        for member in outside:
            yield from _with(pool, ring, member)
    for place in removable:
        rest = ring[:place] + ring[place + 1 :]
        for member in outside:
            yield next(_with(pool, rest, member)) if equal and rest else (*ring[:place], member, *ring[place + 1 :])
    if not equal and len(ring) <= MOVED_TO:
        yield from _orders(ring)


def _with(pool: Pool, ring: Ring, member: int) -> Iterator[Ring]:
    """The member where it costs least; for unequal blocks everywhere."""
    if pool.case.chain.equal:
        yield improved(insert_all(ring, [member], pool.weights), pool.weights)
        return
    for place in range(len(ring) + 1):
        yield (*ring[:place], member, *ring[place:])


def _tidied(pool: Pool, ring: Ring) -> Ring:
    """For equal blocks the order matters to the network only."""
    return improved(ring, pool.weights) if pool.case.chain.equal else ring


def _orders(ring: Ring) -> Iterator[Ring]:
    """Two exchanged, one moved, or all turned round."""
    yield ring[::-1]
    yield from exchanges(ring)
    for i, member in enumerate(ring):
        rest = ring[:i] + ring[i + 1 :]
        for j in range(len(ring)):
            if abs(i - j) > 1:
                yield (*rest[:j], member, *rest[j:])


def _exact_ring(pool: Pool, ring: Ring) -> Iterator[Ring]:
    if pool.case.chain.equal and 3 < len(ring) <= RING_EXACT_TO:
        members = sorted(ring)
        yield cheapest_ring(members[0], members[1:], pool.weights)
