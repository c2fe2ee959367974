"""One mailbox: what waits in it, and which stream attends it."""

from collections import deque
from dataclasses import dataclass

from kafila_rendezvous.config import RendezvousLimits
from kafila_rendezvous.errors import LimitReached, Superseded

EVENT_BYTES = 64  # charged for an event beside its body


@dataclass(frozen=True, slots=True)
class Present:
    """First event of a stream: the other mailboxes that are attended."""

    mailboxes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arrived:
    """A mailbox is attended from now on."""

    mailbox: int


@dataclass(frozen=True, slots=True)
class Departed:
    """A mailbox's stream ended, or its owner gave it up."""

    mailbox: int


@dataclass(frozen=True, slots=True)
class Mail:
    """One message from another mailbox of the room."""

    sender: int
    body: bytes


Event = Present | Arrived | Departed | Mail


@dataclass(slots=True)
class MailBudget:
    """Bytes that all mailboxes of a server hold together."""

    limit: int
    held: int = 0


class RoomMailbox:
    """A bounded queue. Mail waits while nobody attends; news of others' coming and going does not."""

    def __init__(self, secret: bytes, limits: RendezvousLimits, budget: MailBudget) -> None:
        self.secret = secret
        self.stream: int | None = None  # the stream that attends
        self._limits = limits
        self._budget = budget
        self._queue: deque[Event] = deque()
        self._held = 0
        self._overrun = False

    @property
    def attended(self) -> bool:
        return self.stream is not None

    def attend(self, stream: int, others: tuple[int, ...]) -> None:
        """A new stream takes over; old news goes, old mail stays, and `Present` comes first."""
        self.stream = stream
        self._overrun = False
        mail = [event for event in self._empty() if isinstance(event, Mail)]
        self._put(Present(others))
        for event in mail:
            self._put(event)

    def put_mail(self, mail: Mail) -> bool:
        """False when it does not fit."""
        size = _size(mail)
        fits = (
            len(self._queue) < self._limits.queued_events
            and self._held + size <= self._limits.queued_bytes
            and self._budget.held + size <= self._budget.limit
        )
        if fits:
            self._put(mail)
        return fits

    def put_news(self, event: Arrived | Departed) -> None:
        """News for who attends; a reader too slow for it loses its stream and starts again with `Present`."""
        if not self.attended:
            return
        if len(self._queue) >= self._limits.queued_events:
            self._overrun = True
        else:
            self._put(event)

    def take(self, stream: int) -> list[Event]:
        """All that waits. Raises Superseded for an old stream, LimitReached for one that fell behind."""
        if stream != self.stream:
            raise Superseded("a newer stream attends this mailbox")
        if self._overrun:
            raise LimitReached("this stream fell too far behind: attend again")
        return self._empty()

    def close(self) -> None:
        """Nobody will take what waits."""
        self._empty()

    def _put(self, event: Event) -> None:
        self._queue.append(event)
        self._held += _size(event)
        self._budget.held += _size(event)

    def _empty(self) -> list[Event]:
        events = list(self._queue)
        self._queue.clear()
        self._budget.held -= self._held
        self._held = 0
        return events


def _size(event: Event) -> int:
    return EVENT_BYTES + (len(event.body) if isinstance(event, Mail) else 0)
