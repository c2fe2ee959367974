"""The division of a ring that is best with its toll: a program over all cuts, exact for one user."""

import math
from bisect import bisect_left
from collections.abc import Sequence

from kafila_planner.model.case import Case
from kafila_planner.model.device import Device
from kafila_planner.model.rates import Layout
from kafila_planner.moving.toll import NANOSECONDS, Gate, Toll

AHEAD_TOKENS = 4096
"""What a move is weighed against: a user's next tokens, some ten answers. Slower ones cost that many times the gap."""

NEVER = 1 << 100
"""Nanoseconds: a price that nothing has."""


def divided(case: Case, gates: Sequence[Gate], order: tuple[int, ...], slowest_s: float) -> Layout | None:
    """The cheapest by toll and `AHEAD_TOKENS` steps at batch 1, no stage slower than that; None if nothing fits."""
    paid, chosen = [0, *[NEVER] * case.chain.atoms], list[list[int]]()
    for place, member in enumerate(order):
        device = case.device(member, place == 0, case.prices[0])
        paid, starts = _one_more(case, gates[member], device, paid, place == 0, slowest_s)
        chosen.append(starts)
    return None if paid[-1] >= NEVER else Layout(order, _counts(chosen))


def toll_of(case: Case, gates: Sequence[Gate], layout: Layout) -> tuple[Toll, int]:
    """Of all stages together, and the longest of them in nanoseconds."""
    total, longest, cuts = Toll(), 0, case.chain.cuts
    for place, (member, (start, end)) in enumerate(zip(layout.order, layout.spans(), strict=True)):
        toll = gates[member].toll(cuts[start], cuts[end], place == 0)
        total, longest = total.with_(toll), max(longest, toll.ns)
    return total, longest


def _one_more(
    case: Case, gate: Gate, device: Device, paid: Sequence[int], is_head: bool, slowest_s: float
) -> tuple[list[int], list[int]]:
    """The least price up to each cut with one more stage, of at least one atom, and where that stage starts."""
    chain = case.chain
    tokens_ns = AHEAD_TOKENS * NANOSECONDS
    blocks = [gate.ns[cut] for cut in chain.cuts]
    sums = [toll + round(read * device.per_byte_s * tokens_ns) for toll, read in zip(blocks, chain.read, strict=True)]
    fixed = round(device.fixed_s * tokens_ns) + (gate.head_ns if is_head else 0)
    least_before = [before - sum_ for before, sum_ in zip(paid, sums, strict=True)]
    prices, starts = [NEVER], [0]
    for end in range(1, chain.atoms + 1):
        first = _first_start(case, device, end, slowest_s)
        window = least_before[first:end]
        least = min(window, default=NEVER)
        prices.append(min(NEVER, least + sums[end] + fixed))
        starts.append(first + window.index(least) if window else 0)
    return [price if price < NEVER >> 1 else NEVER for price in prices], starts


def _first_start(case: Case, device: Device, end: int, slowest_s: float) -> int:
    """The first atom from which a stage up to `end` fits in the device's room and time."""
    chain = case.chain
    first = bisect_left(chain.held, chain.held[end] - device.room_bytes)
    if slowest_s == math.inf or not device.per_byte_s:
        return first
    most_bytes = (slowest_s - device.fixed_s) / device.per_byte_s
    return max(first, bisect_left(chain.read, chain.read[end] - most_bytes))


def _counts(chosen: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Atoms of each stage, from where the stages start that end at each cut."""
    counts, end = list[int](), len(chosen[-1]) - 1
    for starts in reversed(chosen):
        counts.append(end - starts[end])
        end = starts[end]
    return tuple(reversed(counts))
