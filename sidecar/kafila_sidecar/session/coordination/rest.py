"""How long no better plan is taken after the last one that was. Every member keeps it, so that a session rests as long
whoever is the host by then. No I/O, no clock.
"""

PAUSE_S = 300.0  # between two changes


class PlanRest:
    """One member's knowledge of it, in seconds of running time by its driver's clock."""

    def __init__(self) -> None:
        self._until = 0.0

    @property
    def until(self) -> float:
        """When it is over."""
        return self._until

    def left_s(self, now: float) -> float:
        """What is told to the others, whose clocks are others."""
        return max(0.0, self._until - now)

    def begin(self, now: float) -> None:
        """A better plan is taken."""
        self._until = now + PAUSE_S

    def learn(self, left_s: float, now: float) -> None:
        """The host says that so much is left. One that took over may know of less than is known here."""
        self._until = max(self._until, now + min(left_s, PAUSE_S))

    def slept(self, slept_s: float) -> None:
        """This machine did: running time stood still, and the rest went on."""
        self._until -= slept_s
