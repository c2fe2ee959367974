"""A good set of members where trying all is too much.

A walk on the lower bounds, with estimated rings (a member inserted where it costs least): grown from every member,
then improved one change at a time. Of all sets that it saw, the most promising are divided exactly.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

from planner.exact import equals
from planner.pool import Budget, Found, Pool, best_of_ring, just_above, least_bound, mask_of, members_of
from planner.tour import cheapest_place, cheapest_ring, good_ring, improved, ring_weight

BEGINNINGS = 8
"""How many of the grown sets are improved."""

DIVIDED = 200
"""How many sets are divided exactly at most."""

RING_EXACT_TO = 9
"""Sets up to this size get their exact ring; larger ones keep theirs, improved."""

EVERY_ORDER_TO = 5
"""Unequal blocks: members up to which every order of a set is tried; beyond, the ring both ways."""

EXCHANGED_TO = 16
"""Unequal blocks: members up to which exchanges of two are tried in the best order."""

Ring = tuple[int, ...]


class LocalSearch:
    """`seen` holds every set that the walk met, with its bound and ring. `budget` ends the divisions early."""

    def __init__(self, pool: Pool, budget: Budget) -> None:
        self.pool = pool
        self.budget = budget
        self.size = len(pool.case.members)
        self.seen: dict[int, tuple[float, Ring]] = {}

    def run(self) -> list[Found]:
        """The best layouts found."""
        everybody = good_ring(0, range(1, self.size), self.pool.weights) if self._all_fit() else ()
        grown = sorted({self._grown(seed) for seed in range(self.size)}, key=self._value)
        for ring in filter(None, dict.fromkeys([everybody, *grown[:BEGINNINGS]])):
            self._climb(ring)
        best: list[Found] = []
        for lower, ring in sorted(self.seen.values())[:DIVIDED]:
            if best and lower > just_above(best[0].seconds):
                break
            best = self._better(self._orders(ring), best)
        return best if self.pool.case.chain.equal else self._exchanged(best)

    def _all_fit(self) -> bool:
        return self.size <= self.pool.case.chain.atoms

    def _bound(self, ring: Ring) -> float:
        mask = mask_of(ring)
        if mask not in self.seen:
            self.seen[mask] = least_bound(self.pool, mask, ring_weight(ring, self.pool.weights)), ring
        return self.seen[mask][0]

    def _value(self, ring: Ring) -> tuple[float, float]:
        """The bound; where the set is too small, the seconds of the whole ring for each unit of room it has."""
        bound = self._bound(ring)
        if bound < math.inf:
            return bound, 0.0
        seconds = self.pool.network_s(ring_weight(ring, self.pool.weights))
        rows = [row for row in self.pool.speeds[0].rows if mask_of(ring) & row.bit]
        seconds += sum(row.least_s + row.per_s * row.spare for row in rows)
        return bound, seconds / sum(1 + row.spare for row in rows)

    def _grown(self, seed: int) -> Ring:
        """From one member: add who costs least for its room until the model fits, then who helps most."""
        ring = self._ring(sorted({seed, *members_of(self.pool.required)}))
        while bigger := self._bigger(ring):
            following = min(bigger, key=self._value)
            if self._bound(ring) < math.inf and self._bound(following) >= self._bound(ring):
                break
            ring = following
        return ring

    def _climb(self, ring: Ring) -> None:
        """One member more or less, or exchanged where neither helps, as long as the bound falls."""
        while True:
            following = min([ring, *self._bigger(ring), *self._smaller(ring)], key=self._value)
            if following == ring:
                following = min([ring, *self._swapped(ring)], key=self._value)
            if self._value(following) >= self._value(ring):
                return
            ring = following

    def _bigger(self, ring: Ring) -> list[Ring]:
        if len(ring) >= self.pool.case.chain.atoms:
            return []
        return [self._with(ring, member) for member in range(self.size) if member not in ring]

    def _smaller(self, ring: Ring) -> list[Ring]:
        removable = [place for place, member in enumerate(ring) if not self.pool.required >> member & 1]
        return [ring[:place] + ring[place + 1 :] for place in removable] if len(ring) > 1 else []

    def _swapped(self, ring: Ring) -> list[Ring]:
        outside = [member for member in range(self.size) if member not in ring]
        return [self._with(smaller, member) for smaller in self._smaller(ring) for member in outside]

    def _with(self, ring: Ring, member: int) -> Ring:
        place, _ = cheapest_place(ring, member, self.pool.weights)
        return (*ring[:place], member, *ring[place:])

    def _ring(self, members: Sequence[int]) -> Ring:
        return cheapest_ring(members[0], members[1:], self.pool.weights)

    def _orders(self, ring: Ring) -> Iterator[Ring]:
        """The orders in which a set is divided."""
        if not self.pool.case.chain.equal and len(ring) <= EVERY_ORDER_TO:
            yield from ((ring[0], *rest) for rest in permutations(sorted(ring[1:])))
            return
        short = len(ring) <= RING_EXACT_TO
        ring = self._ring(sorted(ring)) if short else improved(ring, self.pool.weights)
        yield ring
        if not self.pool.case.chain.equal:
            yield ring[::-1]

    def _better(self, rings: Iterable[Ring], best: list[Found]) -> list[Found]:
        """The best of those known and of the rings' divisions."""
        best = list(best)
        for ring in rings:
            known = min((found.seconds for found in best), default=math.inf)
            best += best_of_ring(self.pool, ring, ring_weight(ring, self.pool.weights), known, self.budget)
        return equals(best)

    def _exchanged(self, best: list[Found]) -> list[Found]:
        """Exchange two members of the best order, as long as that helps."""
        while best and len(best[0].layout.order) <= EXCHANGED_TO:
            better = self._better(_exchanges(best[0].layout.order), best)
            if better[0].rank >= best[0].rank:
                break
            best = better
        return best


def _exchanges(ring: Ring) -> Iterator[Ring]:
    for i in range(len(ring)):
        for j in range(i):
            other = list(ring)
            other[i], other[j] = other[j], other[i]
            yield tuple(other)
