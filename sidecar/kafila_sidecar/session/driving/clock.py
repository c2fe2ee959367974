"""A driver's clock: the time that this process ran, and a beat by which it notices that it did not."""

import asyncio
import time
from collections.abc import Callable

from kafila_sidecar.session.judging.waking import BEAT_S, RunningTime


def outer_clock() -> float:
    """Seconds of a clock that goes on while the machine sleeps: the system's own where it has one, else of the day."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time() if boottime is None else time.clock_gettime(boottime)


class DriverClock:
    """In seconds of running time. `steady` and `silent_s` come from the event loop's time."""

    def __init__(self, outer: Callable[[], float]) -> None:
        self._outer = outer
        self._loop = asyncio.get_running_loop()
        self._running = RunningTime(self._loop.time(), outer())
        self._napped_s = 0.0
        self._beating: asyncio.TimerHandle | None = None
        self._woke_at = self.now()

    def now(self) -> float:
        """The running time."""
        return self._running.read(self._loop.time(), self._outer())

    def loop_time(self, running: float | None) -> float | None:
        """The loop's time at which the running time will be that; None stays None."""
        return None if running is None else self._running.steady(running)

    def nap_s(self) -> float:
        """Seconds that this process was asleep since this was asked last; 0.0: it was not."""
        now, before_s, self._napped_s = self.now(), self._napped_s, self._running.napped_s
        if self._napped_s != before_s:
            self._woke_at = now
        return self._napped_s - before_s

    @property
    def awake_s(self) -> float:
        """Since this process woke: no silence of others counts for longer."""
        return self.now() - self._woke_at

    def beat(self, napped: Callable[[], None]) -> None:
        """Until `rest`; `napped` is called when this process has slept."""
        self._beating = self._loop.call_later(BEAT_S, self._on_beat, self._running.naps, napped)

    def rest(self) -> None:
        """Beats no more."""
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    def _on_beat(self, naps: int, napped: Callable[[], None]) -> None:
        self.now()
        if self._running.naps != naps:
            napped()
        self.beat(napped)
