"""Room numbers: the lowest free one of a series, and none again before it has cooled down."""

import heapq
from collections import deque
from collections.abc import Iterable

from kafila_rendezvous.series import EVERY, Series


class RoomNumbers:
    """Numbers of `series`. A number given back rests for `cool_down_s`, so that an old code opens nothing new.

    `kept` are those of rooms that live since before a restart; nobody else gets them before `let_go`.
    """

    def __init__(self, cool_down_s: float, kept: Iterable[int] = (), series: Series = EVERY) -> None:
        self._cool_down_s = cool_down_s
        self._free: list[int] = []  # a heap
        self._resting: deque[tuple[float, int]] = deque()  # (free again at, number), in order of time
        self._kept = set(kept)
        self._passed: set[int] = set()  # those kept that are below `_next`
        self._claimed: set[int] = set()  # from `_next` on, and those of another series
        self._series = series
        self._next = series.first

    def claim(self, number: int) -> bool:
        """Takes a number that the server gave out before its restart; false when it is somebody else's since."""
        self._kept.discard(number)
        if number in self._passed:
            self._passed.remove(number)
            return True
        if number in self._claimed or (self._series.has(number) and number < self._next):
            return False
        self._claimed.add(number)
        return True

    def let_go(self, now: float) -> None:
        """Rooms that did not come back by now never will; their numbers rest like any other."""
        self._kept.clear()
        for number in sorted(self._passed):
            self.give_back(number, now)
        self._passed.clear()

    def take(self, now: float) -> int:
        while self._resting and self._resting[0][0] <= now:
            heapq.heappush(self._free, self._resting.popleft()[1])
        if self._free:
            return heapq.heappop(self._free)
        while self._next in self._claimed or self._next in self._kept:
            if self._next in self._claimed:
                self._claimed.remove(self._next)
            else:
                self._passed.add(self._next)
            self._next += self._series.step
        self._next += self._series.step
        return self._next - self._series.step

    def give_back(self, number: int, now: float) -> None:
        if self._series.has(number):
            self._resting.append((now + self._cool_down_s, number))
        else:
            self._claimed.discard(number)
