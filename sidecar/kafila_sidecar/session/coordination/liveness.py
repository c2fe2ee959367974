"""Accusations that a member is lost, as the host weighs them: the accused may show that it is there."""

from collections import Counter
from collections.abc import Iterable

HEARING_S = 2.0  # how long the accused has to say anything at all
MOST_FALSE_ALARMS = 3  # of one accuser; its own network must be at fault, or its honesty


class Hearings:
    """One word of one member removes nobody. Times are seconds of the driver's clock, given as `now`."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, float]] = {}  # accused -> accuser, until when
        self._false_alarms: Counter[str] = Counter()

    def open(self, accused: str, accuser: str, now: float) -> None:
        """Somebody says that the accused is lost."""
        self._open.setdefault(accused, (accuser, now + HEARING_S))

    def heard(self, member: str) -> str | None:
        """A member says something; its accuser, if it has one, raised a false alarm."""
        hearing = self._open.pop(member, None)
        return hearing[0] if hearing else None

    def false_alarm(self, accuser: str) -> bool:
        """Counts one; True when they have become too many."""
        self._false_alarms[accuser] += 1
        return self._false_alarms[accuser] >= MOST_FALSE_ALARMS

    def due(self, now: float) -> list[str]:
        """Who was not heard in time; their hearings are over."""
        late = [accused for accused, (_, until) in self._open.items() if until <= now]
        for accused in late:
            del self._open[accused]
        return late

    def next_timer(self) -> float | None:
        return min((until for _, until in self._open.values()), default=None)

    def keep(self, members: Iterable[str]) -> None:
        """Those who are members still."""
        names = set(members)
        self._open = {accused: hearing for accused, hearing in self._open.items() if accused in names}
        self._false_alarms = Counter({name: n for name, n in self._false_alarms.items() if name in names})
