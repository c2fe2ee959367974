"""How one channel reaches its relay: by UDP, or in the stream as long as UDP brings nothing back. No I/O, no clock.

Each end judges its own way to the relay, so an outage of UDP in one direction counts as well: a request has to come
through and its answer too.
"""

from enum import Enum, auto

FIRST_PATIENCE_S = 1.5  # for the relay's first answer by UDP on this network
PATIENCE_S = 1.0  # for its answer once a link's path has gone silent: the request goes out three times meanwhile
PROBE_S = 1.0  # between two probes by UDP while they are answered, or while the stream brings nothing either
LARGEST_PROBE_S = 10.0
PROOFS = 3  # probes in a row that have to be answered before UDP is believed again
MOST_PROOFS = 48
STEADY_S = 60.0  # whoever falls back sooner than this after UDP's return wants twice the proofs next time


class Due(Enum):
    """What is due."""

    NOTHING = auto()
    FALL_BACK = auto()  # to the stream
    PROBE = auto()  # by UDP, beside the stream


class Carriage:
    """One channel's. `by_stream` says how its datagrams go now."""

    def __init__(self, *, by_stream: bool, now: float) -> None:
        self.by_stream = by_stream
        self._is_doubted = True  # nothing has come back on the way in use
        self._answer_until: float | None = None
        self._probe_at: float | None = None
        self._probe_pause_s = PROBE_S
        self._is_probing = False
        self._proofs, self._wanted = 0, PROOFS
        self._returned_at: float | None = None
        if by_stream:
            self._begin_probing(now)
        else:
            self._answer_until = now + FIRST_PATIENCE_S

    def start_over(self, now: float) -> None:
        """Another network: UDP may work here."""
        self.by_stream, self._is_doubted = False, True
        self._answer_until, self._probe_at = now + FIRST_PATIENCE_S, None
        self._wanted, self._returned_at = PROOFS, None

    def doubt(self, now: float) -> bool:
        """A link hears nothing on its path; whether the relay should be asked at once."""
        is_new, self._is_doubted = not self._is_doubted, True
        if self.by_stream:
            self._probe_pause_s = PROBE_S
            self._probe_at = min(self._probe_at or now, now + PROBE_S)
        elif self._answer_until is None:
            self._answer_until = now + PATIENCE_S
        return is_new

    def heard(self) -> None:
        """The relay answered on the way in use."""
        self._is_doubted, self._answer_until = False, None

    def proved(self, now: float) -> bool:
        """The relay answered a probe by UDP; true when the channel goes by UDP from now on."""
        if not self.by_stream or not self._is_probing:
            return False
        self._is_probing, self._probe_pause_s = False, PROBE_S
        self._probe_at = now + PROBE_S
        self._proofs += 1
        if self._proofs < self._wanted and not self._is_doubted:
            return False
        self.by_stream, self._returned_at = False, now
        self._answer_until, self._probe_at = now + PATIENCE_S, None
        return True

    def next_timer(self) -> float | None:
        """When `handle_timer` is due."""
        return self._probe_at if self.by_stream else self._answer_until

    def handle_timer(self, now: float) -> Due:
        due = self.next_timer()
        if due is None or now < due:
            return Due.NOTHING
        if not self.by_stream:
            self._fall_back(now)
            return Due.FALL_BACK
        self._note_missed_probe()
        self._is_probing, self._probe_at = True, now + self._probe_pause_s
        return Due.PROBE

    # ---- Private

    def _fall_back(self, now: float) -> None:
        was_brief = self._returned_at is not None and now - self._returned_at < STEADY_S
        self._wanted = min(2 * self._wanted, MOST_PROOFS) if was_brief else PROOFS
        self.by_stream, self._is_doubted, self._answer_until = True, True, None
        self._begin_probing(now)

    def _begin_probing(self, now: float) -> None:
        self._proofs, self._is_probing, self._probe_pause_s = 0, False, PROBE_S
        self._probe_at = now + PROBE_S

    def _note_missed_probe(self) -> None:
        """The last one was not answered; nobody hurries unless the stream is silent too."""
        if self._is_probing:
            self._proofs = 0
            self._probe_pause_s = PROBE_S if self._is_doubted else min(2 * self._probe_pause_s, LARGEST_PROBE_S)
