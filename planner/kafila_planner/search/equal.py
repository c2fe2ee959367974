"""Equal blocks: one ring a set, the cheapest, and exact where that can be had."""

import math
from collections.abc import Iterator, Sequence

from kafila_planner.model.case import Case
from kafila_planner.model.rates import Layout
from kafila_planner.ring.order import ring_of, ring_through
from kafila_planner.ring.tour import EXACT_TO, Ring, cheapest_ring, improved, insert_all, ring_weight
from kafila_planner.search.pool import FoundLayout, Pool, SearchBudget, best_of_ring
from kafila_planner.search.rings import Rings
from kafila_planner.search.sets import search_sets

SETS_EXACT_TO = 9
"""Sets up to this size get their exact ring; larger ones keep theirs, improved."""

TOPS_EXACT_TO = 11
"""Members up to which a set gets its exact ring in the end."""

TIED_STATES = 1 << 14
"""Exact rings of equal sets, counted in their subsets, that are compared by order; of more, the first by name."""


class EqualRings(Rings):
    exact_states = 300_000
    local_states = 200_000
    climb_states = 240_000

    def exact(self, budget: SearchBudget, known_s: float) -> Iterator[FoundLayout]:
        return search_sets(self.pool, budget, known_s)

    def guesses(self) -> list[Pool]:
        return [self.pool]

    def of_set(self, ring: Ring) -> Iterator[Ring]:
        yield shortened(self.pool, ring)

    def exchanged(self, ring: Ring) -> Iterator[Ring]:
        yield from ()

    def starts(self, known: Sequence[FoundLayout], budget: SearchBudget) -> Sequence[FoundLayout]:
        return ()

    def without(self, ring: Ring, place: int) -> Ring:
        return improved(ring[:place] + ring[place + 1 :], self.pool.weights)

    def with_member(self, ring: Ring, member: int) -> Iterator[Ring]:
        yield self._inserted(ring, member)

    def instead(self, ring: Ring, place: int, member: int) -> Ring:
        rest = ring[:place] + ring[place + 1 :]
        return self._inserted(rest, member) if rest else (member,)

    def reordered(self, ring: Ring) -> Iterator[Ring]:
        yield from ()

    def finished(self, ring: Ring) -> Iterator[Ring]:
        if 3 < len(ring) <= TOPS_EXACT_TO:
            yield _exact(self.pool, ring)

    def preferred(self, best: Sequence[FoundLayout]) -> list[FoundLayout]:
        """Those of the set whose ring comes first, all in the order of that ring."""
        found_by_set = {tuple(sorted(found.layout.order)): found.layout.order for found in best}
        sets = sorted(found_by_set)[: max(1, TIED_STATES >> max(map(len, found_by_set)))]
        rings = {members: _ring_from_anchor(self.pool.case, members, found_by_set[members]) for members in sets}
        members, ring = min(rings.items(), key=lambda one: one[1])
        return [_along(ring, found) for found in best if tuple(sorted(found.layout.order)) == members]

    def everybody(self, near: Ring, budget: SearchBudget) -> list[FoundLayout]:
        """Where the exact ring is too much, the one near with the new member in it: good, and quick for many."""
        members = range(len(self.pool.case.members))
        if len(members) <= SETS_EXACT_TO:
            ring = ring_of(self.pool.case)
        else:
            ring = self._inserted(near, next(member for member in members if member not in near))
        return list(best_of_ring(self.pool, ring, ring_weight(ring, self.pool.weights), math.inf, budget))

    def _inserted(self, ring: Ring, member: int) -> Ring:
        """The member where it costs least."""
        return improved(insert_all(ring, [member], self.pool.weights), self.pool.weights)


def shortened(pool: Pool, ring: Ring) -> Ring:
    """The exact ring of a small set, of a larger one its own, improved."""
    return _exact(pool, ring) if len(ring) <= SETS_EXACT_TO else improved(ring, pool.weights)


def _exact(pool: Pool, ring: Ring) -> Ring:
    members = sorted(ring)
    return cheapest_ring(members[0], members[1:], pool.weights)


def _ring_from_anchor(case: Case, members: Sequence[int], found: Ring) -> Ring:
    """From the anchor, if it is in the set. Where no exact ring can be had, the one that was found."""
    start = case.anchor if case.anchor in members else members[0]
    if len(members) > EXACT_TO and case.round_trips.priced:
        place = found.index(start)
        ring = (*found[place:], *found[:place])
        return min(ring, (start, *reversed(ring[1:])))
    return ring_through(case, start, [member for member in members if member != start])


def _along(ring: Ring, found: FoundLayout) -> FoundLayout:
    """The same head and counts in the ring's order."""
    counts = dict(zip(found.layout.order, found.layout.counts, strict=True))
    place = ring.index(found.layout.order[0])
    order = (*ring[place:], *ring[:place])
    return FoundLayout(found.rank, found.seconds, Layout(order, tuple(counts[member] for member in order)))
