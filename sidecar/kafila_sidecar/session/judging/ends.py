"""Links whose other end is down, as that says. One that ended for want of a word tells nobody by itself: who stood
still meanwhile would hold its own end for open for another 15 s, and the other one could make no new link. No I/O, no
clock.
"""

from collections.abc import Mapping

from kafila_sidecar.session.judging.majority import FRESH_S

STALE_S = 2 * FRESH_S  # a link that brought something until then is another one than was spoken of


class OtherEnds:
    """One member's. Times are seconds of the driver's clock; `silent_s` as in `liveness`."""

    def __init__(self) -> None:
        self._down: dict[str, float] = {}  # since when the peer is known to say so

    def receive_down(self, peer: str, now: float) -> None:
        """A peer says that its end is down, or by what it says it has closed it."""
        self._down[peer] = now

    def receive_up(self, peer: str) -> None:
        """It says that its end stands."""
        self._down.pop(peer, None)

    def next_timer(self, now: float, silent_s: Mapping[str, float]) -> float | None:
        """When `handle_timer` may have something to tell."""
        return min(
            (min(self._dead_at(peer, now, silent_s), since + STALE_S) for peer, since in self._down.items()),
            default=None,
        )

    def handle_timer(self, now: float, silent_s: Mapping[str, float]) -> list[str]:
        """Whose link to close here too: nothing comes over it any more."""
        dead = [peer for peer in self._down if peer in silent_s and now >= self._dead_at(peer, now, silent_s)]
        self._down = {
            peer: since
            for peer, since in self._down.items()
            if peer in silent_s and peer not in dead and now < since + STALE_S
        }
        return dead

    def _dead_at(self, peer: str, now: float, silent_s: Mapping[str, float]) -> float:
        return now - silent_s.get(peer, FRESH_S) + FRESH_S
