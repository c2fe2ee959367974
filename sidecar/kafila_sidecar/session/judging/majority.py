"""Whether the host still hears more than half of the session. One that does not decides nothing: the others may have
gone on without it. No I/O, no clock.

More than half of all members, the host counted, and more than half of them without the host can't be on two sides of a
cut. In a session of two, one is no majority: the host goes on alone, and the other one never succeeds it.

Whoever was not heard may not know who came or went since, and would vote as the session was then. So the host needs
more than half of the members now, and of those at each moment since it heard everybody.
"""

import math
from collections.abc import Iterable, Mapping

FRESH_S = 3.0  # a link that stands brings something every second
SMALLEST = 3  # members of a session that has a majority


class Majority:
    """As the host sees it. Times are seconds of the caller's clock."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._members: frozenset[str] = frozenset((me,))
        self._heard_at: dict[str, float] = {}
        self._known_at: dict[str, float] = {}  # when each was there the last time, own sleep or not
        self._former: list[tuple[float, frozenset[str]]] = []  # until when these were the members, in order

    def receive_members(self, members: Iterable[str], now: float) -> None:
        """The membership log grew. Whoever comes knows the log."""
        before, self._members = self._members, frozenset(members)
        self._heard_at = {name: at for name, at in self._heard_at.items() if name in self._members}
        self._known_at = {name: self._known_at.get(name, now) for name in self._members}
        if before != self._members:
            self._former.append((now, before))

    def receive_message(self, member: str, now: float) -> None:
        """A member said something."""
        if member in self._members:
            self._heard_at[member] = self._known_at[member] = now

    def receive_goodbye(self, member: str) -> None:
        """Who left votes no more."""
        self._members -= {member}
        self._former = [(until, members - {member}) for until, members in self._former]

    def receive_silence(self, silent_s: Mapping[str, float], now: float) -> None:
        """For each linked peer, how long nothing came from it."""
        for member in self._members & silent_s.keys():
            at = now - silent_s[member]
            self._heard_at[member] = max(self._heard_at.get(member, at), at)
            self._known_at[member] = max(self._known_at[member], at)

    def woke(self) -> None:
        """This process was asleep: what it heard before is old."""
        self._heard_at.clear()

    def unheard(self, now: float) -> list[str]:
        """Who was not heard lately, in the order of names."""
        since = now - FRESH_S
        return sorted(m for m in self._members - {self._me} if self._heard_at.get(m, since - 1.0) < since)

    def heard_at(self, member: str) -> float:
        """When something came from it the last time, while this process was awake."""
        return self._heard_at.get(member, -math.inf)

    @property
    def heard_most_at(self) -> float:
        """The last moment at which more than half had something come since; infinite for a session that has none."""
        if len(self._members) < SMALLEST:
            return math.inf
        heard_at = sorted((self._heard_at.get(m, -math.inf) for m in self._members - {self._me}), reverse=True)
        return heard_at[len(self._members) // 2 - 1]

    def is_here(self, now: float) -> bool:
        """Whether the others can't have gone on without this one."""
        unheard = self.unheard(now)
        heard = self._members - set(unheard)
        self._former = self._unknown_to(self._members - {self._me})
        return all(_is_most(heard, members) for members in (self._members, *(m for _, m in self._unknown_to(unheard))))

    def _unknown_to(self, names: Iterable[str]) -> list[tuple[float, frozenset[str]]]:
        """Former members whose coming and going one of these may not have heard of."""
        known_at = min((self._known_at[name] for name in names), default=math.inf)
        return [(until, members) for until, members in self._former if until > known_at]


def _is_most(heard: frozenset[str], members: frozenset[str]) -> bool:
    return len(members) < SMALLEST or 2 * len(heard & members) > len(members)
