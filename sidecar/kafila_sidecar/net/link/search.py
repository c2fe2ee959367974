"""When to look for a direct path behind a relayed one: rarer and rarer, for as long as the link lives. No I/O."""

FIRST_PAUSE_S = 2.0
LARGEST_PAUSE_S = 60.0  # routers and networks change by the hour; a search costs a handful of small datagrams
BURST_S = 3.0  # how long one search goes on at addresses that don't answer
STEADY_S = 10.0  # a direct path that was found and lost within this time is looked for no sooner than before


class SearchSchedule:
    """Both ends start it when they take the relayed path, so that they search at nearly the same times."""

    def __init__(self) -> None:
        self._due: float | None = None
        self._pause_s = FIRST_PAUSE_S
        self._stopped_at: float | None = None

    def start(self, now: float) -> None:
        """From the shortest pause on, unless it was stopped a moment ago."""
        if self._stopped_at is None or now - self._stopped_at >= STEADY_S:
            self._pause_s = FIRST_PAUSE_S
        self._due = now + self._pause_s

    def stop(self, now: float) -> None:
        """A direct path is in use."""
        self._due, self._stopped_at = None, now

    def next_timer(self) -> float | None:
        return self._due

    def take(self, now: float) -> bool:
        """Whether a search is due; if so, the next one is planned."""
        if self._due is None or now < self._due:
            return False
        self._pause_s = min(2 * self._pause_s, LARGEST_PAUSE_S)
        self._due = now + self._pause_s
        return True
