"""When a better plan is taken by itself: one rule for newcomers, better paths and whatever else changes the problem.

No I/O, no clock.
"""

from kafila_sidecar.session.coordination.rest import PlanRest
from kafila_sidecar.session.membership.members import Replanning

IDLE_GAIN = 0.10  # of tokens a second, while nobody waits for an answer
BUSY_GAIN = 0.30  # while answers run, which wait for as long as the change takes
IDLE_AFTER_S = 10.0  # without an answer under way


class Adoption:
    """One host's. Times are seconds of the driver's clock."""

    def __init__(self, mode: Replanning = Replanning.AUTO, *, rest: PlanRest) -> None:
        """`rest`: as this member knows it, also from the hosts before; kept up to date."""
        self.mode = mode
        self._gain = 0.0
        self._rest = rest
        self._active_at: float | None = None

    @property
    def tells(self) -> bool:
        """Whether people hear of a better plan."""
        return self.mode is not Replanning.NEVER

    @property
    def is_there_better(self) -> bool:
        """Whether a better plan is known."""
        return self._gain > 0.0

    def found(self, gain: float) -> None:
        """A better plan, by this share of tokens a second; 0.0: there is none."""
        self._gain = gain

    def planned(self) -> None:
        """There is another plan, for whatever reason."""
        self._gain = 0.0

    def adopted(self, now: float) -> None:
        """The better plan is taken."""
        self._gain = 0.0
        self._rest.begin(now)

    def active(self, now: float) -> None:
        """An answer is under way, or has just ended."""
        self._active_at = now

    def due(self) -> float | None:
        """When to take the better plan, unless something happens before; None: not at all."""
        if self.mode is not Replanning.AUTO or self._gain < IDLE_GAIN:
            return None
        if self._gain >= BUSY_GAIN or self._active_at is None:
            return self._rest.until
        return max(self._rest.until, self._active_at + IDLE_AFTER_S)
