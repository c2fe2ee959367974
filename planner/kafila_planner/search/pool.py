"""The members that `latency` and `throughput` choose from, and the best that a given ring of them can do."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import fsum

from kafila_planner.division.measure import Goal, balance
from kafila_planner.model.case import Case
from kafila_planner.model.cost import Prices
from kafila_planner.model.device import Split
from kafila_planner.model.rates import Layout, network_s, stage_costs, token_s
from kafila_planner.model.reach import PICOSECONDS
from kafila_planner.model.types import Objective
from kafila_planner.ring.tour import Weights, ring_weight
from kafila_planner.search.bound import LowerBound, Speeds, amounts_of, bound_of, cautious_amounts, speeds_of


class SearchBudget:
    """Counts states down. No clock: every member that computes the plan stops at the same place."""

    def __init__(self, states: int) -> None:
        self.left = states

    def spend(self, states: int) -> bool:
        """Whether that much was left."""
        self.left -= states
        return self.left >= 0


@dataclass(frozen=True, slots=True)
class Pool:
    """All members of the case can hold a block. Sets of them are bit masks.

    `users` is 1 for latency, which makes it a special case of throughput (see `measure`). `rtt_unit` turns a ring's
    weight into picoseconds; 0 where no ring is priced, and a weight is the number of relays. `states` is what a member
    adds to a division's share of a budget.
    """

    case: Case
    users: int
    required: int
    prices: tuple[Prices, ...]
    speeds: tuple[Speeds, ...]
    weights: Weights
    rtt_unit: int
    states: tuple[int, ...]

    def network_s(self, weight: int) -> float:
        return network_s(weight // self.rtt_unit) if self.rtt_unit else 0.0

    def relays(self, weight: int) -> int:
        return 0 if self.rtt_unit else weight


@dataclass(frozen=True, slots=True)
class FoundLayout:
    """A layout with its seconds a token. `rank` orders: whole picoseconds, then relays where nothing is priced."""

    rank: tuple[int, int]
    seconds: float
    layout: Layout


def pool_of(case: Case) -> Pool:
    alone = case.problem.objective is Objective.LATENCY
    prices = case.prices[:1] if alone else case.prices
    amounts = amounts_of(case)
    return Pool(
        case=case,
        users=1 if alone else case.problem.concurrency,
        required=mask_of(case.required),
        prices=prices,
        speeds=tuple(speeds_of(amounts, one) for one in prices),
        weights=case.round_trips.weights(),
        rtt_unit=case.round_trips.rtt_unit() if case.round_trips.priced else 0,
        states=tuple(map(case.chain.states, case.room_bytes)),
    )


def cautious(pool: Pool) -> Pool:
    """The pool with bounds that are estimates: for choosing sets that will pack, not for ruling any out."""
    amounts = cautious_amounts(pool.case)
    return replace(pool, speeds=tuple(speeds_of(amounts, one) for one in pool.prices))


def mask_of(members: Iterable[int]) -> int:
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def members_of(mask: int) -> tuple[int, ...]:
    return tuple(member for member in range(mask.bit_length()) if mask >> member & 1)


def least_bound(pool: Pool, mask: int, weight: int) -> float:
    """A lower bound of the set's seconds a token over all batch sizes; infinite if it is too small."""
    network, least = pool.network_s(weight), math.inf
    for speeds in pool.speeds:
        bound = bound_of(mask, speeds)
        if bound is None:
            return math.inf
        least = min(least, bound.token_s(pool.users, speeds.share, network))
    return least


def bounds(pool: Pool, mask: int, weight: int) -> list[tuple[float, int, LowerBound]]:
    """The same for each batch size, with its place in `prices`, least first."""
    network = pool.network_s(weight)
    found = []
    for place, speeds in enumerate(pool.speeds):
        bound = bound_of(mask, speeds)
        if bound is not None:
            found.append((bound.token_s(pool.users, speeds.share, network), place, bound))
    return sorted(found, key=lambda one: one[:2])


def best_of_ring(
    pool: Pool, ring: Sequence[int], weight: int, known_s: float, budget: SearchBudget
) -> Iterator[FoundLayout]:
    """The best division for each batch size and head of a ring, as long as it is as good as `known_s` and those before.

    For equal blocks `ring` may be in any order, if `weight` is the true one's. Stops where the budget is spent.
    """
    network, mask = pool.network_s(weight), mask_of(ring)
    for least, place, bound in bounds(pool, mask, weight):
        if least > just_above(known_s):
            return
        prices = pool.prices[place]
        goal = Goal(pool.users, prices.share, network)
        heads = sorted((one.head_s, one.bit, one.head_work) for one in pool.speeds[place].members if mask & one.bit)
        for head_s, bit, head_work in heads:
            head = bit.bit_length() - 1
            reached = bound.with_head(pool.users, prices.share, network, head_s, head_work)
            if reached > just_above(known_s):
                continue
            if not budget.spend(effort(pool, ring)):
                return
            found = _divided(pool, ring, head, prices, goal, weight)
            if found is not None and found.seconds <= just_above(known_s):
                known_s = min(known_s, found.seconds)
                yield found


def measured(pool: Pool, layout: Layout) -> FoundLayout:
    """A layout from elsewhere, at its best batch size."""
    weight = ring_weight(layout.order, pool.weights)
    network, seconds = pool.network_s(weight), math.inf
    for prices in pool.prices:
        costs = stage_costs(pool.case, layout, prices)
        seconds = min(seconds, token_s(pool.users, prices.share, fsum(costs) + network, max(costs)))
    return FoundLayout((round(seconds * PICOSECONDS), pool.relays(weight)), seconds, layout)


def effort(pool: Pool, ring: Sequence[int]) -> int:
    """States that a division counts as."""
    return sum(pool.states[member] for member in ring) * (1 if pool.users == 1 else pool.case.chain.crossings)


def _divided(pool: Pool, ring: Sequence[int], head: int, prices: Prices, goal: Goal, weight: int) -> FoundLayout | None:
    place = ring.index(head)
    order = (*ring[place:], *ring[:place])
    split = balance(pool.case.chain, pool.case.devices(order, prices), goal)
    if split is None:
        return None
    return found_of(pool, order, split, goal, weight)


def found_of(pool: Pool, order: tuple[int, ...], split: Split, goal: Goal, weight: int) -> FoundLayout:
    seconds = goal.token_s(split)
    return FoundLayout((round(seconds * PICOSECONDS), pool.relays(weight)), seconds, Layout(order, split.counts))


def equals(found: Iterable[FoundLayout]) -> list[FoundLayout]:
    """Those of the best rank."""
    found = list(found)
    best = min((one.rank for one in found), default=None)
    return [one for one in found if one.rank == best]


def just_above(seconds: float) -> float:
    """Differences below this are rounding, and equals are wanted too."""
    return seconds * (1 + 1e-12)
