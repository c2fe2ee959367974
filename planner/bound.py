"""Lower bounds on the seconds a token of a set of members, cheap enough to try every set.

Two relaxations of a step at batch b: the sum of stages when the head and the cuts are free, and the bottleneck when
blocks can be cut anywhere and nobody has a limit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from planner.case import Case
from planner.chain import Chain
from planner.cost import Prices


@dataclass(frozen=True, slots=True)
class Speeds:
    """Prices with `per` in units of `Amounts`, and the members by it, the fastest first."""

    batch: int
    fixed: tuple[float, ...]
    per: tuple[float, ...]
    head: tuple[float, ...]
    by_per: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Amounts:
    """The chain as an amount to hand out: atoms where they are equal, bytes read where not.

    Everybody takes at least `least`, and a member at most its entry of `most`.
    """

    total: int
    least: int
    most: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """Without the head, the least sum of stages is `compute_s` and the least bottleneck `work / rate`.

    `head_s` and `head_work` are what the cheapest head adds to each.
    """

    compute_s: float
    work: float
    rate: float
    head_s: float
    head_work: float

    def token_s(self, users: int, batch: int, network_s: float) -> float:
        return self.with_head(users, batch, network_s, self.head_s, self.head_work)

    def with_head(self, users: int, batch: int, network_s: float, head_s: float, head_work: float) -> float:
        circuit = self.compute_s + head_s + network_s
        return max(circuit / users, (self.work + head_work) / self.rate / batch)


def amounts_of(case: Case) -> Amounts:
    chain = case.chain
    if chain.equal:
        limits = (min(chain.atoms, room // chain.held[1]) for room in case.room_bytes)
        return Amounts(chain.atoms, 1, tuple(map(float, limits)))
    per_held = _most_read_per_held(chain)
    most = tuple(min(float(chain.read[-1]), room * per_held) for room in case.room_bytes)
    return Amounts(chain.read[-1], min(_steps(chain.read)), most)


def _most_read_per_held(chain: Chain) -> float:
    pairs = zip(_steps(chain.read), _steps(chain.held), strict=True)
    return max(read / held for read, held in pairs)


def _steps(sums: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(sums)]


def speeds_of(case: Case, prices: Prices) -> Speeds:
    unit = case.chain.read[1] if case.chain.equal else 1
    per = tuple(per_byte * unit for per_byte in prices.per_byte)
    by_per = tuple(sorted(range(len(per)), key=per.__getitem__))
    return Speeds(batch=prices.batch, fixed=prices.fixed, per=per, head=prices.head, by_per=by_per)


def bound_of(mask: int, speeds: Speeds, amounts: Amounts) -> Bound | None:
    """The bounds of the set that the bits of `mask` give; None if its memory is too small."""
    left = float(amounts.total - amounts.least * mask.bit_count())
    if left < 0:
        return None
    compute, rate, work = 0.0, 0.0, float(amounts.total)
    head_s = head_work = math.inf
    fixed, per, head, most, least = speeds.fixed, speeds.per, speeds.head, amounts.most, amounts.least
    for place in speeds.by_per:
        if mask >> place & 1:
            share = min(left, most[place] - least)
            left -= share
            compute += fixed[place] + (least + share) * per[place]
            rate += 1 / per[place]
            work += fixed[place] / per[place]
            head_s = min(head_s, head[place])
            head_work = min(head_work, head[place] / per[place])
    return None if left > 0 else Bound(compute, work, rate, head_s, head_work)
