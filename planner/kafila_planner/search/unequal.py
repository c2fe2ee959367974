"""Unequal blocks: every order of a set may be worth a division, as far as the states go."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from kafila_planner.model.unequal import UnequalChain
from kafila_planner.ring.tour import Ring
from kafila_planner.search.equal import shortened
from kafila_planner.search.local import local_search
from kafila_planner.search.pool import FoundLayout, Pool, SearchBudget, cautious, mask_of
from kafila_planner.search.rings import Rings, exchanges
from kafila_planner.search.sequences import SequenceSearch
from kafila_planner.search.sets import floors_of

FLOORS_TO = 12
"""Members up to which every subset gets a lower bound beforehand."""

EVERY_ORDER_TO = 5
"""Members up to which every order of a set is tried; beyond, the ring both ways."""

EXCHANGED_TO = 16
"""Members up to which exchanges of two are tried in the best order."""

SEARCHED_TO = 12
"""Members up to which all orders are searched, with one left out."""

MOVED_TO = 16
"""Members up to which a climb changes the order, too."""


class UnequalRings(Rings):
    """`chain` is the pool's."""

    exact_states = 2_000_000
    local_states = 500_000
    climb_states = 400_000

    def __init__(self, pool: Pool, chain: UnequalChain) -> None:
        super().__init__(pool)
        self.chain = chain

    def exact(self, budget: SearchBudget, known_s: float) -> list[FoundLayout]:
        floors = floors_of(self.pool, budget) if len(self.pool.case.members) <= FLOORS_TO else None
        return SequenceSearch(self.chain, self.pool, budget, known_s, floors).run()

    def guesses(self) -> list[Pool]:
        """By what will pack, then by bounds."""
        return [cautious(self.pool), self.pool]

    def of_set(self, ring: Ring) -> Iterator[Ring]:
        if len(ring) <= EVERY_ORDER_TO:
            yield from ((ring[0], *rest) for rest in permutations(sorted(ring[1:])))
            return
        ring = shortened(self.pool, ring)
        yield from (ring, ring[::-1])

    def exchanged(self, ring: Ring) -> Iterator[Ring]:
        if len(ring) <= EXCHANGED_TO:
            yield from exchanges(ring)

    def starts(self, known: Sequence[FoundLayout], budget: SearchBudget) -> list[FoundLayout]:
        """Every order of the others, for each member that may be left out, on half of the budget."""
        if len(self.pool.case.members) > SEARCHED_TO:
            return []
        half = budget.left // 2
        budget.spend(half)
        left_out = [member for member in range(len(self.pool.case.members)) if not self.pool.required >> member & 1]
        known_s = min((found.seconds for found in known), default=math.inf)
        found: list[FoundLayout] = []
        for member in left_out:
            share = SearchBudget(half // len(left_out))
            search = SequenceSearch(self.chain, self.pool, share, known_s, None, without=1 << member)
            found += search.run()
            known_s = search.known_s
        return found

    def without(self, ring: Ring, place: int) -> Ring:
        return ring[:place] + ring[place + 1 :]

    def with_member(self, ring: Ring, member: int) -> Iterator[Ring]:
        for place in range(len(ring) + 1):
            yield (*ring[:place], member, *ring[place:])

    def instead(self, ring: Ring, place: int, member: int) -> Ring:
        return (*ring[:place], member, *ring[place + 1 :])

    def reordered(self, ring: Ring) -> Iterator[Ring]:
        """All turned round, two exchanged, or one moved."""
        if len(ring) > MOVED_TO:
            return
        yield ring[::-1]
        yield from exchanges(ring)
        for i, member in enumerate(ring):
            rest = ring[:i] + ring[i + 1 :]
            for j in range(len(ring)):
                if abs(i - j) > 1:
                    yield (*rest[:j], member, *rest[j:])

    def finished(self, ring: Ring) -> Iterator[Ring]:
        yield from ()

    def preferred(self, best: Sequence[FoundLayout]) -> list[FoundLayout]:
        return list(best)

    def everybody(self, near: Ring, budget: SearchBudget) -> list[FoundLayout]:
        required = mask_of(range(len(self.pool.case.members)))
        return local_search(UnequalRings(replace(self.pool, required=required), self.chain), budget)
