"""How quickly bytes come. No I/O, no clock."""

from collections import deque

WINDOW_S = 5.0


class FetchPace:
    """Over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now: float, here_bytes: int) -> float:
        """So many are here now; bytes per second, 0 before that is known."""
        if self._seen and here_bytes < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, here_bytes))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()
        began, had_bytes = self._seen[0]
        return (here_bytes - had_bytes) / (now - began) if now > began else 0.0
