"""Finding and keeping the best path to one peer, by authenticated STUN checks, without I/O or clock.

Both ends send checks to each other's candidates at once, which opens the NATs in front of them (RFC 8445, with one
component and one socket, so a pair is just the peer's address). An address counts only when *our* check to it was
answered. The dialler prefers the highest priority, nominates it with a rising number, and repeats the check while the
link lives: that keeps NAT bindings open, measures the round trip, and shows when a path has died. The listener follows
the nomination, also to a new address of the dialler behind a NAT that rebound.

The relayed candidate is the node's own channel at the relay (`relay.client`), not announced by the peer. It is chosen
when direct paths had their chance, and looked behind from then on (`search`).
"""

from collections.abc import Callable, Sequence

from aioice.stun import Message

from kafila_sidecar.net import stun
from kafila_sidecar.net.candidates import LARGEST_LOCAL, PEER_REFLEXIVE, RELAYED, Address, Candidate, priority
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.link.check import DOUBTED_CHECKS, Check
from kafila_sidecar.net.link.pathsize import PathSize
from kafila_sidecar.net.link.search import BURST_S, SearchSchedule

Datagram = tuple[bytes, Address]

KEEP_S = 1.0  # how often the path in use is checked; NATs hold UDP for 30 s and more (RFC 4787 REQ-5)
PATIENCE_S = 0.35  # direct checks go out at 0, 0.1 and 0.3 s; the answer takes a round trip more
SEARCH_S = 15.0  # how long every address is checked when the path has died: as long as QUIC waits
SEARCH_AGAIN_S = 3.0  # before that starts anew
MAX_CHECKED = 64  # addresses of one peer at once
MAX_LEARNT = 8  # of these, learnt from authenticated requests
LEARNT_TRIES = 5  # at 10 % loss each way one address in 4,000 is missed
LEARNT_PER_S = 1.0  # two NATs that map by destination show each other new addresses without end
_LEARNT_PRIORITY = priority(PEER_REFLEXIVE, LARGEST_LOCAL)


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
        self._search = SearchSchedule()
        self._started_over_at = 0.0
        self._began: float | None = None  # when the first candidates were known
        self._learnable, self._learnable_at = float(MAX_LEARNT), 0.0  # what may be learnt now, and when that was so
        self._checks: dict[Address, Check] = {}
        self._chosen_at = 0.0
        self._is_silent = False  # news for `take_silence`
        self._is_back = False  # and for `take_return`
        self._nomination = 0  # the last number sent (dialler) or taken (listener)
        self._nominated: Address | None = None

    def know(self, candidates: Sequence[Candidate], now: float) -> list[Datagram]:
        """The peer's candidates are these now: new ones are checked, others forgotten unless learnt or in use."""
        if self._began is None:
            self._began = now
        wanted = {candidate.target for candidate in candidates}
        for target, check in list(self._checks.items()):
            if target not in wanted and check.kind != PEER_REFLEXIVE and check is not self.selected:
                del self._checks[target]
        if self.selected is not None and not wanted <= self._checks.keys():
            self._until = max(self._until, now + SEARCH_S)
        for candidate in candidates:
            self._checked(candidate.target, candidate.kind, candidate.priority, now)
        return self.handle_timer(now)

    def heard_from(self, source: Address, now: float) -> list[Datagram]:
        """The peer's QUIC came from this address: if it is a new one, a NAT has rebound, and it is checked at once."""
        if source in self._checks:
            return []
        self._learn(_LEARNT_PRIORITY, source, now)
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

    def knows(self, source: Address) -> bool:
        """Whether the peer announced this address, or a check that it signed came from there."""
        return source in self._checks

    def awaits(self, transaction: bytes) -> bool:
        """Whether this is a transaction of ours that has no answer yet."""
        return self._size.awaits(transaction) or any(transaction in check.open for check in self._checks.values())

    def next_timer(self) -> float | None:
        """When `handle_timer` is due; None when nothing is left to do."""
        timers = [self._size.next_timer(), self._search.next_timer(), *(check.due for check in self._checks.values())]
        if self._dials and self.selected is None:
            timers += [self._choosable_at(check) for check in self._checks.values() if check.is_alive]
        return min((at for at in timers if at is not None), default=None)

    def handle_timer(self, now: float) -> list[Datagram]:
        """The checks that are due."""
        if self._search.take(now):
            self._start_over(now, now + BURST_S)
        if self.selected is None or not self.selected.is_alive:
            self._choose(now)
        if self._has_failed(now):
            self._start_over(now, now + SEARCH_S)
            self._is_silent = True
        due = [check for check in self._checks.values() if check.due is not None and check.due <= now]
        return [self._send(check, now) for check in due] + self._probe(now)

    def search(self, now: float) -> list[Datagram]:
        """Checks every address again: this node's network has changed. The path in use stays while it answers."""
        self._start_over(now, now + SEARCH_S)
        if self.selected is not None:
            self.selected.due = now
            if self.selected.kind == RELAYED:
                self._search.start(now)
        return self.handle_timer(now)

    def reached_anew(self, target: Address, now: float) -> list[Datagram]:
        """Datagrams to this address take another way from now on, so that it is worth a try."""
        if check := self._checks.get(target):
            check.hasten(now) if check is self.selected else check.start_over(now)
        return self.handle_timer(now)

    def take_silence(self) -> bool:
        """Whether checks of the path in use got no answer; told again as long as nothing answers anywhere."""
        is_news, self._is_silent = self._is_silent, False
        return is_news

    def take_return(self) -> bool:
        """Whether a path in use that had been silent has answered."""
        is_news, self._is_back = self._is_back, False
        return is_news

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
        asked = min(message.attributes.get("PRIORITY", 0), _LEARNT_PRIORITY)
        check = self._checks.get(source) or self._learn(asked, source, now)
        out = [(stun.answer(self.secret, message, source), source)]
        if check is None:
            return out
        self._follow(message, source)
        is_unanswered = check.answered_at is None or (check is self.selected and not check.is_alive)
        if is_unanswered and not _is_spent(check):
            check.due = now  # a triggered check, RFC 8445 section 7.3.1.4
        self._choose(now)
        return out + self.handle_timer(now)

    def _learn(self, priority_: int, source: Address, now: float) -> Check | None:
        """A peer-reflexive address (RFC 8445 section 7.3.1.3); of many, one that is not in use makes room."""
        self._learnable = min(MAX_LEARNT, self._learnable + (now - self._learnable_at) * LEARNT_PER_S)
        self._learnable_at = now
        if self._learnable < 1:
            return None
        self._learnable -= 1
        learnt = [check for check in self._checks.values() if check.kind == PEER_REFLEXIVE]
        if len(learnt) >= MAX_LEARNT:
            spare = [check for check in learnt if check is not self.selected]
            del self._checks[min(spare, key=lambda check: check.answered_at is not None).target]
        return self._checked(source, PEER_REFLEXIVE, priority_, now)

    def _follow(self, message: Message, source: Address) -> None:
        number = message.attributes.get("ICE-CONTROLLING")
        if "USE-CANDIDATE" in message.attributes and number is not None and number > self._nomination:
            self._nomination, self._nominated = number, source

    def _answered(self, message: Message, source: Address, now: float) -> list[Datagram]:
        check = self._checks.get(source)
        if check is self.selected and self._size.awaits(message.transaction_id):
            self._size.answered(message.transaction_id)
            return []
        if check is None or message.transaction_id not in check.open:
            raise BadDatagram(f"an answer from {source[0]} to nothing that was asked there")
        if check is self.selected:
            self._size.kept(padded=message.transaction_id == next(iter(check.open)))
            self._is_back = self._is_back or len(check.open) >= DOUBTED_CHECKS
        check.answered(message.transaction_id, now)
        self._choose(now)
        return self.handle_timer(now)

    def _choose(self, now: float) -> None:
        """Selects the path: the dialler the best that answers, the listener the nominated one once it answered."""
        before = self.selected
        if self._dials:
            self.selected = max(self._choosable(now), key=lambda check: check.priority, default=before)
        else:
            nominated = self._checks.get(self._nominated) if self._nominated else None
            self.selected = nominated if nominated and nominated.is_alive else before
        if self.selected is not None and self.selected is not before:
            if before is not None and not before.is_alive:
                before.gave_way(now - self._chosen_at)
            self._start_path(self.selected, now)
        elif self.selected is not None and self.selected.due is None:
            self.selected.due = now + KEEP_S

    def _choosable(self, now: float) -> list[Check]:
        """What answers, and has shown enough of it while something else can be used."""
        known = [check for check in self._checks.values() if check.is_alive and now >= self._choosable_at(check)]
        return [check for check in known if check is self.selected or check.is_choosable] or known

    def _choosable_at(self, check: Check) -> float:
        """The relayed path is not taken before direct ones had their chance."""
        if check.kind != RELAYED or self.selected is not None or self._began is None:
            return 0.0
        return self._began + PATIENCE_S + (check.rtt_s or 0.0)

    def _start_path(self, selected: Check, now: float) -> None:
        self._chosen_at = now
        is_relayed = selected.kind == RELAYED
        self._size = PathSize(() if is_relayed else self._sizes, now)
        if is_relayed:
            self._search.start(now)
        else:
            self._search.stop(now)
        if self._dials:
            selected.due = now  # tells the listener at once
        elif selected.due is None:
            selected.due = now + KEEP_S

    def _has_failed(self, now: float) -> bool:
        """The path in use does not answer, none that does could be taken, and that was not so a moment ago."""
        return (
            self.selected is not None and not self.selected.is_alive and now - self._started_over_at >= SEARCH_AGAIN_S
        )

    def _start_over(self, now: float, until: float) -> None:
        """Checks every address anew, except the one in use."""
        self._started_over_at, self._until = now, max(self._until, until)
        for check in self._checks.values():
            if check is not self.selected:
                check.start_over(now)

    def _send(self, check: Check, now: float) -> Datagram:
        transaction = self._transactions()
        is_padded = check is self.selected and not check.open
        check.went_out(transaction, now)
        self._is_silent |= check is self.selected and len(check.open) == DOUBTED_CHECKS
        if check is not self.selected and self._is_enough(check):
            check.due = None
        number = None
        if self._dials and check is self.selected:
            number = self._nomination = self._nomination + 1
        size_bytes = self._size.size_bytes if is_padded else 0
        request = stun.request(self.secret, self._role, _LEARNT_PRIORITY, transaction, number, size_bytes)
        return request, check.target

    def _is_enough(self, check: Check) -> bool:
        return _is_spent(check) or check.due is None or check.due > self._until

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


def _is_spent(check: Check) -> bool:
    """A learnt address lets our checks in at once or never: what comes from it shows that the way is open."""
    return check.kind == PEER_REFLEXIVE and check.sent >= LEARNT_TRIES
