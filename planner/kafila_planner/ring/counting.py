"""The paper's counting heuristic: the fewest relayed hops from the members' classes alone, in closed form.

Only hops between two members that are neither permissive relay, except between two ordinary ones; an isolated member
relays with everybody. So permissive members separate: between them lie stretches of restrictive members, each a unit
of its own, and ordinary ones, which are one unit together. A ring without isolated members relays
max(0, R − P + [O > 0]) hops if R > 0 (three members or more).
"""

from collections import Counter
from collections.abc import Sequence

from kafila_planner.model.reach import Reach, is_direct

P, O, R, X = Reach.PERMISSIVE, Reach.ORDINARY, Reach.RESTRICTIVE, Reach.ISOLATED  # noqa: E741


def counted_ring(start: int, others: Sequence[int], reach: Sequence[Reach]) -> tuple[int, ...]:
    """A ring with the fewest relays, from `start`; of all those the lexicographically smallest.

    Members join one by one: the smallest whose class still allows the fewest relays for what is left.
    """
    ring, left = [start], sorted(others)
    counts = Counter(reach[other] for other in left)
    while left:
        tried: dict[Reach, int] = {}
        for other in left:
            if reach[other] not in tried:
                tried[reach[other]] = _relays_after(reach[ring[-1]], reach[other], reach[start], counts)
        fewest = min(tried.values())
        chosen = next(other for other in left if tried[reach[other]] == fewest)
        ring.append(chosen)
        left.remove(chosen)
        counts[reach[chosen]] -= 1
    return tuple(ring)


def _relays_after(last: Reach, following: Reach, end: Reach, counts: Counter[Reach]) -> int:
    rest = counts.copy()
    rest[following] -= 1
    return (not is_direct(last, following)) + least_relays(following, end, rest)


def least_relays(first: Reach, last: Reach, between: Counter[Reach]) -> int:
    """The fewest relays of a way from one member to another through others of the given classes."""
    isolated = between[X] + (first is X) + (last is X)
    if not isolated:
        return _least_relays(first, last, between)
    open_first, open_last = None if first is X else first, None if last is X else last
    if not (between[P] + between[O] + between[R]) and open_first is open_last is None:
        return between[X] + 1
    without = _least_relays(open_first, open_last, between)
    if first is X or last is X:
        return isolated + without
    return isolated + without + (without == 0)


def _least_relays(first: Reach | None, last: Reach | None, between: Counter[Reach]) -> int:
    """The same without isolated members; an end that is None is free."""
    ends = [end for end in (first, last) if end is not None]
    permissive = between[P] + ends.count(P)
    restrictive = between[R] + ends.count(R)
    ordinary = between[O] + ends.count(O)
    if not permissive and not restrictive:
        return 0
    units = restrictive + (2 if ends.count(O) == 2 else min(ordinary, 1))
    gaps = permissive + 1 - ends.count(P)
    return max(0, units - gaps)
