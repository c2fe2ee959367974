"""From a problem to a layout, or to why there is none: the strategies and objectives side by side."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafila_planner.admission import Shortage, can_hold_a_block, could_hold, overfull, shortage, too_small
from kafila_planner.division.baselines import memory_shares, snap, uniform_shares
from kafila_planner.division.crew import crew_of
from kafila_planner.model.case import Case, case_of
from kafila_planner.model.device import Device
from kafila_planner.model.rates import Layout, ring_ps
from kafila_planner.model.types import Objective, OrderedBy, Problem, SearchKind, Strategy, Tier
from kafila_planner.ring.head import place_head
from kafila_planner.ring.order import order_search, ordered_by, ring_of
from kafila_planner.search.choice import choose
from kafila_planner.search.pool import SearchBudget, measured, pool_of

MOST_UNKNOWN = 4
"""Members without a round trip up to which the best ring with each of them is searched."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A layout of the case's members. `surplus`: names that there is no block for."""

    case: Case
    layout: Layout
    search: SearchKind
    ordered_by: OrderedBy
    surplus: tuple[str, ...]


def settle(problem: Problem, budget: SearchBudget | None = None) -> Settled | Shortage:
    """Decide. The objectives that choose a subset need seconds; without them everybody takes part who can.

    budget: of the exact search; about a second's unless given.
    """
    everybody = case_of(problem)
    if takes_all(problem):
        return whole(everybody)
    able = [
        name
        for member, name in enumerate(everybody.names)
        if member in everybody.required or can_hold_a_block(everybody, member)
    ]
    case = case_of(problem, able) if able else everybody
    return _chosen(*_seated(case), budget) if case.tier is Tier.MEASURED else whole(case)


def _seated(case: Case) -> tuple[Case, tuple[str, ...]]:
    """If more members are required than there are blocks, only the fastest of those can be."""
    if len(case.required) <= case.chain.atoms:
        return case, ()
    names, surplus = crew_of(case)
    return case_of(case.problem, names), tuple(surplus)


def takes_all(problem: Problem) -> bool:
    """Whether nobody is left out who is not excluded: the paper's rule, and the baselines'."""
    return problem.strategy is not Strategy.KAFILA or problem.objective is Objective.PAPER


def _chosen(case: Case, surplus: tuple[str, ...], budget: SearchBudget | None) -> Settled | Shortage:
    """`latency` and `throughput`."""
    found = None if case.round_trips.priced else _priced_or(case, surplus, budget)
    found = found or _searched(case, surplus, budget)
    return found or shortage(case, range(len(case.members)), range(len(case.members)))


def _searched(case: Case, surplus: tuple[str, ...], budget: SearchBudget | None) -> Settled | None:
    everybody = range(len(case.members))
    if not all(can_hold_a_block(case, member) for member in everybody) or not could_hold(case, everybody):
        return None
    found = choose(case, lambda: _paper(case), budget)
    return None if found is None else Settled(case, *found, ordered_by(case), surplus)


def _priced_or(case: Case, surplus: tuple[str, ...], budget: SearchBudget | None) -> Settled | None:
    """Where a round trip is missing, a search leaves the network out of every ring, also of those that know theirs.

    So the rings of members who all know theirs are searched with it, those with each other member without, and what
    promises most is taken. None if those who know theirs can't hold the model by themselves.
    """
    trusted = case.round_trips.with_known_trips()
    if not case.required <= set(trusted):
        return None
    known = _searched(case_of(case.problem, [case.names[member] for member in trusted]), surplus, budget)
    if known is None:
        return None
    others = [name for member, name in enumerate(case.names) if member not in trusted]
    if len(others) > MOST_UNKNOWN:
        free = _searched(case, surplus, budget)
        counts = free is not None and ring_ps(case, free.layout.order) is None
        return _better(known, [free] if free is not None and counts else [], SearchKind.HEURISTIC)
    with_each = [
        _searched(case_of(replace(case.problem, require=case.problem.require | {name}), case.names), surplus, budget)
        for name in others
    ]
    return _better(known, [replace(one, case=case) for one in with_each if one is not None], SearchKind.EXACT)


def _better(known: Settled, others: Sequence[Settled], search: SearchKind) -> Settled:
    """Who promises most, as exact as the least exact of them, and as `search`."""
    best = min((known, *others), key=lambda one: measured(pool_of(one.case), one.layout).seconds)
    exact = search is SearchKind.EXACT and all(one.search is SearchKind.EXACT for one in (known, *others))
    return replace(best, search=SearchKind.EXACT if exact else SearchKind.HEURISTIC)


def _paper(case: Case) -> Layout | None:
    """The layout of the objective `paper`, in this case's indices."""
    settled = whole(case_of(replace(case.problem, objective=Objective.PAPER), case.names))
    if isinstance(settled, Shortage):
        return None
    order = tuple(case.names.index(settled.case.names[member]) for member in settled.layout.order)
    return Layout(order, settled.layout.counts)


def whole(everybody: Case) -> Settled | Shortage:
    """Everybody in one ring, less the surplus: the paper's planner and the two baselines."""
    names, surplus = crew_of(everybody)
    case = case_of(everybody.problem, names)
    ring = ring_of(case)
    divided = _divided(case, ring)
    if isinstance(divided, Shortage):
        return divided
    return Settled(case, divided, order_search(case), ordered_by(case), tuple(surplus))


def _divided(case: Case, ring: tuple[int, ...]) -> Layout | Shortage:
    members, blocks = range(len(case.members)), case.problem.model.blocks
    if case.problem.strategy is Strategy.UNIFORM:
        return _as_shared(case, ring, uniform_shares(len(ring), blocks))
    if case.problem.strategy is Strategy.MEMORY:
        return _as_shared(case, ring, memory_shares(_memory(case, ring), blocks))
    if case.tier is Tier.WORKING_SET:
        return _by_working_set(case, ring)
    heads = members if case.tier is Tier.MEASURED else [case.anchor]
    layout = place_head(case, ring) if could_hold(case, heads) else None
    return layout or shortage(case, members, heads)


def _as_shared(case: Case, ring: tuple[int, ...], shares: list[int]) -> Layout | Shortage:
    """A division that looked at no limit: admitted as it is, or refused."""
    layout = Layout(ring, snap(case.chain, shares))
    over = overfull(case, layout)
    return layout if over is None else too_small(case, range(len(ring)), [case.anchor]) or over


def _by_working_set(case: Case, ring: tuple[int, ...]) -> Layout | Shortage:
    """The lowest tier: in proportion to memory; where that overfills somebody, as near to it as the limits allow."""
    memory = _memory(case, ring)
    layout = Layout(ring, snap(case.chain, memory_shares(memory, case.problem.model.blocks)))
    if overfull(case, layout) is None:
        return layout
    rooms = [case.room(member, place == 0) for place, member in enumerate(ring)]
    devices = [Device(0.0, 1 / max(1, lent), room) for lent, room in zip(memory, rooms, strict=True)]
    division = case.chain.divide(devices)
    return Layout(ring, division.counts) if division else shortage(case, range(len(ring)), [case.anchor])


def _memory(case: Case, ring: tuple[int, ...]) -> list[int]:
    return [case.members[member].memory_bytes or 0 for member in ring]
