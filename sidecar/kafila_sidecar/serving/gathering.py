"""Which tokens a stage runs next, of those that wait there. Pure: no clock, no task.

Steps of a few tokens (decoding) of different sequences run together, prompt chunks alone; a run of steps and a chunk
take turns, so that neither waits for more than one of the other. What comes of one sequence runs in the order in which
it came.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

UNDER_WAY = 2  # runs: one is computed, and where a device computes it another one is built

Work = TypeVar("Work")


@dataclass(frozen=True, slots=True)
class InLine(Generic[Work]):
    """tokens: of the sequence, in this step or chunk."""

    sequence: int
    tokens: int
    is_chunk: bool
    work: Work


class Gathering(Generic[Work]):
    """What waits at one stage, oldest first."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[InLine[Work]]] = {}  # by sequence, in the order of their first ones' coming
        self._chunk_is_due = False

    def add(self, one: InLine[Work]) -> None:
        self._lines.setdefault(one.sequence, deque()).append(one)

    def next(self, most_rows: int) -> Sequence[InLine[Work]]:
        """One run: up to `most_rows` steps of equally many tokens, or one chunk; none when nothing waits."""
        chunk = next((one for one in self.first if one.is_chunk), None)
        steps = [one for one in self.first if not one.is_chunk]
        if chunk is not None and (self._chunk_is_due or not steps):
            self._chunk_is_due = False
            return self._taken([chunk])
        self._chunk_is_due = chunk is not None
        return self._taken([step for step in steps if step.tokens == steps[0].tokens][:most_rows])

    def is_due(self, most_rows: int, *, under_way: int, hands_over: bool) -> bool:
        """Whether another run begins now, with so many under way. Behind one that a device computes (`hands_over`) only
        one that would get no more rows by waiting."""
        if not under_way:
            return bool(self)
        return hands_over and under_way < UNDER_WAY and self.fills(most_rows)

    def fills(self, most_rows: int) -> bool:
        """Whether the next run has all the rows that it may have, and no chunk waits."""
        first = self.first
        if not first or any(one.is_chunk for one in first):
            return False
        return sum(1 for one in first if one.tokens == first[0].tokens) >= most_rows

    @property
    def first(self) -> Sequence[InLine[Work]]:
        """What is next of each sequence."""
        return [line[0] for line in self._lines.values()]

    def drop(self, sequence: int) -> Sequence[InLine[Work]]:
        """Nobody wants a sequence any more: what of it waited."""
        return list(self._lines.pop(sequence, ()))

    def has(self, sequence: int) -> bool:
        """Whether something of it waits."""
        return sequence in self._lines

    @property
    def tokens(self) -> int:
        """How many wait."""
        return sum(one.tokens for line in self._lines.values() for one in line)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def _taken(self, run: list[InLine[Work]]) -> Sequence[InLine[Work]]:
        """A sequence with more to run goes to the end of the line."""
        for one in run:
            line = self._lines.pop(one.sequence)
            line.popleft()
            if line:
                self._lines[one.sequence] = line
        return run


class RunTimes:
    """What a stage's runs take, which are over in the order in which they began."""

    def __init__(self) -> None:
        self._over_at = 0.0  # the last one, on the clock of who asks

    def spent_s(self, began: float, now: float) -> float:
        """Of a run that is over now: behind another one it took only what that left of the time."""
        began, self._over_at = max(began, self._over_at), now
        return now - began
