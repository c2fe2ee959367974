"""Figures of a whole ring: circuit (the paper's Eq. 1), tokens a second, time to first token."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from kafila_planner.model.case import Case
from kafila_planner.model.cost import Prices
from kafila_planner.model.reach import PICOSECONDS
from kafila_planner.model.types import Tier


@dataclass(frozen=True, slots=True)
class Layout:
    """A ring that starts at its head, and how many atoms each member of it holds."""

    order: tuple[int, ...]
    counts: tuple[int, ...]

    def spans(self) -> list[tuple[int, int]]:
        """Atoms [start, end) of each stage."""
        ends = [sum(self.counts[: place + 1]) for place in range(len(self.counts))]
        return [(end - count, end) for end, count in zip(ends, self.counts, strict=True)]


def hops(order: Sequence[int]) -> list[tuple[int, int]]:
    """The ring's hops, the one back to the head last. Two members have two; one has none."""
    return [(a, order[(place + 1) % len(order)]) for place, a in enumerate(order)] if len(order) > 1 else []


def ring_ps(case: Case, order: Sequence[int]) -> int | None:
    """The paper's ring cost: the sum of round trips, None if one is not known."""
    total = 0
    for a, b in hops(order):
        rtt = case.round_trips.rtt_ps[a][b]
        if rtt is None:
            return None
        total += rtt
    return total


def network_s(ring: int | None) -> float:
    """What a token pays: each hop one way, half its round trip. A ring that is not known is left out."""
    return 0.0 if ring is None else ring / (2 * PICOSECONDS)


def stage_costs(case: Case, layout: Layout, prices: Prices) -> list[float]:
    """c_i of each stage at that batch size."""
    read = case.chain.read
    devices = case.devices(layout.order, prices)
    return [
        device.cost_s(read[end] - read[start]) for device, (start, end) in zip(devices, layout.spans(), strict=True)
    ]


def token_s(users: int, batch: int, circuit_s: float, bottleneck_s: float) -> float:
    """Seconds between two tokens, of all users together: the inverse of min(U / circuit(b), b / bottleneck(b))."""
    return max(circuit_s / users, bottleneck_s / batch)


def best_batch(case: Case, layout: Layout) -> tuple[float, int]:
    """Seconds a token at the declared concurrency, and the batch size that gives them (the smallest of equals)."""
    network = network_s(ring_ps(case, layout.order))
    best = []
    for prices in case.prices:
        costs = stage_costs(case, layout, prices)
        best.append((token_s(case.problem.concurrency, prices.batch, fsum(costs) + network, max(costs)), prices.batch))
    return min(best)


def ttft_s(case: Case, layout: Layout) -> float | None:
    """Time to the first token of a prompt: every stage reads its weights or computes, whichever takes longer.

    Two operations a weight and token, two bytes a weight: one operation a byte and token. The uplink's transfer time
    is not in it, since no bandwidth of links is measured.
    """
    ring, tokens = ring_ps(case, layout.order), case.problem.prompt_tokens
    if case.tier is not Tier.MEASURED or tokens is None or ring is None:
        return None
    total = network_s(ring) + fsum(stage_costs(case, layout, case.prices[0]))
    for member, (start, end) in zip(layout.order, layout.spans(), strict=True):
        flops_per_s = case.members[member].flops_per_s
        if flops_per_s is None:
            return None
        read = case.chain.read[end] - case.chain.read[start]
        total += max(0.0, tokens * read / flops_per_s - read * case.prices[0].per_byte[member])
    return total
