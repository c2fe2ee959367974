"""Whether the host still hears more than half of the session. One that does not decides nothing: the others may have
gone on without it. No I/O, no clock.

More than half of all members, the host counted, and more than half of them without the host can't be on two sides of a
cut. In a session of two, one is no majority: the host goes on alone, and the other one never succeeds it.
"""

from collections.abc import Iterable, Mapping

FRESH_S = 3.0  # a link that stands brings something every second
SMALLEST = 3  # members of a session that has a majority


class Majority:
    """As the host sees it. Times are seconds of the caller's clock."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._members: frozenset[str] = frozenset((me,))
        self._heard_at: dict[str, float] = {}

    def receive_members(self, members: Iterable[str]) -> None:
        """The membership log grew."""
        self._members = frozenset(members)
        self._heard_at = {name: at for name, at in self._heard_at.items() if name in self._members}

    def receive_message(self, member: str, now: float) -> None:
        """A member said something."""
        if member in self._members:
            self._heard_at[member] = now

    def receive_silence(self, silent_s: Mapping[str, float], now: float) -> None:
        """For each linked peer, how long nothing came from it."""
        for member in self._members & silent_s.keys():
            self._heard_at[member] = max(self._heard_at.get(member, now - silent_s[member]), now - silent_s[member])

    def unheard(self, now: float) -> list[str]:
        """Who was not heard lately, in the order of names."""
        since = now - FRESH_S
        return sorted(m for m in self._members - {self._me} if self._heard_at.get(m, since - 1.0) < since)

    def is_here(self, now: float) -> bool:
        """Whether the others can't have gone on without this one."""
        heard = len(self._members) - len(self.unheard(now))
        return len(self._members) < SMALLEST or 2 * heard > len(self._members)
