"""How long the host waits for whom. No I/O, no clock."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from kafila_sidecar.session.coordination.states import Phase
from kafila_sidecar.session.judging.sources import SourceWaits

MEASURE_DEADLINE_S = 120.0  # for everybody's measurement, from the moment the last one came
RETELL_DEADLINE_S = 20.0  # for what was measured, told to a successor that has not heard it, while the others wait
ROLL_CALL_S = 3.0  # how long a successor waits for each member to say anything
LINK_DEADLINE_S = 45.0
FETCH_SILENCE_S = 120.0  # a member that neither fetches nor loads anything for so long is stuck
SHORT_DEADLINE_S = 7 * 86400.0  # for enough memory, once a session was ready: as long as who sleeps may return


class SuccessionCall:
    """Who has answered a successor; a host that is none calls nobody."""

    def __init__(self, *, calls: bool) -> None:
        self._answered: set[str] | None = set() if calls else None

    def answers(self, member: str, members: Collection[str]) -> bool:
        """A member said something: whether the call waited for it."""
        if self._answered is None or member not in members or member in self._answered:
            return False
        self._answered.add(member)
        return True

    def silent(self, others: Iterable[str]) -> list[str]:
        """Who of these has not answered."""
        return [] if self._answered is None else [member for member in others if member not in self._answered]


class Waits:
    """Of one host. A stage that fetches or loads may take as long as it likes, if only it goes on."""

    def __init__(self) -> None:
        self.sources = SourceWaits()
        self.deadline: float | None = None
        self._measure_by = 0.0
        self._heard: dict[str, float] = {}

    def begin(self, now: float, deadline_s: float | None) -> None:
        """Another wait; None: one without a deadline."""
        self.deadline = None if deadline_s is None else now + deadline_s

    def measure(self, now: float, takes_s: float) -> None:
        """Measurements are waited for so long, whatever is decided meanwhile."""
        self._measure_by = now + takes_s

    def calls_the_roll(self, now: float) -> bool:
        """Whether it is not the measurements yet that took too long; they are waited for from then on."""
        if now >= self._measure_by:
            return False
        self.deadline = self._measure_by
        return True

    def fetch(self, members: Iterable[str], now: float) -> None:
        """All fetch from now on."""
        self._heard = dict.fromkeys(members, now)
        self.sources.clear()

    def progressed(self, member: str, now: float) -> None:
        """It fetches or loads."""
        self._heard[member] = now

    def until(self, phase: Phase, fetching: Sequence[str]) -> float | None:
        """When the first of them is over; `fetching`: whose stages are waited for."""
        timers = [] if self.deadline is None else [self.deadline]
        if phase is Phase.FETCHING:
            timers += [self._heard[member] + FETCH_SILENCE_S for member in fetching]
            timers += [due] if (due := self.sources.due(fetching)) is not None else []
        return min(timers, default=None)

    def is_over(self, now: float) -> bool:
        """Whether the deadline has come."""
        return self.deadline is not None and now >= self.deadline

    def stuck(self, fetching: Sequence[str], now: float) -> Mapping[str, str]:
        """Who has said nothing for too long, and how that is put."""
        late = [member for member in fetching if now >= self._heard[member] + FETCH_SILENCE_S]
        return dict.fromkeys(late, "neither fetched nor loaded anything any more")
