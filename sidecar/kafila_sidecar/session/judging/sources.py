"""Members that wait for where weights come from: no failure of theirs, and it ends for all at once, if it must.

No I/O, no clock.
"""

from collections.abc import Collection, Sequence

SOURCE_DEADLINE_S = 300.0  # of waiting without a break; a member by itself gives up after twice that


class SourceWaits:
    """Of the fetches of one epoch."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._for: dict[str, str] = {}

    def clear(self) -> None:
        """Another epoch."""
        self._since.clear()
        self._for.clear()

    def note(self, member: str, waits_for: str, now: float) -> None:
        """What a member waits for, in a sentence; empty when something came, or it does something else."""
        if waits_for:
            self._since.setdefault(member, now)
            self._for[member] = waits_for
        else:
            self._since.pop(member, None)

    def waits(self, member: str) -> bool:
        """Whether it said so last."""
        return member in self._since

    def sentence(self, member: str) -> str:
        """What it said last that it waits for."""
        return self._for.get(member, "")

    def due(self, members: Collection[str]) -> float | None:
        """When the first of these has waited for too long."""
        return min((self._since[one] + SOURCE_DEADLINE_S for one in members if one in self._since), default=None)

    def late(self, members: Sequence[str], now: float) -> list[str]:
        """Who of these has waited for too long."""
        return [one for one in members if one in self._since and now >= self._since[one] + SOURCE_DEADLINE_S]
