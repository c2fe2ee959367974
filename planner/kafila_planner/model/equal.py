"""A chain of atoms that are all alike: numbers of atoms are divided, by the paper's Algorithm 1."""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

from kafila_planner.model.chain import Chain
from kafila_planner.model.device import Device, Division, Split


@dataclass(frozen=True, slots=True)
class EqualChain(Chain):
    """A bound's unit is an atom."""

    crossings = 1

    @property
    def unit_bytes(self) -> int:
        return self.read[1]

    def most_units(self, rooms: Sequence[int]) -> tuple[float, ...]:
        return tuple(float(min(self.atoms, self._fit(room))) for room in rooms)

    def limit_blocks(self, start: int, room_bytes: int) -> int:
        return self.cuts[self.reach(0, room_bytes)]

    def could_fill(self, rooms: Sequence[int]) -> bool:
        return sum(map(self._fit, rooms)) >= self.atoms

    def unplaced_bytes(self, rooms: Sequence[int]) -> int:
        return max(1, self.atoms - sum(map(self._fit, rooms))) * self.held[1]

    def states(self, room_bytes: int) -> int:
        return 3

    def divide(self, devices: Sequence[Device], below_s: float = math.inf) -> Division | None:
        limits = [self._fit(device.room_bytes) for device in devices]
        return partition(self.atoms, [device.fixed_s for device in devices], self._per_atom(devices), limits)

    def cheapest(self, devices: Sequence[Device]) -> Callable[[float], Split | None]:
        fixed, per, limits = [device.fixed_s for device in devices], self._per_atom(devices), self._limits(devices)
        by_per = sorted(range(len(per)), key=per.__getitem__)

        def within(tau: float) -> Split | None:
            bounded = limits
            if tau < math.inf:
                bounded = [largest_count(tau, f, p, limit) for f, p, limit in zip(fixed, per, limits, strict=True)]
            return _cheapest(self.atoms, fixed, per, bounded, by_per)

        return within

    def stage_costs(self, devices: Sequence[Device], low_s: float, high_s: float) -> set[float]:
        roles = zip(devices, self._per_atom(devices), self._limits(devices), strict=True)
        costs = (device.fixed_s + n * per for device, per, limit in roles for n in range(1, limit + 1))
        return {cost for cost in costs if low_s < cost <= high_s}

    def _fit(self, room_bytes: int) -> int:
        return room_bytes // self.held[1]

    def _limits(self, devices: Sequence[Device]) -> list[int]:
        return [min(self.atoms, self._fit(device.room_bytes)) for device in devices]

    def _per_atom(self, devices: Sequence[Device]) -> list[float]:
        return [device.per_byte_s * self.read[1] for device in devices]


def partition(blocks: int, fixed: Sequence[float], per: Sequence[float], limits: Sequence[int]) -> Division | None:
    """Algorithm 1 (PARTITION): binary search over the at most blocks · devices values that a bottleneck can have."""
    candidates = sorted(
        {f + n * p for f, p, limit in zip(fixed, per, limits, strict=True) for n in range(1, min(blocks, limit) + 1)}
    )
    first = bisect_left(candidates, True, key=lambda tau: feasible(blocks, tau, fixed, per, limits) is not None)
    if first == len(candidates):
        return None
    counts = feasible(blocks, candidates[first], fixed, per, limits)
    return None if counts is None else Division(counts, candidates[first])


def feasible(
    blocks: int, tau: float, fixed: Sequence[float], per: Sequence[float], limits: Sequence[int]
) -> tuple[int, ...] | None:
    """Algorithm 1 (FEASIBLE): one pass, each device the most that tau allows, one block kept for each to come."""
    counts = []
    left, to_come = blocks, len(fixed)
    for f, p, limit in zip(fixed, per, limits, strict=True):
        to_come -= 1
        count = min(limit, left - to_come, largest_count(tau, f, p, blocks))
        if count < 1:
            return None
        counts.append(count)
        left -= count
    return None if left else tuple(counts)


def largest_count(tau: float, fixed: float, per: float, most: int) -> int:
    """The largest n ≤ most with fixed + n · per ≤ tau, as these floats are rounded; 0 if not even one.

    The paper divides and rounds down, which loses a block where the quotient is rounded below a whole number.
    """
    if fixed + most * per <= tau:
        return most
    n = max(0, min(most, int((tau - fixed) / per)))
    while n < most and fixed + (n + 1) * per <= tau:
        n += 1
    while n > 0 and fixed + n * per > tau:
        n -= 1
    return n


def _cheapest(
    blocks: int, fixed: Sequence[float], per: Sequence[float], limits: Sequence[int], by_per: Sequence[int]
) -> Split | None:
    """The least sum of stages within the limits: one block each, the rest to the fastest."""
    left = blocks - len(fixed)
    if left < 0 or min(limits) < 1 or sum(limits) < blocks:
        return None
    counts = [1] * len(fixed)
    for place in by_per:
        more = min(left, limits[place] - 1)
        counts[place] += more
        left -= more
    costs = [f + n * p for f, n, p in zip(fixed, counts, per, strict=True)]
    return Split(tuple(counts), fsum(costs), max(costs))
