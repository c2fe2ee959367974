"""A good set of members where trying all is too much: grown from every member, then improved one change at a time.

Changes are ranked by the lower bound with an estimated ring (a member inserted where it costs least), and only the
most promising are divided exactly.
"""

import math
from collections.abc import Iterator, Sequence

from planner.exact import equals, every_order
from planner.pool import Budget, Found, Pool, best_of_ring, bounds, mask_of, members_of
from planner.tour import EXACT_TO, cheapest_place, cheapest_ring, improved, ring_weight

BEGINNINGS = 8
"""How many of the grown sets are improved."""

TRIED = 8
"""How many changes are divided exactly in one step of the improvement."""

EVERY_ORDER_TO = 4
"""Unequal blocks: members up to which every order of a set is tried; beyond, the ring both ways and exchanges."""

Ring = tuple[int, ...]


class LocalSearch:
    """Holds what was divided already, by set. `budget` ends it early, at the same place everywhere."""

    def __init__(self, pool: Pool, budget: Budget) -> None:
        self.pool = pool
        self.budget = budget
        self.known: dict[int, Found | None] = {}

    def run(self, everybody: Ring) -> list[Found]:
        """The best layouts found; never worse than the best of the ring of everybody, as it is given."""
        self.known[mask_of(everybody)] = self._best(everybody)
        rings = [ring for ring in self._grown() if self.lower(ring) < math.inf]
        rings.sort(key=lambda ring: (self.lower(ring), ring))
        best = [self._climbed(ring) for ring in dict.fromkeys([everybody, *rings[:BEGINNINGS]])]
        return equals(found for found in best if found is not None)

    def lower(self, ring: Sequence[int]) -> float:
        lower = bounds(self.pool, mask_of(ring), ring_weight(ring, self.pool.weights))
        return lower[0][0] if lower else math.inf

    def _grown(self) -> Iterator[Ring]:
        """From each member: add who costs least for the memory until the model fits, then who helps most."""
        required = members_of(self.pool.required)
        for seed in range(len(self.pool.case.members)):
            ring = self._ring(sorted({seed, *required}))
            while len(ring) < self.pool.case.chain.atoms:
                at = self.lower(ring)
                bigger = self._bigger(ring)
                if not bigger:
                    break
                following = min(bigger, key=self._growth if at == math.inf else self._value)
                if at < math.inf and self.lower(following) >= at:
                    break
                ring = following
            yield ring

    def _value(self, ring: Ring) -> tuple[float, Ring]:
        return self.lower(ring), ring

    def _growth(self, ring: Ring) -> tuple[float, Ring]:
        """Seconds for each unit of room, of the whole ring filled up."""
        speeds, most = self.pool.speeds[0], self.pool.amounts.most
        seconds = self.pool.network_s(ring_weight(ring, self.pool.weights))
        seconds += sum(speeds.fixed[member] + speeds.per[member] * most[member] for member in ring)
        return seconds / sum(most[member] for member in ring), ring

    def _climbed(self, ring: Ring) -> Found | None:
        best = self._divided(ring)
        while best is not None:
            better = self._step(best)
            if better is None:
                return best
            best = better
        return None

    def _step(self, best: Found) -> Found | None:
        """The first promising change that is better, one member more or less before an exchange."""
        ring = best.layout.order
        for changes in (self._bigger(ring) + self._smaller(ring), self._exchanged(ring)):
            ranked = sorted((self.lower(changed), changed) for changed in changes)
            for lower, changed in ranked[:TRIED]:
                found = self._divided(changed) if lower < best.seconds else None
                if found is not None and found.rank < best.rank:
                    return found
        return None

    def _bigger(self, ring: Ring) -> list[Ring]:
        if len(ring) >= self.pool.case.chain.atoms:
            return []
        return [self._with(ring, member) for member in range(len(self.pool.case.members)) if member not in ring]

    def _smaller(self, ring: Ring) -> list[Ring]:
        removable = [place for place, member in enumerate(ring) if not self.pool.required >> member & 1]
        return [ring[:place] + ring[place + 1 :] for place in removable] if len(ring) > 1 else []

    def _exchanged(self, ring: Ring) -> list[Ring]:
        outside = [member for member in range(len(self.pool.case.members)) if member not in ring]
        return [self._with(smaller, member) for smaller in self._smaller(ring) for member in outside]

    def _with(self, ring: Ring, member: int) -> Ring:
        place, _ = cheapest_place(ring, member, self.pool.weights)
        return (*ring[:place], member, *ring[place:])

    def _ring(self, members: Sequence[int]) -> Ring:
        return cheapest_ring(members[0], members[1:], self.pool.weights)

    def _divided(self, ring: Ring) -> Found | None:
        """The best division of a set, its ring improved first."""
        mask = mask_of(ring)
        if mask not in self.known:
            short = len(ring) < EXACT_TO // 2
            ring = self._ring(sorted(ring)) if short else improved(ring, self.pool.weights)
            self.known[mask] = self._best(ring)
        return self.known[mask]

    def _best(self, ring: Ring) -> Found | None:
        if self.pool.case.chain.equal:
            return self._best_of([ring])
        if len(ring) <= EVERY_ORDER_TO:
            tried = every_order(self.pool, tuple(sorted(ring)), math.inf, self.budget)
            return min(tried, key=_key, default=None)
        best = self._best_of([ring, ring[::-1]])
        while best is not None:
            better = self._best_of(_swapped(best.layout.order), best)
            if better is best:
                break
            best = better
        return best

    def _best_of(self, rings: Sequence[Ring], best: Found | None = None) -> Found | None:
        for ring in rings:
            known = math.inf if best is None else best.seconds
            for found in best_of_ring(self.pool, ring, ring_weight(ring, self.pool.weights), known, self.budget):
                best = found if best is None or found.rank < best.rank else best
        return best


def _key(found: Found) -> tuple[tuple[int, int], Ring]:
    return found.rank, found.layout.order


def _swapped(ring: Ring) -> list[Ring]:
    """The ring with two members exchanged, every way."""
    swapped = []
    for i in range(len(ring)):
        for j in range(i):
            other = list(ring)
            other[i], other[j] = other[j], other[i]
            swapped.append(tuple(other))
    return swapped
