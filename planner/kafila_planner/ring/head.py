"""The head: the paper's rotations. A ring has no first member, so each may be the head without changing an edge."""

import math

from kafila_planner.model.case import Case
from kafila_planner.model.rates import Layout
from kafila_planner.model.types import Tier

MARGIN = 0.05
"""μ of the paper: a smaller gain could be noise of the members' overheads, and would move the head for nothing."""


def place_head(case: Case, ring: tuple[int, ...]) -> Layout | None:
    """The rotation with the least bottleneck; the first of the ring stays head unless that gains over MARGIN.

    The arithmetic tier prices no head, so there the first stays.
    """
    anchored = case.chain.divide(case.devices(ring, case.prices[0]))
    best, layout = math.inf, None
    if anchored is not None:
        best, layout = anchored.bottleneck_s * (1 - MARGIN), Layout(ring, anchored.counts)
    if case.tier is not Tier.MEASURED:
        return layout
    for order in sorted(ring[place:] + ring[:place] for place in range(1, len(ring))):
        division = case.chain.divide(case.devices(order, case.prices[0]), best)
        if division is not None and division.bottleneck_s < best:
            best, layout = division.bottleneck_s, Layout(order, division.counts)
    return layout
