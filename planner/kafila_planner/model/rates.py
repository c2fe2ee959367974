"""Figures of a whole ring: circuit (the paper's Eq. 1), tokens a second."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from kafila_planner.model.case import Case
from kafila_planner.model.cost import Prices
from kafila_planner.model.reach import PICOSECONDS
from kafila_planner.model.runs import RowsPace, rows_for, turn_s


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


def token_s(users: int, share: float, circuit_s: float, bottleneck_s: float) -> float:
    """Seconds between two tokens, of all users together: the inverse of min(U / circuit(b), b / bottleneck(b)).

    share: the sequences that a step has on the average, which are b where runs need not be whole.
    """
    return max(circuit_s / users, bottleneck_s / share)


def paces_of(case: Case, layout: Layout) -> tuple[RowsPace, ...]:
    """The ring's pace at each batch size that was priced, 1 first."""
    network = network_s(ring_ps(case, layout.order))
    costs = [(prices.batch, stage_costs(case, layout, prices)) for prices in case.prices]
    return tuple(RowsPace(rows, fsum(cost) + network, max(cost)) for rows, cost in costs)


def best_batch(case: Case, layout: Layout) -> tuple[float, int]:
    """Seconds a token at the declared concurrency, and the batch size that gives them (the smallest of equals).

    For an engine of whole runs what it makes of them, with the rows that it finds by its rule.
    """
    users, known = case.problem.concurrency, paces_of(case, layout)
    if case.problem.most_rows is None:
        return min((token_s(users, pace.rows, pace.circuit_s, pace.busiest_s), pace.rows) for pace in known)
    return turn_s(users, known) / users, rows_for(users, known)
