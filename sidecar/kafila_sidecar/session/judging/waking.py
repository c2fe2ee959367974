"""The time that this process itself ran: what others were silent for while it slept is not held against them.

No I/O and no clock: readings of two clocks come in. One stands still while the machine sleeps on many systems, and goes
on while the process is stopped; the other goes on in both cases, and may jump when somebody sets it.
"""

BEAT_S = 1.0  # between two readings of a process that runs
LONGEST_GAP_S = 3.0  # between two readings; after more than that the process was asleep, or stopped, or starved


class RunningTime:
    """Seconds that passed here, without the gaps in which nothing ran."""

    def __init__(self, steady: float, outer: float) -> None:
        """`steady`: the event loop's time. `outer`: of a clock that goes on while the machine sleeps."""
        self._read_at = steady, outer
        self._slept_s = 0.0
        self._napped_s = 0.0
        self._naps = 0

    @property
    def naps(self) -> int:
        """How many gaps there were."""
        return self._naps

    @property
    def napped_s(self) -> float:
        """What is missing of the running time: all gaps, each by the clock that saw more of it."""
        return self._napped_s

    def read(self, steady: float, outer: float) -> float:
        """The running time now; it never goes back, and a gap counts as one beat."""
        before_steady, before_outer = self._read_at
        self._read_at = steady, outer
        passed_s = steady - before_steady
        if (gap_s := max(passed_s, outer - before_outer)) > LONGEST_GAP_S:
            self._naps += 1
            self._napped_s += gap_s - min(passed_s, BEAT_S)
            self._slept_s += max(0.0, passed_s - BEAT_S)
        return steady - self._slept_s

    def steady(self, running: float) -> float:
        """The loop's time at which the running time will be that, if nothing sleeps before."""
        return running + self._slept_s
