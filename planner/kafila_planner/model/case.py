"""A problem with everything derived from it that does not depend on the plan. Members are indices, sorted by name."""

from collections.abc import Collection
from dataclasses import dataclass

from kafila_planner.model.chain import Chain
from kafila_planner.model.cost import Prices, batch_sizes, prices_at, relative_prices, tier_of
from kafila_planner.model.cutting import chain_of
from kafila_planner.model.device import Device
from kafila_planner.model.reach import RoundTrips, round_trips_of
from kafila_planner.model.runs import runs
from kafila_planner.model.types import Node, Problem, Tier


@dataclass(frozen=True, slots=True)
class Case:
    """`room_bytes`: what a member has for blocks, after reserve and prefill peak; negative if not even those fit.

    `prices` has one entry a batch size worth trying, batch 1 first; empty in the working-set tier.
    """

    problem: Problem
    members: tuple[Node, ...]
    anchor: int
    required: frozenset[int]
    chain: Chain
    tier: Tier
    tier_why: str
    room_bytes: tuple[int, ...]
    prices: tuple[Prices, ...]
    round_trips: RoundTrips

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]

    def devices(self, order: tuple[int, ...], prices: Prices) -> list[Device]:
        """The members of a ring as Algorithm 1 sees them; the first is the head."""
        return [self.device(member, place == 0, prices) for place, member in enumerate(order)]

    def device(self, member: int, is_head: bool, prices: Prices) -> Device:
        """One member in its role: fixed(i), per(i) and lim(i) of the paper."""
        fixed = prices.fixed[member] + (prices.head[member] if is_head else 0.0)
        return Device(fixed, prices.per_byte[member], self.room(member, is_head))

    def room(self, member: int, is_head: bool) -> int:
        held = self.problem.model.head_held_bytes if is_head else 0
        return self.room_bytes[member] - held


def case_of(problem: Problem, names: Collection[str] | None = None) -> Case:
    """The case of the named members; by default of all who are not excluded.

    If the anchor is not among them, the first by name stands for it.
    """
    wanted = {member.name for member in problem.members} - problem.exclude if names is None else names
    members = tuple(sorted((m for m in problem.members if m.name in wanted), key=lambda m: m.name))
    present = [member.name for member in members]
    tier, why = tier_of(members)
    occupied = problem.reserve_bytes + problem.prefill_peak_bytes
    return Case(
        problem=problem,
        members=members,
        anchor=present.index(problem.anchor) if problem.anchor in present else 0,
        required=frozenset(index for index, name in enumerate(present) if name in problem.require),
        chain=chain_of(problem.model, problem.context_tokens, problem.concurrency),
        tier=tier,
        tier_why=why,
        room_bytes=tuple((member.memory_bytes or 0) - occupied for member in members),
        prices=_prices(problem, members, tier),
        round_trips=round_trips_of(members, problem.edges, problem.objective),
    )


def _prices(problem: Problem, members: tuple[Node, ...], tier: Tier) -> tuple[Prices, ...]:
    if tier is Tier.MEASURED:
        users, most = problem.concurrency, problem.most_rows
        sizes = batch_sizes(members, users, most)
        shares = [float(size) if most is None else users / runs(users, size) for size in sizes]
        return tuple(prices_at(size, share, members, problem.model) for size, share in zip(sizes, shares, strict=True))
    if tier is Tier.ARITHMETIC:
        return (relative_prices(members, problem.model),)
    return ()
