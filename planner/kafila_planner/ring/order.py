"""Ring order: priced where every round trip is known, by counting relays where one is missing."""

from collections.abc import Sequence

from kafila_planner.model.case import Case
from kafila_planner.model.types import OrderedBy, SearchKind
from kafila_planner.ring.counting import counted_ring
from kafila_planner.ring.tour import EXACT_TO, cheapest_ring


def ring_of(case: Case) -> tuple[int, ...]:
    """All members of the case in a ring, the anchor first."""
    others = [member for member in range(len(case.members)) if member != case.anchor]
    return ring_through(case, case.anchor, others)


def ring_through(case: Case, start: int, others: Sequence[int]) -> tuple[int, ...]:
    """The cheapest ring from `start`. Ties break by ring separation, then by name (an index is a name's place)."""
    if case.round_trips.reach is not None and not case.round_trips.priced:
        return counted_ring(start, others, case.round_trips.reach)
    return cheapest_ring(start, others, case.round_trips.weights())


def ordered_by(case: Case) -> OrderedBy:
    return OrderedBy.PRICED if case.round_trips.priced else OrderedBy.COUNTING


def order_search(case: Case) -> SearchKind:
    """Whether `ring_of` is exact: counting always is."""
    counted = case.round_trips.reach is not None and not case.round_trips.priced
    return SearchKind.EXACT if counted or len(case.members) <= EXACT_TO else SearchKind.HEURISTIC
