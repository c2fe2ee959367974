"""The two capability-blind divisions that the paper compares with: GPipe's `uniform` and exo's `memory`.

Both keep the anchor as head, take the ring's order from it, and are not adjusted to what fits: that is for admission.
"""

from collections.abc import Sequence
from fractions import Fraction

from kafila_planner.model.chain import Chain


def uniform_shares(members: int, blocks: int) -> list[int]:
    """Equal counts; the remainder goes to the first, one each."""
    share, remainder = divmod(blocks, members)
    return [share + (place < remainder) for place in range(members)]


def memory_shares(memory_bytes: Sequence[int], blocks: int) -> list[int]:
    """Counts in proportion to memory, at least one each: one for everybody, then by the largest remainder.

    Whoever is due less than one keeps one, and the others share what is left. Of equal remainders the first in the
    ring takes it.
    """
    weights = [Fraction(max(memory, 1)) for memory in memory_bytes]
    counts = [0] * len(weights)
    open_places = list(range(len(weights)))
    left = blocks
    while small := [place for place in open_places if weights[place] * left < sum(weights[p] for p in open_places)]:
        for place in small:
            counts[place] = 1
        left -= len(small)
        open_places = [place for place in open_places if place not in small]
    total = sum(weights[place] for place in open_places)
    due = {place: weights[place] * left / total for place in open_places}
    for place in open_places:
        counts[place] = int(due[place])
    by_remainder = sorted(open_places, key=lambda place: (counts[place] - due[place], place))
    for place in by_remainder[: blocks - sum(counts)]:
        counts[place] += 1
    return counts


def snap(chain: Chain, shares: Sequence[int]) -> tuple[int, ...]:
    """Shares in blocks as counts of atoms: the permitted cuts that are together nearest to the wished ones."""
    wished = [sum(shares[: place + 1]) for place in range(len(shares))]
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for wish in wished[:-1]:
        best = _one_more(chain, best, wish)
    _, cuts = min((off, cuts) for end, (off, cuts) in best.items() if end < chain.atoms)
    ends = (*cuts, chain.atoms)
    return tuple(end - start for start, end in zip((0, *ends), ends, strict=False))


def _one_more(
    chain: Chain, best: dict[int, tuple[int, tuple[int, ...]]], wish: int
) -> dict[int, tuple[int, tuple[int, ...]]]:
    """The nearest cuts so far, by the atom at which they end, with one cut more."""
    further: dict[int, tuple[int, tuple[int, ...]]] = {}
    for end in range(1, chain.atoms):
        reached = [(off, cuts) for start, (off, cuts) in best.items() if start < end]
        if reached:
            off, cuts = min(reached)
            further[end] = (off + abs(chain.cuts[end] - wish), (*cuts, end))
    return further
