"""Room numbers: the lowest free one, and none again before it has cooled down."""

import heapq
from collections import deque


class RoomNumbers:
    """Numbers from 1. A number given back rests for `cool_down_s`, so that an old code opens nothing new."""

    def __init__(self, cool_down_s: float) -> None:
        self._cool_down_s = cool_down_s
        self._free: list[int] = []  # a heap
        self._resting: deque[tuple[float, int]] = deque()  # (free again at, number), in order of time
        self._claimed: set[int] = set()  # from `_next` on
        self._next = 1

    def claim(self, number: int) -> bool:
        """Takes a number that the server gave out before its restart; false when it is somebody else's since."""
        if number < self._next or number in self._claimed:
            return False
        self._claimed.add(number)
        return True

    def take(self, now: float) -> int:
        while self._resting and self._resting[0][0] <= now:
            heapq.heappush(self._free, self._resting.popleft()[1])
        if self._free:
            return heapq.heappop(self._free)
        while self._next in self._claimed:
            self._claimed.remove(self._next)
            self._next += 1
        self._next += 1
        return self._next - 1

    def give_back(self, number: int, now: float) -> None:
        self._resting.append((now + self._cool_down_s, number))
