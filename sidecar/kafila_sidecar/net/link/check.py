"""What is known of one address of a peer: the checks sent there, and what came of them. No I/O."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from kafila_sidecar.net.candidates import RELAYED, Address

FIRST_RETRY_S = 0.1
LARGEST_RETRY_S = 0.8
DOUBTED_CHECKS = 2  # unanswered in a row on the path in use: others learn that nothing comes back on it
FAILING_CHECKS = 3  # a path with this many unanswered checks in a row gives way to another that answers
STEADY_S = 10.0  # a path that gave way sooner than this after it was chosen has to show more before it is again
MOST_PROOFS = 8
PROOF_PAUSE_S = 0.5  # between two checks whose answers are such proofs
_OPEN_TRANSACTIONS = 8  # of one address: more retransmissions than this are forgotten unanswered
_RTT_SAMPLES = 8


@dataclass(slots=True)
class Check:
    """The state of our checks to one address of the peer."""

    target: Address
    kind: str
    priority: int
    due: float | None  # when the next check goes out; None when there is none
    interval_s: float = FIRST_RETRY_S
    sent: int = 0
    open: OrderedDict[bytes, float] = field(default_factory=OrderedDict)  # transaction -> when it was sent
    answered_at: float | None = None
    proofs: int = 0  # answers in a row since it last failed
    wanted: int = 1  # of these, before it may be chosen
    samples_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RTT_SAMPLES))

    @property
    def rtt_s(self) -> float | None:
        """The least of the latest round trips: what the path takes when neither end is busy."""
        return min(self.samples_s, default=None)

    @property
    def is_alive(self) -> bool:
        return self.answered_at is not None and len(self.open) < FAILING_CHECKS

    @property
    def is_choosable(self) -> bool:
        return self.is_alive and self.proofs >= self.wanted

    def gave_way(self, used_s: float) -> None:
        """It was in use for so long and answers no more: who comes and goes is believed later and later."""
        self.wanted = min(2 * self.wanted, MOST_PROOFS) if used_s < STEADY_S else 1
        self.proofs = 0

    def went_out(self, transaction: bytes, now: float) -> None:
        """A check is on its way; the next one is planned, unless this one is answered before."""
        if self.open:
            self.proofs = 0
        self.open[transaction] = now
        if len(self.open) > _OPEN_TRANSACTIONS:
            self.open.popitem(last=False)
        self.sent += 1
        self.due = now + self.interval_s
        self.interval_s = min(self.interval_s * 2, LARGEST_RETRY_S)

    def answered(self, transaction: bytes, now: float) -> None:
        """An answer to one of the checks on their way."""
        self.samples_s.append(now - self.open[transaction])
        self.proofs += 1
        self.answered_at, self.due = now, None
        self.interval_s = self._first_retry_s()
        self.open.clear()
        if self.proofs < self.wanted:
            self.due = now + PROOF_PAUSE_S

    def hasten(self, now: float) -> None:
        """The next check goes out at once, and the ones after it quickly."""
        self.due, self.interval_s = now, self._first_retry_s()

    def start_over(self, now: float) -> None:
        """From now on it counts as if nothing had been tried."""
        self.answered_at, self.due, self.sent, self.proofs = None, now, 0, 0
        self.interval_s = self._first_retry_s()
        self.open.clear()

    def describe(self) -> str:
        """What was tried here and what came of it, for people."""
        where = "by way of the relay" if self.kind == RELAYED else f"{self.target[0]} port {self.target[1]}"
        if self.answered_at is not None:
            return f"{where} ({self.kind}): answered"
        return f"{where} ({self.kind}): {self.sent} checks, no answer"

    def _first_retry_s(self) -> float:
        """Not before an answer can be there: else a long path would look dead between check and answer."""
        return min(max(FIRST_RETRY_S, 1.5 * (self.rtt_s or 0.0)), LARGEST_RETRY_S)
