"""Lower bounds on the seconds a token of a set of members, cheap enough to try every set.

Two relaxations of a step at batch b: the sum of stages when the head and the cuts are free, and the bottleneck when
blocks can be cut anywhere and nobody has a limit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafila_planner.model.case import Case
from kafila_planner.model.chain import steps
from kafila_planner.model.cost import Prices


class MemberSpeed(NamedTuple):
    """A member at one batch size. Amounts are in the chain's units.

    `least_s`: its stage with the least that everybody takes. `spare`: how much more it can hold. `rate`: amount a
    second. `fixed_work`, `head_work`: what it could read in the time of its overhead, and of the head. `head_loss`:
    how much less it holds as head; infinite if it can't be.
    """

    bit: int
    least_s: float
    per_s: float
    spare: float
    rate: float
    fixed_work: float
    head_s: float
    head_work: float
    head_loss: float


@dataclass(frozen=True, slots=True)
class Amounts:
    """The chain as units to hand out: everybody takes at least `least`, a member at most `most`, less as head."""

    unit_bytes: int
    total: int
    least: int
    most: tuple[float, ...]
    most_as_head: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Speeds:
    """One batch size: the members by speed, the fastest first."""

    share: float
    amounts: Amounts
    members: tuple[MemberSpeed, ...]


@dataclass(frozen=True, slots=True)
class LowerBound:
    """Without the head, the least sum of stages is `compute_s` and the least bottleneck `work / rate`.

    `head_s` and `head_work` are what the cheapest head adds to each.
    """

    compute_s: float
    work: float
    rate: float
    head_s: float
    head_work: float

    def token_s(self, users: int, share: float, network_s: float) -> float:
        return self.with_head(users, share, network_s, self.head_s, self.head_work)

    def with_head(self, users: int, share: float, network_s: float, head_s: float, head_work: float) -> float:
        circuit = self.compute_s + head_s + network_s
        return max(circuit / users, (self.work + head_work) / self.rate / share)


def amounts_of(case: Case) -> Amounts:
    """For bounds: nobody can hold more."""
    return _amounts(case, case.chain.most_units)


def cautious_amounts(case: Case) -> Amounts:
    """What members will really hold: unequal blocks leave about half a block of room unused. No lower bound."""
    chain = case.chain
    lost, per_held = chain.held[-1] / chain.atoms / 2, chain.read[-1] / chain.held[-1] / chain.unit_bytes
    return _amounts(case, lambda rooms: tuple(max(0.0, room - lost) * per_held for room in rooms))


def _amounts(case: Case, most: Callable[[Sequence[int]], tuple[float, ...]]) -> Amounts:
    chain, members = case.chain, range(len(case.members))
    return Amounts(
        unit_bytes=chain.unit_bytes,
        total=chain.read[-1] // chain.unit_bytes,
        least=min(steps(chain.read)) // chain.unit_bytes,
        most=most([case.room(member, False) for member in members]),
        most_as_head=most([case.room(member, True) for member in members]),
    )


def speeds_of(amounts: Amounts, prices: Prices) -> Speeds:
    members = (_speed(amounts, prices, member) for member in range(len(amounts.most)))
    return Speeds(prices.share, amounts, tuple(sorted(members, key=lambda one: (one.per_s, one.bit))))


def _speed(amounts: Amounts, prices: Prices, member: int) -> MemberSpeed:
    per_s = prices.per_byte[member] * amounts.unit_bytes
    can_lead = amounts.most_as_head[member] >= amounts.least
    return MemberSpeed(
        bit=1 << member,
        least_s=prices.fixed[member] + amounts.least * per_s,
        per_s=per_s,
        spare=amounts.most[member] - amounts.least,
        rate=1 / per_s,
        fixed_work=prices.fixed[member] / per_s,
        head_s=prices.head[member] if can_lead else math.inf,
        head_work=prices.head[member] / per_s if can_lead else math.inf,
        head_loss=amounts.most[member] - amounts.most_as_head[member] if can_lead else math.inf,
    )


def bound_of(mask: int, speeds: Speeds) -> LowerBound | None:
    """The bounds of the set that the bits of `mask` give; None if its memory is too small, or the model."""
    spare_needed = float(speeds.amounts.total - speeds.amounts.least * mask.bit_count())
    if spare_needed < 0:
        return None
    compute, total_rate, work, spares = 0.0, 0.0, float(speeds.amounts.total), 0.0
    least_head = least_head_work = least_loss = math.inf
    for bit, least_s, per_s, spare, rate, fixed_work, head_s, head_work, head_loss in speeds.members:
        if mask & bit:
            share = spare if spares + spare < spare_needed else max(0.0, spare_needed - spares)
            spares += spare
            compute += least_s + share * per_s
            total_rate += rate
            work += fixed_work
            if head_loss < least_loss:
                least_loss = head_loss
            if head_s < least_head:
                least_head = head_s
            if head_work < least_head_work:
                least_head_work = head_work
    if spares - least_loss < spare_needed:
        return None
    return LowerBound(compute, work, total_rate, least_head, least_head_work)
