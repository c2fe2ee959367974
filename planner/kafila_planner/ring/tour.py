"""The cheapest ring through given members: exact by dynamic programming to 16 of them, a local search beyond.

Weights are whole numbers, so equal rings compare as equal.
"""

from collections.abc import Sequence
from itertools import pairwise
from operator import add

Weights = Sequence[Sequence[int]]

Ring = tuple[int, ...]

EXACT_TO = 16
"""Members up to which Held and Karp's program is affordable: 15 · 2^14 states, well under a second."""

NEVER = 1 << 200
"""Above every sum of weights."""


def ring_weight(ring: Sequence[int], weights: Weights) -> int:
    return sum(weights[a][b] for a, b in pairwise((*ring, ring[0])))


def cheapest_ring(start: int, others: Sequence[int], weights: Weights) -> tuple[int, ...]:
    """From `start`, which stays first; of equal rings the lexicographically smallest if there are at most EXACT_TO."""
    others = sorted(others)
    if len(others) < 3:
        return (start, *others)
    ring = held_karp(start, others, weights) if len(others) < EXACT_TO else good_ring(start, others, weights)
    return min(ring, (start, *reversed(ring[1:])))


def held_karp(start: int, others: Sequence[int], weights: Weights) -> tuple[int, ...]:
    """The cheapest ring, exactly; read forwards from the start, so that the smallest of equal next members is taken."""
    paths = path_table(start, others, weights)
    ring, rest = [start], (1 << len(others)) - 1
    while rest:
        totals = list(map(add, (weights[ring[-1]][other] for other in others), paths[rest]))
        best = min(totals)
        chosen = totals.index(best)
        ring.append(others[chosen])
        rest ^= 1 << chosen
    return tuple(ring)


def path_table(end: int, others: Sequence[int], weights: Weights) -> list[list[int]]:
    """paths[set][i]: the cheapest way from others[i] through the rest of the set to `end`; NEVER if i is not in it."""
    size = len(others)
    rows = [[weights[a][b] for b in others] for a in others]
    nothing = [NEVER] * size
    paths = [nothing]
    for mask in range(1, 1 << size):
        row = nothing.copy()
        for i in range(size):
            bit = 1 << i
            if mask & bit:
                rest = mask ^ bit
                row[i] = min(map(add, rows[i], paths[rest])) if rest else weights[others[i]][end]
        paths.append(row)
    return paths


def ring_weights(members: Sequence[int], weights: Weights) -> list[int]:
    """The cheapest ring's weight for every subset, by bit mask over `members` (0 for none and one)."""
    size = len(members)
    rings = [0] * (1 << size)
    for low in range(size - 1):
        others = members[low + 1 :]
        first = [weights[members[low]][other] for other in others]
        for mask, row in enumerate(path_table(members[low], others, weights)):
            if mask:
                rings[mask << (low + 1) | 1 << low] = min(map(add, first, row))
    return rings


def good_ring(start: int, others: Sequence[int], weights: Weights) -> tuple[int, ...]:
    """The best of a few beginnings, each improved until no move helps."""
    beginnings = [nearest_first(start, others, weights), list(others)]
    beginnings.append(insert_all([start], others, weights)[1:])
    rings = [improved((start, *beginning), weights) for beginning in beginnings]
    return min(rings, key=lambda ring: (ring_weight(ring, weights), ring))


def nearest_first(start: int, others: Sequence[int], weights: Weights) -> list[int]:
    path, left = [start], set(others)
    while left:
        path.append(min(left, key=lambda other: (weights[path[-1]][other], other)))
        left.remove(path[-1])
    return path[1:]


def insert_all(ring: Sequence[int], others: Sequence[int], weights: Weights) -> list[int]:
    """Each in turn where it costs least."""
    grown = list(ring)
    for other in others:
        place, _ = cheapest_place(grown, other, weights)
        grown.insert(place, other)
    return grown


def cheapest_place(ring: Sequence[int], member: int, weights: Weights) -> tuple[int, int]:
    """Where to insert a member (never before the first), and the weight that it adds."""
    row = weights[member]
    after = (*ring[1:], ring[0])
    detours = [row[a] + row[b] - weights[a][b] for a, b in zip(ring, after, strict=True)]
    least = min(detours)
    return detours.index(least) + 1, least


def improved(ring: Sequence[int], weights: Weights) -> tuple[int, ...]:
    """Reversals and moves of up to three neighbours, until none shortens the ring. The first member stays first."""
    best = list(ring)
    while _reverse_one(best, weights) or _move_one(best, weights):
        pass
    return tuple(best)


def _reverse_one(ring: list[int], weights: Weights) -> bool:
    """2-opt: turn a stretch round where that helps; says whether any did."""
    size, helped = len(ring), False
    for i in range(size - 2):
        row = weights[ring[i]]
        for j in range(i + 2, size):
            b, c, d = ring[i + 1], ring[j], ring[(j + 1) % size]
            if row[c] + weights[b][d] < row[b] + weights[c][d]:
                ring[i + 1 : j + 1] = ring[j:i:-1]
                helped = True
    return helped


def _move_one(ring: list[int], weights: Weights) -> bool:
    """Or-opt: take out a stretch of up to three and put it, either way round, where it costs least."""
    for length in (1, 2, 3):
        for place in range(1, len(ring) - length + 1):
            stretch, rest = ring[place : place + length], ring[:place] + ring[place + length :]
            if len(rest) < 2:
                continue
            before, after = ring[place - 1], ring[(place + length) % len(ring)]
            saved = weights[before][stretch[0]] + weights[stretch[-1]][after] - weights[before][after]
            cost, where, turned = min(
                (weights[a][way[0]] + weights[way[-1]][b] - weights[a][b], spot, turn)
                for turn, way in enumerate((stretch, stretch[::-1]))
                for spot, (a, b) in enumerate(pairwise((*rest, rest[0])), start=1)
            )
            if cost < saved:
                ring[:] = rest[:where] + (stretch[::-1] if turned else stretch) + rest[where:]
                return True
    return False
