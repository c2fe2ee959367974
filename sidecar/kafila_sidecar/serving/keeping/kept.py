"""The sequences that every stage still holds after their answers ended, and which of them a request goes on with.

They live in the room of those that run: of a ring's `most` sequences, so many are kept as don't run. A member's are
for that member's requests alone, whose text would else show in how long another one's prompt takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LEAST_TOKENS = 16  # in common, from which on going on pays


@dataclass(frozen=True, slots=True)
class Kept:
    """asker: whose requests may go on with it. tokens: what every stage has taken in of it, at least."""

    sequence: int
    asker: str
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a run begins: the sequence, and how many of its tokens every stage has already."""

    sequence: int
    tokens: int = 0


class KeptSequences:
    """Of one epoch, the one used longest ago first. forgets: whether every stage's caches can forget their last tokens;
    else a sequence goes on from exactly where it stands."""

    def __init__(self, *, most: int, forgets: bool) -> None:
        self._most = most
        self._forgets = forgets
        self._kept: dict[int, Kept] = {}

    def keep(self, one: Kept) -> bool:
        """Whether it is worth it."""
        if len(one.tokens) < LEAST_TOKENS:
            return False
        self._kept[one.sequence] = one
        return True

    def take(self, asker: str, tokens: Sequence[int], *, running: int) -> Beginning | None:
        """The kept sequence that a request with these tokens goes on with, which is no longer kept; `running`: others
        that run. One of which more would be lost than used stays for the conversation it belongs to, as long as it
        would not have to go in any case."""
        goes_next = next(iter(self._kept), None) if running + len(self._kept) >= self._most else None
        best: Beginning | None = None
        for one in self._kept.values():
            common = self._usable(one, tokens) if one.asker == asker else 0
            is_worth_it = 2 * common >= len(one.tokens) or one.sequence == goes_next
            if common >= LEAST_TOKENS and is_worth_it and (best is None or common > best.tokens):
                best = Beginning(one.sequence, common)
        if best is not None:
            del self._kept[best.sequence]
        return best

    def make_room(self, *, running: int) -> list[int]:
        """The sequences to be given up so that so many may run."""
        return [self._kept.pop(next(iter(self._kept))).sequence for _ in range(self._over(running))]

    def give_up(self) -> list[int]:
        """All of them."""
        given, self._kept = list(self._kept), {}
        return given

    def __len__(self) -> int:
        return len(self._kept)

    def _over(self, running: int) -> int:
        return min(len(self._kept), max(0, running + len(self._kept) - self._most))

    def _usable(self, one: Kept, tokens: Sequence[int]) -> int:
        """How many tokens a request need not prefill; its last one it does, since the answer follows from that."""
        common = _common(one.tokens, tokens[:-1])
        return common if self._forgets or common == len(one.tokens) else 0


def _common(some: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens both begin with."""
    for at, (one, other) in enumerate(zip(some, others, strict=False)):
        if one != other:
            return at
    return min(len(some), len(others))
