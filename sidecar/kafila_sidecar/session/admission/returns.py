"""How often a member may come back: each time costs entries of the log, which all share, and has the session planned
anew. No I/O, no clock."""

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.session.membership.members import Member

MOST_AT_ONCE = 8  # of a machine that is started again and again, or has a bad network
RETURN_EVERY_S = 300.0  # after that; the log lasts for days so, with whatever one member does


class Returns:
    """The host's, of all members. A member's latest returns weigh, and become lighter with time."""

    def __init__(self) -> None:
        self._weights: dict[bytes, tuple[float, float]] = {}  # by fingerprint: how many returns, as of when

    def check(self, member: Member, now: float) -> None:
        """Raises Unavailable for who has come back too often to come back now."""
        over = self._weight(member, now) + 1.0 - MOST_AT_ONCE
        if over > 0.0:
            wait_s = over * RETURN_EVERY_S
            raise Unavailable(f"{member.name} came back too often: it can again in {wait_s:.0f} s, and does by itself")

    def note(self, member: Member, now: float) -> None:
        """It came back."""
        self._weights[member.fingerprint] = self._weight(member, now) + 1.0, now

    def _weight(self, member: Member, now: float) -> float:
        weight, since = self._weights.get(member.fingerprint, (0.0, now))
        return max(0.0, weight - (now - since) / RETURN_EVERY_S)
