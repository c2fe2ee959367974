"""Finding and keeping the best path to one peer, by authenticated STUN checks, without I/O or clock.

Both ends send checks to each other's candidates at once, which opens the NATs in front of them (RFC 8445, with one
component and one socket, so a pair is just the peer's address). An address counts only when *our* check to it was
answered. The dialler prefers the highest priority, nominates it with a rising number, and repeats the check while the
link lives: that keeps NAT bindings open, measures the round trip, and shows when a path has died. The listener follows
the nomination, also to a new address of the dialler behind a NAT that rebound.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from aioice.stun import Message

from sidecar.net import stun
from sidecar.net.candidates import LARGEST_LOCAL, PEER_REFLEXIVE, RELAYED, Address, Candidate, priority
from sidecar.net.errors import BadDatagram
from sidecar.net.pathsize import PathSize

Datagram = tuple[bytes, Address]

FIRST_RETRY_S = 0.1
LARGEST_RETRY_S = 0.8
KEEP_S = 1.0  # how often the path in use is checked; NATs hold UDP for 30 s and more (RFC 4787 REQ-5)
FAILING_CHECKS = 3  # a path with this many unanswered checks in a row gives way to another that answers
STALE_S = 3.0  # after this long without an answer every address is checked again
SEARCH_S = 10.0  # how long such a search goes on at addresses that don't answer
MAX_CHECKED = 64  # addresses of one peer at once
MAX_LEARNT = 8  # of these, learnt from authenticated requests
_OPEN_TRANSACTIONS = 8  # of one address: more retransmissions than this are forgotten unanswered
_RTT_SAMPLES = 8
_LEARNT_PRIORITY = priority(PEER_REFLEXIVE, LARGEST_LOCAL)


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
    samples_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RTT_SAMPLES))

    @property
    def rtt_s(self) -> float | None:
        """The least of the latest round trips: what the path takes when neither end is busy."""
        return min(self.samples_s, default=None)

    @property
    def is_alive(self) -> bool:
        return self.answered_at is not None and len(self.open) < FAILING_CHECKS

    def describe(self) -> str:
        if self.answered_at is not None:
            return f"{self.target[0]} port {self.target[1]} ({self.kind}): answered"
        return f"{self.target[0]} port {self.target[1]} ({self.kind}): {self.sent} checks, no answer"


class Punch:
    """The checks between this node and one peer.

    `dials` is true at the end with the lower fingerprint. `transactions` gives 12 fresh random bytes. Retransmission
    to addresses that never answered ends at `until`; `search` starts it again. `sizes` are the datagram sizes to try.
    """

    def __init__(
        self,
        *,
        secret: stun.PairSecret,
        dials: bool,
        until: float,
        transactions: Callable[[], bytes],
        sizes: Sequence[int] = (),
    ) -> None:
        self.secret = secret
        self.selected: Check | None = None
        self._dials = dials
        self._role, self._peer_role = (stun.DIALLER, stun.LISTENER) if dials else (stun.LISTENER, stun.DIALLER)
        self._size = PathSize((), 0.0)
        self._sizes = sizes
        self._until = until
        self._transactions = transactions
        self._checks: dict[Address, Check] = {}
        self._nomination = 0  # the last number sent (dialler) or taken (listener)
        self._nominated: Address | None = None

    def add(self, candidates: Iterable[Candidate], now: float) -> list[Datagram]:
        """Takes (further) candidates of the peer; those known already are left as they are."""
        for candidate in candidates:
            self._checked(candidate.target, candidate.kind, candidate.priority, now)
        return self.handle_timer(now)

    def receive(self, message: Message, source: Address, now: float) -> list[Datagram]:
        """Takes one STUN message for this pair; raises BadDatagram for one that its peer can't have sent."""
        if not message.check_message_integrity(self.secret.key):
            raise BadDatagram(f"a STUN message from {source[0]} is not signed with this pair's key")
        if stun.is_request(message):
            return self._requested(message, source, now)
        if stun.is_answer(message):
            return self._answered(message, source, now)
        raise BadDatagram(f"a STUN message from {source[0]} is neither check nor answer")

    def awaits(self, transaction: bytes) -> bool:
        """Whether this is a transaction of ours that has no answer yet."""
        return self._size.awaits(transaction) or any(transaction in check.open for check in self._checks.values())

    def next_timer(self) -> float | None:
        """When `handle_timer` is due; None when nothing is left to do."""
        timers = (self._size.next_timer(), *(check.due for check in self._checks.values()))
        return min((at for at in timers if at is not None), default=None)

    def handle_timer(self, now: float) -> list[Datagram]:
        """The checks that are due."""
        if self._is_stale(now):
            self._until = now + SEARCH_S
            self._restart(now)
        if self.selected is not None and not self.selected.is_alive:
            self._choose(now)
        due = [check for check in self._checks.values() if check.due is not None and check.due <= now]
        return [self._send(check, now) for check in due] + self._probe(now)

    def search(self, now: float, until: float) -> list[Datagram]:
        """Checks every address again, until `until`: after a change of the network, or to better a relayed path."""
        self._until = until
        self._restart(now)
        return self.handle_timer(now)

    @property
    def datagram_bytes(self) -> int:
        """What the path in use is known to carry."""
        return self._size.size_bytes

    def describe(self) -> str:
        """What was tried and what came of it, for people."""
        return "; ".join(check.describe() for check in self._checks.values()) or "no candidate of it is known"

    def _checked(self, target: Address, kind: str, priority_: int, now: float) -> Check | None:
        """The check for an address, made if there is room."""
        known = self._checks.get(target)
        if known is None and len(self._checks) < MAX_CHECKED:
            known = self._checks[target] = Check(target, kind, priority_, due=now)
        return known

    def _requested(self, message: Message, source: Address, now: float) -> list[Datagram]:
        if stun.sender_role(message) != self._peer_role:
            raise BadDatagram(f"a check from {source[0]} is our own, sent back")
        check = self._checks.get(source) or self._learn(message, source, now)
        out = [(stun.answer(self.secret, message, source), source)]
        if check is None:
            return out
        self._follow(message, source)
        if check.answered_at is None:
            check.due = now  # a triggered check, RFC 8445 section 7.3.1.4
        self._choose(now)
        return out + self.handle_timer(now)

    def _learn(self, message: Message, source: Address, now: float) -> Check | None:
        """A peer-reflexive address (RFC 8445 section 7.3.1.3); of many, one that is not in use makes room."""
        learnt = [check for check in self._checks.values() if check.kind == PEER_REFLEXIVE]
        if len(learnt) >= MAX_LEARNT:
            spare = [check for check in learnt if check is not self.selected]
            del self._checks[min(spare, key=lambda check: check.answered_at is not None).target]
        asked = min(message.attributes.get("PRIORITY", 0), _LEARNT_PRIORITY)
        return self._checked(source, PEER_REFLEXIVE, asked, now)

    def _follow(self, message: Message, source: Address) -> None:
        number = message.attributes.get("ICE-CONTROLLING")
        if "USE-CANDIDATE" in message.attributes and number is not None and number > self._nomination:
            self._nomination, self._nominated = number, source

    def _answered(self, message: Message, source: Address, now: float) -> list[Datagram]:
        check = self._checks.get(source)
        if check is self.selected and self._size.awaits(message.transaction_id):
            self._size.answered(message.transaction_id)
            return []
        sent_at = check.open.get(message.transaction_id) if check else None
        if check is None or sent_at is None:
            raise BadDatagram(f"an answer from {source[0]} to nothing that was asked there")
        if check is self.selected:
            self._size.kept(padded=message.transaction_id == next(iter(check.open)))
        check.samples_s.append(now - sent_at)
        check.answered_at, check.due, check.interval_s = now, None, FIRST_RETRY_S
        check.open.clear()
        self._choose(now)
        return self.handle_timer(now)

    def _choose(self, now: float) -> None:
        """Selects the path: the dialler the best that answers, the listener the nominated one once it answered."""
        before = self.selected
        if self._dials:
            alive = [check for check in self._checks.values() if check.is_alive]
            self.selected = max(alive, key=lambda check: check.priority, default=before)
        else:
            nominated = self._checks.get(self._nominated) if self._nominated else None
            self.selected = nominated if nominated and nominated.is_alive else before
        if self.selected is None:
            return
        if self.selected is not before:
            self._size = PathSize(() if self.selected.kind == RELAYED else self._sizes, now)
        if self._dials and self.selected is not before:
            self.selected.due = now  # tells the listener at once
        elif self.selected.due is None:
            self.selected.due = now + KEEP_S

    def _is_stale(self, now: float) -> bool:
        selected = self.selected
        return selected is not None and selected.answered_at is not None and now - selected.answered_at > STALE_S

    def _restart(self, now: float) -> None:
        """Every address starts over; the path in use stays in use until another answers."""
        for check in self._checks.values():
            check.answered_at, check.due, check.interval_s, check.sent = None, now, FIRST_RETRY_S, 0

    def _send(self, check: Check, now: float) -> Datagram:
        transaction = self._transactions()
        is_padded = check is self.selected and not check.open
        check.open[transaction] = now
        if len(check.open) > _OPEN_TRANSACTIONS:
            check.open.popitem(last=False)
        check.sent += 1
        check.due = now + check.interval_s
        check.interval_s = min(check.interval_s * 2, LARGEST_RETRY_S)
        if check is not self.selected and check.due > self._until:
            check.due = None
        number = None
        if self._dials and check is self.selected:
            number = self._nomination = self._nomination + 1
        size_bytes = self._size.size_bytes if is_padded else 0
        request = stun.request(self.secret, self._role, _LEARNT_PRIORITY, transaction, number, size_bytes)
        return request, check.target

    def _probe(self, now: float) -> list[Datagram]:
        """The probes of the selected path's size that are due."""
        out: list[Datagram] = []
        if self.selected is None:
            return out
        for size_bytes in self._size.handle_timer(now):
            transaction = self._transactions()
            self._size.sent(transaction, size_bytes)
            request = stun.request(self.secret, self._role, _LEARNT_PRIORITY, transaction, None, size_bytes)
            out.append((request, self.selected.target))
        return out
