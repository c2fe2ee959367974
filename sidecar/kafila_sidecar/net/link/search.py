"""When to look for a direct path behind a relayed one: rarer and rarer, for as long as the link lives. No I/O."""

FIRST_PAUSE_S = 2.0
LARGEST_PAUSE_S = 60.0  # routers and networks change by the hour; a search costs a handful of small datagrams
BURST_S = 3.0  # how long one search goes on at addresses that don't answer


class SearchSchedule:
    """Both ends start it when they take the relayed path, so that they search at nearly the same times."""

    def __init__(self) -> None:
        self._due: float | None = None
        self._pause_s = FIRST_PAUSE_S

    def start(self, now: float) -> None:
        """From the shortest pause on."""
        self._pause_s = FIRST_PAUSE_S
        self._due = now + self._pause_s

    def stop(self) -> None:
        self._due = None

    def next_timer(self) -> float | None:
        return self._due

    def take(self, now: float) -> bool:
        """Whether a search is due; if so, the next one is planned."""
        if self._due is None or now < self._due:
            return False
        self._pause_s = min(2 * self._pause_s, LARGEST_PAUSE_S)
        self._due = now + self._pause_s
        return True
