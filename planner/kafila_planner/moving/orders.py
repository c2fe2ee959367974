"""Rings in which members may keep what they hold: in the order of their blocks, with newcomers between them."""

from collections.abc import Iterator, Sequence

from kafila_planner.model.case import Case
from kafila_planner.model.types import HeldParts


def orders_near(case: Case, best: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Orders worth dividing, each once, the head first: the best plan's own; those who hold blocks by their first one;
    the same with one more member of the best plan at each place, or one fewer. Each with its own head, or another."""
    seen: set[tuple[int, ...]] = set()
    for ring in (tuple(best), *_rings(case, best)):
        for order in _headed(case, ring, best[0]):
            if order and order not in seen and case.required <= set(order):
                seen.add(order)
                yield order


def _rings(case: Case, best: Sequence[int]) -> Iterator[tuple[int, ...]]:
    holders = [member for member in range(len(case.members)) if _first(case, member) is not None]
    ring = tuple(sorted(holders, key=lambda member: (_first(case, member), member)))
    yield ring
    yield tuple(member for member in ring if member in best)
    for newcomer in sorted(set(best) - set(ring)):
        for place in range(len(ring) + 1):
            yield (*ring[:place], newcomer, *ring[place:])
    for left_out in ring:
        yield tuple(member for member in ring if member != left_out)


def _headed(case: Case, ring: tuple[int, ...], head: int) -> Iterator[tuple[int, ...]]:
    """The ring as it is, and with another head before the rest: the best plan's, or one that holds head matrices."""
    yield ring
    for member in ring:
        held = case.members[member].holds
        if member == head or (held is not None and held.memory_head):
            yield (member, *(other for other in ring if other != member))


def _first(case: Case, member: int) -> int | None:
    """The first block that a member has in memory, else on its disk; None if it has none."""
    held = case.members[member].holds or HeldParts()
    ranges = held.memory_blocks or held.disk_blocks
    return ranges[0][0] if ranges else None
