"""One member's way out of a session whose answers run: it serves until the others have planned without it. No I/O, no
clock.
"""

DRAIN_DEADLINE_S = 60.0  # then it goes, whatever becomes of the answers


class Leaving:
    """One member's. Times are seconds of the driver's clock."""

    def __init__(self) -> None:
        self.kept_back = ""  # why the others can't do without this member, in a sentence
        self._until: float | None = None

    @property
    def has_begun(self) -> bool:
        """Whether it goes as soon as it can."""
        return self._until is not None

    def begin(self, now: float) -> None:
        """This member's person wants to leave."""
        self.kept_back = ""
        self._until = now + DRAIN_DEADLINE_S

    def receive_refusal(self, sentence: str) -> None:
        """The others can't go on without this member: its person has to say whether it goes all the same."""
        if self.has_begun:
            self._until, self.kept_back = None, sentence

    def next_timer(self) -> float | None:
        """When it goes at the latest."""
        return self._until

    def is_over(self, now: float, *, serves: bool) -> bool:
        """Whether it is time to say goodbye. `serves`: answers run here, or wait for the next epoch."""
        return self._until is not None and (not serves or now >= self._until)
