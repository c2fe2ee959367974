"""A walk over sets of members on their bounds, with estimated rings (a member inserted where it costs least).

Grown from every member, then improved one change at a time. Nothing is divided here.
"""

import math
from collections.abc import Sequence
from math import fsum

from kafila_planner.ring.tour import Ring, cheapest_place, cheapest_ring, good_ring, improved, ring_weight
from kafila_planner.search.pool import Pool, SearchBudget, least_bound, mask_of, members_of

SEEDS = 12
"""How many members a set is grown from: all, or the fastest and the largest."""

IMPROVED_TO = 8
"""Members up to which an estimated ring is improved at once, which costs as much as a bound."""

BEGINNINGS = 8
"""How many of the grown sets are improved."""

LOOKED_ROUND = 16
"""How many sets' changes are all tried in the end."""


class Walk:
    """`seen` holds every set that the walk met, with its bound and a ring. `budget` is in bounds, by batch size."""

    def __init__(self, pool: Pool, budget: SearchBudget) -> None:
        self.pool = pool
        self.size = len(pool.case.members)
        self.budget = budget
        self.seen: dict[int, tuple[float, Ring]] = {}

    def promising(self) -> list[tuple[float, Ring]]:
        """The sets met that can hold the model, by bound."""
        grown = sorted({self._grown(seed) for seed in self._seeds()}, key=self._value)
        for ring in [*self._everybody(), *grown[:BEGINNINGS]]:
            self._climb(ring)
        self._look_round()
        return sorted(one for one in self.seen.values() if one[0] < math.inf)

    def _everybody(self) -> list[Ring]:
        if self.size > self.pool.case.chain.atoms:
            return []
        return [good_ring(0, range(1, self.size), self.pool.weights)]

    def _seeds(self) -> list[int]:
        speeds = self.pool.speeds[0].members
        by_room = sorted(speeds, key=lambda speed: (-speed.spare, speed.bit))
        best = [speed.bit.bit_length() - 1 for pair in zip(speeds, by_room, strict=True) for speed in pair]
        return list(dict.fromkeys(best))[:SEEDS]

    def _bound(self, ring: Ring) -> float:
        mask = mask_of(ring)
        if mask not in self.seen:
            self.budget.spend(len(self.pool.speeds))
            ring = improved(ring, self.pool.weights) if len(ring) <= IMPROVED_TO else ring
            self.seen[mask] = least_bound(self.pool, mask, ring_weight(ring, self.pool.weights)), ring
        return self.seen[mask][0]

    def _value(self, ring: Ring) -> tuple[float, float]:
        """The bound; where the set is too small, the seconds of the whole ring for each unit of room it has."""
        bound = self._bound(ring)
        if bound < math.inf:
            return bound, 0.0
        mask = mask_of(ring)
        seconds = self.pool.network_s(ring_weight(ring, self.pool.weights))
        speeds = [speed for speed in self.pool.speeds[0].members if mask & speed.bit]
        seconds += fsum(speed.least_s + speed.per_s * max(0.0, speed.spare) for speed in speeds)
        return bound, seconds / fsum(1 + max(0.0, speed.spare) for speed in speeds)

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
        while self.budget.left > 0:
            following = min([ring, *self._bigger(ring), *self._smaller(ring)], key=self._value)
            if following == ring:
                following = min([ring, *self._exchanged(ring)], key=self._value)
            if self._value(following) >= self._value(ring):
                return
            ring = following

    def _look_round(self) -> None:
        """All changes of the best sets met, whoever led to them: a climb sees only what lies on its way."""
        looked: set[int] = set()
        while self.budget.left > 0 and len(looked) < LOOKED_ROUND:
            left = [one for mask, one in self.seen.items() if mask not in looked]
            if not left:
                return
            _, ring = min(left)
            looked.add(mask_of(ring))
            for changed in [*self._bigger(ring), *self._smaller(ring), *self._exchanged(ring)]:
                self._bound(changed)

    def _bigger(self, ring: Ring) -> list[Ring]:
        if len(ring) >= self.pool.case.chain.atoms:
            return []
        return [self._with(ring, member) for member in range(self.size) if member not in ring]

    def _smaller(self, ring: Ring) -> list[Ring]:
        removable = [place for place, member in enumerate(ring) if not self.pool.required >> member & 1]
        return [ring[:place] + ring[place + 1 :] for place in removable] if len(ring) > 1 else []

    def _exchanged(self, ring: Ring) -> list[Ring]:
        outside = [member for member in range(self.size) if member not in ring]
        return [self._with(smaller, member) for smaller in self._smaller(ring) for member in outside]

    def _with(self, ring: Ring, member: int) -> Ring:
        place, _ = cheapest_place(ring, member, self.pool.weights)
        return (*ring[:place], member, *ring[place:])

    def _ring(self, members: Sequence[int]) -> Ring:
        return cheapest_ring(members[0], members[1:], self.pool.weights)
