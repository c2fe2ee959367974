"""Unequal blocks: every order of every subset, one member at a time, with what no continuation could mend cut off.

A prefix of the ring carries the least sum of stages up to each cut, so all divisions are tried at once. The most
promising member is tried first, so that the best found when the budget ends is a good one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kafila_planner.division.measure import Goal, balance
from kafila_planner.model.cost import Prices
from kafila_planner.model.unequal import UnequalChain
from kafila_planner.search.pool import FoundLayout, Pool, SearchBudget, effort, found_of, just_above, mask_of
from kafila_planner.search.tails import tails_of


@dataclass(frozen=True, slots=True)
class Prefix:
    """The head and those after it so far. `sums[a]`: the least sum of their stages if they end at atom a."""

    order: tuple[int, ...]
    sums: list[float]
    weight: int


class SequenceSearch:
    """Looks for what is as good as `known_s` or better. `chain` is the pool's.

    `floors`: by set, a bound of every set that contains it. `without`: members that are left out, as a set.
    """

    def __init__(
        self,
        chain: UnequalChain,
        pool: Pool,
        budget: SearchBudget,
        known_s: float,
        floors: Sequence[float] | None,
        without: int = 0,
    ) -> None:
        self.chain = chain
        self.pool = pool
        self.budget = budget
        self.known_s = known_s
        self.floors = floors
        self.without = without
        self.found: list[FoundLayout] = []
        self.tails = {prices.batch: tails_of(pool, prices) for prices in pool.prices}

    def run(self) -> list[FoundLayout]:
        nothing = Prefix((), self.chain.nothing(), 0)
        roots = [(*root, prices) for prices in self.pool.prices for root in self._longer(nothing, prices)]
        for bound, root, prices in sorted(roots, key=lambda one: (one[0], one[2].batch, one[1].order)):
            if bound <= just_above(self.known_s):
                self._visit(root, prices)
        return self.found

    def _visit(self, prefix: Prefix, prices: Prices) -> None:
        self._close(prefix, prices)
        for bound, longer in self._longer(prefix, prices):
            if self.budget.left < 0 or bound > just_above(self.known_s):
                return
            self._visit(longer, prices)

    def _close(self, prefix: Prefix, prices: Prices) -> None:
        """The prefix as a whole ring."""
        required = self.pool.required
        if mask_of(prefix.order) & required != required:
            return
        weight = prefix.weight + self.pool.weights[prefix.order[-1]][prefix.order[0]]
        goal = Goal(self.pool.users, prices.share, self.pool.network_s(weight))
        if (prefix.sums[-1] + goal.network_s) / goal.users > just_above(self.known_s):
            return
        self.budget.spend(effort(self.pool, prefix.order))
        split = balance(self.chain, self.pool.case.devices(prefix.order, prices), goal)
        if split is not None and goal.token_s(split) <= just_above(self.known_s):
            self.known_s = min(self.known_s, goal.token_s(split))
            self.found.append(found_of(self.pool, prefix.order, split, goal, weight))

    def _longer(self, prefix: Prefix, prices: Prices) -> list[tuple[float, Prefix]]:
        """The prefix with each other member, by bound; those that can't beat the best are left out."""
        longer = []
        size = len(self.pool.case.members)
        for member in range(size):
            if self._hopeful(prefix, member) and self.budget.spend(self.pool.states[member] + 4 * size):
                with_it = self._with(prefix, member, prices)
                bound = self.tails[prices.batch].least_s(with_it.order, with_it.sums, with_it.weight)
                if bound < math.inf and bound <= just_above(self.known_s):
                    longer.append((bound, with_it))
        return sorted(longer, key=lambda one: (one[0], one[1].order))

    def _hopeful(self, prefix: Prefix, member: int) -> bool:
        if member in prefix.order or self.without >> member & 1:
            return False
        return self.floors is None or self.floors[mask_of((*prefix.order, member))] <= just_above(self.known_s)

    def _with(self, prefix: Prefix, member: int, prices: Prices) -> Prefix:
        order = prefix.order
        device = self.pool.case.device(member, not order, prices)
        ends = range(len(order) + 1, self.chain.atoms + 1)
        sums, _ = self.chain.extended(prefix.sums, device, ends, just_above(self.known_s) * prices.share)
        weight = prefix.weight + (self.pool.weights[order[-1]][member] if order else 0)
        return Prefix((*order, member), sums, weight)
