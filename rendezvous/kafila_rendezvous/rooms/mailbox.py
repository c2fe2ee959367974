"""One mailbox: what waits in it, and which stream attends it."""

from collections import deque

from kafila_rendezvous.config import RendezvousLimits
from kafila_rendezvous.errors import LimitReached, Superseded
from kafila_rendezvous.rooms.budget import MailBudget, PostedMail
from kafila_rendezvous.rooms.events import EVENT_BYTES, Arrived, Departed, Event, Present

News = Present | Arrived | Departed


class RoomMailbox:
    """A bounded queue. Mail waits while nobody attends; news of others' coming and going does not.

    What a stream is sending stays at the queue's front, and in every account, until it was sent.
    """

    def __init__(self, secret: bytes, owner: str, limits: RendezvousLimits, budget: MailBudget) -> None:
        self.secret = secret
        self.opener = owner  # whose address the limits count it for
        self.owner = owner  # whose address what it posts, and does not read, counts for: who attends it
        self.stream: int | None = None  # the stream that attends
        self._limits = limits
        self._budget = budget
        self._queue: deque[PostedMail | News] = deque()
        self._held = 0
        self._overrun = False

    @property
    def attended(self) -> bool:
        return self.stream is not None

    def attend(self, stream: int, owner: str, others: tuple[int, ...]) -> None:
        """A new stream takes over; old news goes, old mail stays, and `Present` comes first."""
        letters, before = deque[PostedMail | News](), self._queue
        for waiting in before:
            if isinstance(waiting, PostedMail):
                letters.append(waiting)
            else:
                self._release(waiting)
        self.stream, self.owner = stream, owner
        self._overrun = False
        self._queue = letters
        self._hold(Present(others), first=True)

    def put_mail(self, letter: PostedMail) -> bool:
        """False when it does not fit."""
        fits = (
            len(self._queue) < self._limits.queued_events
            and self._held + _size(letter) <= self._limits.queued_bytes
            and self._budget.has_room(letter)
        )
        if fits:
            self._hold(letter)
        return fits

    def put_news(self, event: Arrived | Departed) -> None:
        """News for who attends; a reader too slow for it loses its stream and starts again with `Present`."""
        if not self.attended:
            return
        if len(self._queue) >= self._limits.queued_events or not self._budget.has_room_for_news(self.owner):
            self._overrun = True
        else:
            self._hold(event)

    def first(self, stream: int) -> Event | None:
        """What is to be sent next. Raises Superseded for an old stream, LimitReached for one that fell behind."""
        if stream != self.stream:
            raise Superseded("a newer stream attends this mailbox")
        if self._overrun:
            raise LimitReached("this stream fell too far behind: attend again")
        if not self._queue:
            return None
        waiting = self._queue[0]
        return waiting.mail if isinstance(waiting, PostedMail) else waiting

    def sent(self, stream: int) -> None:
        """What `first` gave is on its way; for an old stream it stays, for the new one to send."""
        if stream == self.stream:
            self._release(self._queue.popleft())

    def close(self) -> None:
        """Nobody will take what waits."""
        while self._queue:
            self._release(self._queue.popleft())

    def _hold(self, waiting: PostedMail | News, *, first: bool = False) -> None:
        if first:
            self._queue.appendleft(waiting)
        else:
            self._queue.append(waiting)
        self._held += _size(waiting)
        if isinstance(waiting, PostedMail):
            self._budget.add(waiting)
        else:
            self._budget.add_news(self.owner)

    def _release(self, waiting: PostedMail | News) -> None:
        self._held -= _size(waiting)
        if isinstance(waiting, PostedMail):
            self._budget.remove(waiting)
        else:
            self._budget.remove_news(self.owner)


def _size(waiting: PostedMail | News) -> int:
    return EVENT_BYTES + (len(waiting.mail.body) if isinstance(waiting, PostedMail) else 0)
