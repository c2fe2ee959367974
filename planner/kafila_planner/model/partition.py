"""Dividing the chain among devices in a fixed order so that the slowest stage is as short as possible.

`partition` is the paper's Algorithm 1, for equal blocks. `partition_unequal` is the general chain-on-chain partition.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from kafila_planner.model.chain import Chain


@dataclass(frozen=True, slots=True)
class Device:
    """A member in its role: a stage that reads n bytes costs fixed_s + n · per_byte_s, in `room_bytes` of memory.

    If it is the head, fixed_s has the head's read in it and room_bytes lacks what the head holds.
    """

    fixed_s: float
    per_byte_s: float
    room_bytes: int


@dataclass(frozen=True, slots=True)
class Division:
    """Atoms of each device, in order, and the slowest stage's cost."""

    counts: tuple[int, ...]
    bottleneck_s: float


def divide(chain: Chain, devices: Sequence[Device], below_s: float = math.inf) -> Division | None:
    """The division with the least bottleneck, every device with at least one atom.

    None if there is none. A search that needs one of at most `below_s` says so; for unequal blocks that saves time.
    """
    if not chain.equal:
        return partition_unequal(chain, devices, below_s)
    read, held = chain.read[1], chain.held[1]
    return partition(
        chain.atoms,
        [device.fixed_s for device in devices],
        [device.per_byte_s * read for device in devices],
        [device.room_bytes // held for device in devices],
    )


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


def partition_unequal(chain: Chain, devices: Sequence[Device], below_s: float = math.inf) -> Division | None:
    """The least bottleneck over atoms of any sizes, if it is at most `below_s`.

    A greedy pass would not do: who takes most may leave the next device an atom that it can't hold. The program over
    all cuts is run under a rising ceiling, from the bottleneck that uncut blocks would have, which keeps it narrow.
    """
    read = chain.read[-1]
    rate = fsum(1 / device.per_byte_s for device in devices)
    ceiling = (read + fsum(device.fixed_s / device.per_byte_s for device in devices)) / rate
    highest = min(below_s, max(device.fixed_s + read * device.per_byte_s for device in devices))
    while True:
        ceiling = min(1.25 * ceiling, highest)
        division = _under(chain, devices, ceiling)
        if division is not None or ceiling == highest:
            return division


def _under(chain: Chain, devices: Sequence[Device], ceiling_s: float) -> Division | None:
    """f_i(b) = min over a of max(f_{i-1}(a), cost_i(a, b)), where no stage costs more than the ceiling."""
    best = [0.0] + [math.inf] * chain.atoms
    choices: list[list[int]] = []
    for place, device in enumerate(devices):
        best, chosen = _extend(chain, device, best, ends(chain.atoms, len(devices), place), ceiling_s)
        choices.append(chosen)
    if math.isinf(best[-1]):
        return None
    return Division(trace_back(choices, chain.atoms), best[-1])


def ends(atoms: int, devices: int, place: int) -> range:
    """Where the device at a place can end: it and those before take one atom at least, and so do those to come."""
    return range(atoms if place == devices - 1 else place + 1, atoms - (devices - 1 - place) + 1)


def _extend(
    chain: Chain, device: Device, before: list[float], allowed: range, ceiling_s: float
) -> tuple[list[float], list[int]]:
    """One device more: for each end the least bottleneck and the start that gives it."""
    best = [math.inf] * len(before)
    chosen = [0] * len(before)
    read, fixed, per_byte = chain.read, device.fixed_s, device.per_byte_s
    for start in range(allowed.stop - 1):
        so_far = before[start]
        if so_far == math.inf:
            continue
        for end in range(max(start + 1, allowed.start), min(allowed.stop, chain.reach(start, device.room_bytes) + 1)):
            cost = fixed + (read[end] - read[start]) * per_byte
            if cost > ceiling_s:
                break
            value = max(so_far, cost)
            if value < best[end]:
                best[end], chosen[end] = value, start
    return best, chosen


def trace_back(choices: Sequence[Sequence[int]], atoms: int) -> tuple[int, ...]:
    """Counts from each device's chosen start by end."""
    counts = []
    end = atoms
    for chosen in reversed(choices):
        counts.append(end - chosen[end])
        end = chosen[end]
    return tuple(reversed(counts))
