"""A clock that stands still until it is moved, and what is due on it."""

import heapq
import itertools
from collections.abc import Callable

START_S = 1000.0


class HandClock:
    """`now` moves only in `run`. Like an event loop it has `time`, `call_later` and `call_at`."""

    def __init__(self) -> None:
        self.now = START_S
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, action: Callable[..., object], *arguments: object) -> None:
        self.call_at(self.now + delay_s, action, *arguments)

    def call_at(self, when: float, action: Callable[..., object], *arguments: object) -> None:
        heapq.heappush(self._heap, (when, next(self._order), lambda: action(*arguments)))

    def run(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> bool:
        """Moves the clock; true as soon as `until` holds, which is asked after each event."""
        end = self.now + seconds
        while not until() and self._heap and self._heap[0][0] <= end:
            when, _, action = heapq.heappop(self._heap)
            self.now = max(self.now, when)
            action()
        if until():
            return True
        self.now = end
        return False


class Clocked:
    """Drives a core's timer: `next_timer` tells when it is due, `fire` does what is due."""

    def __init__(self, clock: HandClock, next_timer: Callable[[], float | None], fire: Callable[[], None]) -> None:
        self._clock, self._next_timer, self._fire = clock, next_timer, fire
        self._armed: float | None = None

    def arm(self) -> None:
        at = self._next_timer()
        if at is None or (self._armed is not None and self._armed <= at):
            return
        # A real clock moves between two calls; without that, a timer that stays due would fire for ever.
        at = max(at, self._clock.now + 1e-6)
        self._armed = at
        self._clock.call_at(at, self._expired, at)

    def _expired(self, at: float) -> None:
        if self._armed != at:
            return
        self._armed = None
        self._fire()
        self.arm()
