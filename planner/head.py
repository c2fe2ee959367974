"""The head: the paper's rotations. A ring has no first member, so each may be the head without changing an edge."""

from planner.case import Case
from planner.partition import Division, divide
from planner.rates import Layout
from planner.types import Tier

MARGIN = 0.05
"""μ of the paper: a smaller gain could be noise of the members' overheads, and would move the head for nothing."""


def place_head(case: Case, ring: tuple[int, ...]) -> Layout | None:
    """The rotation with the least bottleneck; the first of the ring stays head unless that gains over MARGIN.

    The arithmetic tier prices no head, so there the first stays.
    """
    rotations = [ring[place:] + ring[:place] for place in range(len(ring))]
    if case.tier is not Tier.MEASURED:
        rotations = rotations[:1]
    found = [(division, order) for order in rotations if (division := _divide(case, order))]
    if not found:
        return None
    division, order = min(found, key=lambda one: (one[0].bottleneck_s, one[1][0]))
    anchored, first = found[0]
    if first == ring and division.bottleneck_s >= anchored.bottleneck_s * (1 - MARGIN):
        return Layout(ring, anchored.counts)
    return Layout(order, division.counts)


def _divide(case: Case, order: tuple[int, ...]) -> Division | None:
    return divide(case.chain, case.devices(order, case.prices[0]))
