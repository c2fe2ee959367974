"""What `latency` and `throughput` minimise in a given ring: seconds a token, of all users together.

With U users and steps of b sequences that is max(circuit(b) / U, bottleneck(b) / b). Latency is the case U = b = 1,
where the circuit alone counts. For equal blocks the order of the ring doesn't matter to the division, so a set, a
head and a batch size are enough; the ring comes in as its network time.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

from kafila_planner.model.chain import Chain
from kafila_planner.model.partition import Device, ends, largest_count, trace_back
from kafila_planner.model.rates import token_s


@dataclass(frozen=True, slots=True)
class Goal:
    """U, b, and the network's share of a circuit."""

    users: int
    batch: int
    network_s: float

    def token_s(self, split: "Split") -> float:
        return token_s(self.users, self.batch, split.compute_s + self.network_s, split.slowest_s)


@dataclass(frozen=True, slots=True)
class Split:
    """Counts of atoms, the sum of the stages' costs, and the largest of them."""

    counts: tuple[int, ...]
    compute_s: float
    slowest_s: float


def balance(chain: Chain, devices: Sequence[Device], goal: Goal) -> Split | None:
    """The division with the fewest seconds a token, exactly; None if none fits."""
    if chain.equal:
        return _balance_equal(chain, devices, goal)
    within = _cheapest_unequal(chain, devices)
    return _cross(goal, within, lambda low, high: _stage_costs(chain, devices, low, high))


def _cross(
    goal: Goal, within: Callable[[float], Split | None], stages: Callable[[float, float], set[float]]
) -> Split | None:
    """Bounding every stage by tau raises the least sum of stages, so the two terms cross at a possible bottleneck.

    `within(tau)` is the division with the least sum under that bound, `stages(low, high)` the costs that a stage can
    have between two values. The optimum is on one side of the crossing.
    """
    free = within(math.inf)
    if free is None or (free.compute_s + goal.network_s) / goal.users >= free.slowest_s / goal.batch:
        return free

    def crossed(tau: float) -> bool:
        split = within(tau)
        return split is not None and tau / goal.batch >= (split.compute_s + goal.network_s) / goal.users

    low = goal.batch * (free.compute_s + goal.network_s) / goal.users
    values = [low, *sorted(stages(low, free.slowest_s))]
    place = bisect_left(values, True, key=crossed)
    sides = [within(tau) for tau in values[max(0, place - 1) : place + 1]]
    return min((split for split in sides if split is not None), key=goal.token_s)


def _balance_equal(chain: Chain, devices: Sequence[Device], goal: Goal) -> Split | None:
    read, held, blocks = chain.read[1], chain.held[1], chain.atoms
    fixed = [device.fixed_s for device in devices]
    per = [device.per_byte_s * read for device in devices]
    limits = [min(blocks, device.room_bytes // held) for device in devices]
    by_per = sorted(range(len(per)), key=per.__getitem__)

    def within(tau: float) -> Split | None:
        bounded = limits
        if tau < math.inf:
            bounded = [largest_count(tau, f, p, limit) for f, p, limit in zip(fixed, per, limits, strict=True)]
        return _cheapest(blocks, fixed, per, bounded, by_per)

    def stages(low: float, high: float) -> set[float]:
        costs = (f + n * p for f, p, limit in zip(fixed, per, limits, strict=True) for n in range(1, limit + 1))
        return {cost for cost in costs if low < cost <= high}

    return _cross(goal, within, stages)


def _cheapest(
    blocks: int, fixed: Sequence[float], per: Sequence[float], limits: Sequence[int], by_per: Sequence[int]
) -> Split | None:
    """The least sum of stages within the limits: one block each, the rest to the fastest."""
    if min(limits) < 1 or sum(limits) < blocks:
        return None
    counts = [1] * len(fixed)
    left = blocks - len(fixed)
    for place in by_per:
        more = min(left, limits[place] - 1)
        counts[place] += more
        left -= more
    if left < 0:
        return None
    costs = [f + n * p for f, n, p in zip(fixed, counts, per, strict=True)]
    return Split(tuple(counts), fsum(costs), max(costs))


def _stage_costs(chain: Chain, devices: Sequence[Device], low: float, high: float) -> set[float]:
    """Every cost above low, up to high, that a stage can have."""
    read, costs = chain.read, set()
    for device in devices:
        for start in range(chain.atoms):
            above = read[start] + int(max(0.0, low - device.fixed_s) / device.per_byte_s * (1 - 1e-9))
            last = chain.reach(start, device.room_bytes)
            for end in range(bisect_left(read, above, start + 1), last + 1):
                cost = device.fixed_s + (read[end] - read[start]) * device.per_byte_s
                if cost > high:
                    break
                if cost > low:
                    costs.add(cost)
    return costs


def _cheapest_unequal(chain: Chain, devices: Sequence[Device]) -> Callable[[float], Split | None]:
    """The least sum over atoms of any sizes: f_i(b) = min over a of f_{i-1}(a) + cost_i(a, b)."""

    def within(tau: float) -> Split | None:
        best = [0.0] + [math.inf] * chain.atoms
        choices: list[list[int]] = []
        for place, device in enumerate(devices):
            best, chosen = extended(chain, device, best, ends(chain.atoms, len(devices), place), tau)
            choices.append(chosen)
        if math.isinf(best[-1]):
            return None
        counts = trace_back(choices, chain.atoms)
        return Split(counts, best[-1], _slowest(chain, devices, counts))

    return within


def extended(
    chain: Chain, device: Device, before: list[float], allowed: range, tau: float
) -> tuple[list[float], list[int]]:
    """One device more: for each end the least sum and the start that gives it."""
    best = [math.inf] * len(before)
    chosen = [0] * len(before)
    read, fixed, per_byte = chain.read, device.fixed_s, device.per_byte_s
    for start in range(allowed.stop - 1):
        so_far = before[start]
        if so_far == math.inf:
            continue
        for end in range(max(start + 1, allowed.start), min(allowed.stop, chain.reach(start, device.room_bytes) + 1)):
            cost = fixed + (read[end] - read[start]) * per_byte
            if cost > tau:
                break
            if so_far + cost < best[end]:
                best[end], chosen[end] = so_far + cost, start
    return best, chosen


def _slowest(chain: Chain, devices: Sequence[Device], counts: Sequence[int]) -> float:
    slowest, start = 0.0, 0
    for device, count in zip(devices, counts, strict=True):
        cost = device.fixed_s + (chain.read[start + count] - chain.read[start]) * device.per_byte_s
        slowest = max(slowest, cost)
        start += count
    return slowest
