"""Speed against what moves: of plans whose speed nobody would tell apart, the one that is cheapest with its toll."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kafila_planner.admission import size
from kafila_planner.model.case import Case
from kafila_planner.model.rates import Layout, stage_costs
from kafila_planner.model.types import SearchKind, Tier
from kafila_planner.moving.orders import orders_near
from kafila_planner.moving.stay import AHEAD_TOKENS, divided, toll_of
from kafila_planner.moving.toll import FETCH_BYTES_PER_S, LOAD_BYTES_PER_S, NANOSECONDS, Gate, Toll, gate_of
from kafila_planner.search.pool import FoundLayout, Pool, SearchBudget, measured, pool_of
from kafila_planner.settle import Settled, takes_all

UNNOTICED = 0.10
"""Of a token's time: what one user would not notice."""

MOST_STATES = 50_000
"""Cuts looked at, a fraction of a second's."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A layout with its speed and its toll. `price_ns`: the toll, and the next tokens of each user."""

    found: FoundLayout
    toll: Toll
    longest_ns: int
    price_ns: int

    @property
    def key(self) -> tuple[int, int, int, tuple[int, int], tuple[int, ...], tuple[int, ...]]:
        layout = self.found.layout
        return self.price_ns, self.longest_ns, self.toll.load_bytes, self.found.rank, layout.order, layout.counts


def weighed(settled: Settled) -> tuple[Settled, tuple[str, ...]]:
    """What is planned when moving counts, and what is to be noted of it; unchanged where nobody told what it holds.

    The best plan is always among those compared, so that no other is taken that does not save more than it costs.
    """
    case = settled.case
    if all(member.holds is None for member in case.members) or not _is_chosen(case):
        return settled, ()
    gates = [gate_of(case.problem.model, member) for member in case.members]
    pool = pool_of(case)
    best = _weigh(pool, gates, settled.layout)
    near = [one for one in _others(pool, gates, best) if _is_as_good(one, best)]
    taken = min((best, *near), key=lambda one: one.key)
    notes = _assumed(case, taken.found.layout)
    if taken.found.layout == settled.layout:
        return settled, notes
    kept = replace(settled, layout=taken.found.layout, search=SearchKind.HEURISTIC)
    return kept, (_saved(best, taken), *notes)


def _is_chosen(case: Case) -> bool:
    """Whether there are seconds, and a choice."""
    return case.tier is Tier.MEASURED and not takes_all(case.problem)


def _is_as_good(one: Weighed, best: Weighed) -> bool:
    relays, best_relays = one.found.rank[1], best.found.rank[1]
    return one.found.seconds <= best.found.seconds * (1 + UNNOTICED) and relays <= best_relays


def _others(pool: Pool, gates: Sequence[Gate], best: Weighed) -> Iterator[Weighed]:
    case, layout, budget = pool.case, best.found.layout, SearchBudget(MOST_STATES)
    slowest_s = math.inf
    if pool.users > 1:
        slowest_s = max(stage_costs(case, layout, case.prices[0])) * (1 + UNNOTICED)
    for order in orders_near(case, layout.order):
        if not budget.spend(len(order) * case.chain.atoms):
            return
        other = divided(case, gates, order, slowest_s)
        if other is not None:
            yield _weigh(pool, gates, other)


def _weigh(pool: Pool, gates: Sequence[Gate], layout: Layout) -> Weighed:
    found, (toll, longest_ns) = measured(pool, layout), toll_of(pool.case, gates, layout)
    ahead_ns = round(found.seconds * pool.users * AHEAD_TOKENS * NANOSECONDS)
    return Weighed(found, toll, longest_ns, toll.ns + ahead_ns)


def _saved(best: Weighed, taken: Weighed) -> str:
    slower = taken.found.seconds / best.found.seconds - 1
    return (
        f"members keep what they hold: {size(taken.toll.load_bytes)} come into memory instead of"
        f" {size(best.toll.load_bytes)}, {size(taken.toll.fetch_bytes)} of them over the network instead of"
        f" {size(best.toll.fetch_bytes)}, and a token takes {max(slower, 0.0):.1%} longer"
    )


def _assumed(case: Case, layout: Layout) -> tuple[str, ...]:
    """Rates that were not measured, of those who take part."""
    held = [(case.members[member].name, case.members[member].holds) for member in sorted(layout.order)]
    rates = (
        ("fetches", FETCH_BYTES_PER_S, [name for name, one in held if one is None or one.fetch_bytes_per_s is None]),
        ("loads", LOAD_BYTES_PER_S, [name for name, one in held if one is None or one.load_bytes_per_s is None]),
    )
    return tuple(
        f"how quickly each of {', '.join(names)} {does} was not measured: {size(int(rate))} a second are assumed"
        for does, rate, names in rates
        if names
    )
