"""Who may connect, and whose connection has to end. No I/O, no clock.

gRPC accepts whatever comes, and takes from each connection as much as it sends. So each connection is a visitor here:
counted by address before gRPC hears of it, ended when it is silent, calls nothing, or sends what no call takes.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from kafila_rendezvous.address import limited
from kafila_rendezvous.config import RendezvousLimits
from kafila_rendezvous.errors import LimitReached
from kafila_rendezvous.pace import Pace
from kafila_rendezvous.places import Places

SWEEP_EVERY_S = 1.0
CALL_BYTES = 1024  # what a call takes on the way beside its message: headers, frames, TLS records
_SENT_SHARE = 16  # so much of what is sent to a visitor comes back as windows and acknowledgements at most
_MOST_REFUSALS = 200  # calls over the pace, then the connection ends
_LEAST_PER_ADDRESS = 16


@dataclass(slots=True, eq=False)
class Visitor:
    """One connection. `owed` is what it sent and no call has taken yet, in bytes."""

    host: str
    owner: str
    entered_at: float
    has_spoken: bool = False
    has_called: bool = False
    attends: int = 0  # mailboxes
    owed: int = 0
    owes_since: float | None = None  # more than it may
    refusals: int = 0


class Door:
    """`most` connections fit into the process' descriptors, whatever the limits allow."""

    def __init__(self, limits: RendezvousLimits, *, most: int, entries: Pace, calls: Pace) -> None:
        self._limits = limits
        self._entries = entries
        self._calls = calls
        self._most = min(limits.connections, most)
        per_address = min(limits.connections_per_address, max(self._most // 4, _LEAST_PER_ADDRESS))
        self._places = Places(self._most, per_address, "connections")
        self._unattending: OrderedDict[Visitor, None] = OrderedDict()  # the oldest first
        self._attending: set[Visitor] = set()
        self._owed = 0
        self._strangers: Counter[str] = Counter()  # connections that have not called yet, by address

    def __len__(self) -> int:
        return self._places.taken

    def enter(self, host: str, now: float) -> Visitor:
        """Raises LimitReached when this address, or everybody, has to stay outside."""
        owner = limited(host)
        if not self._entries.allows(owner, now):
            raise LimitReached("connections come too fast from your address: wait a minute")
        self._places.check(owner)
        is_crowded = self._strangers.total() >= self._limits.strangers_at_once
        if is_crowded and self._strangers[owner] >= self._limits.strangers_per_address:
            raise LimitReached("too many connections begin at once: try again in a moment")
        self._places.take(owner)
        self._strangers[owner] += 1
        visitor = Visitor(host, owner, now)
        self._unattending[visitor] = None
        return visitor

    def dispensable(self) -> Visitor | None:
        """Who has to go for others when hardly a place is left: the oldest that attends nothing."""
        if self._places.taken < self._most - self._most // 4:
            return None
        return next(iter(self._unattending), None)

    def leave(self, visitor: Visitor) -> None:
        self._is_known(visitor)
        self._places.give_back(visitor.owner)
        self._unattending.pop(visitor, None)
        self._attending.discard(visitor)
        self._owed -= visitor.owed
        visitor.owed = 0

    # ---- What visitors do

    def heard(self, visitor: Visitor, size: int, now: float) -> bool:
        """Bytes came; false when no more is to be read until `called` or `answered`."""
        visitor.has_spoken = True
        visitor.owed += size
        self._owed += size
        if self.owes_too_much(visitor) and visitor.owes_since is None:
            visitor.owes_since = now
        return visitor.owes_since is None

    def answered(self, visitor: Visitor, size: int) -> None:
        """Bytes went to it."""
        self._forgive(visitor, size // _SENT_SHARE)

    def called(self, visitor: Visitor, size: int, now: float) -> None:
        """A call of `size` bytes came whole. Raises LimitReached when its address calls too often."""
        self.took(visitor, size)
        self._is_known(visitor)
        if not self._calls.allows(visitor.owner, now):
            visitor.refusals += 1
            raise LimitReached("calls come too fast from your address: wait a little")

    def took(self, visitor: Visitor, size: int) -> None:
        """A call has taken a message of `size` bytes."""
        self._forgive(visitor, size + CALL_BYTES)

    def attends(self, visitor: Visitor, change: int) -> None:
        """It attends one mailbox more or less; who attends one is not dispensable."""
        visitor.attends += change
        if visitor.attends:
            self._unattending.pop(visitor, None)
            self._attending.add(visitor)
        elif visitor in self._attending:
            self._attending.discard(visitor)
            self._unattending[visitor] = None

    def owes_too_much(self, visitor: Visitor) -> bool:
        return visitor.owed > self._limits.owed_bytes_per_connection

    # ---- Who has to go

    def overdrawn(self) -> Visitor | None:
        """Who owes most, when all together owe too much."""
        if self._owed <= self._limits.owed_bytes_in_all:
            return None
        return max(self._visitors(), key=lambda visitor: visitor.owed)

    def overdue(self, now: float) -> list[Visitor]:
        """Those whose time is up; to be asked every `SWEEP_EVERY_S`."""
        return [visitor for visitor in self._visitors() if self._is_overdue(visitor, now)]

    def _is_overdue(self, visitor: Visitor, now: float) -> bool:
        limits, age_s = self._limits, now - visitor.entered_at
        return (
            (not visitor.has_spoken and age_s > limits.first_bytes_s)
            or (not visitor.has_called and age_s > limits.first_call_s)
            or (visitor.owes_since is not None and now - visitor.owes_since > limits.send_deadline_s)
            or visitor.refusals > _MOST_REFUSALS
        )

    def _is_known(self, visitor: Visitor) -> None:
        """It has called, or never will."""
        if not visitor.has_called:
            visitor.has_called = True
            self._strangers[visitor.owner] -= 1
            if not self._strangers[visitor.owner]:
                del self._strangers[visitor.owner]

    def _visitors(self) -> Iterable[Visitor]:
        yield from self._unattending
        yield from self._attending

    def _forgive(self, visitor: Visitor, size: int) -> None:
        less = min(size, visitor.owed)
        visitor.owed -= less
        self._owed -= less
        if not self.owes_too_much(visitor):
            visitor.owes_since = None
