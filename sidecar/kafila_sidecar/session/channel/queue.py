"""Events on their way to the channel's one listener."""

import asyncio
from collections import deque
from collections.abc import Iterable

from kafila_sidecar.session.channel.events import Event, MessageFrom

MOST_UNREAD = 1024
MOST_UNREAD_BYTES = 8 * 1024 * 1024  # of messages


class EventQueue:
    """A queue that holds up those who bring events from outside while the listener is too far behind.

    What this member does itself is told without waiting, since the listener may be the one who does it.
    """

    def __init__(self) -> None:
        self._unread: deque[Event] = deque()
        self._unread_bytes = 0
        self._filled = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._ended = False

    def tell(self, events: Iterable[Event]) -> None:
        """Never waits."""
        for one in events:
            self._unread.append(one)
            self._unread_bytes += _size(one)
        self._settle()

    async def has_room(self) -> None:
        """Returns when the listener has caught up."""
        await self._has_room.wait()

    def end(self) -> None:
        """The listener gets what is unread, then None."""
        self._ended = True
        self._settle()

    async def next(self) -> Event | None:
        """The oldest unread event; None after the end."""
        await self._filled.wait()
        event = self._unread.popleft() if self._unread else None
        self._unread_bytes -= _size(event)
        self._settle()
        return event

    def _settle(self) -> None:
        if self._unread or self._ended:
            self._filled.set()
        else:
            self._filled.clear()
        has_room = len(self._unread) < MOST_UNREAD and self._unread_bytes < MOST_UNREAD_BYTES
        if has_room or self._ended:
            self._has_room.set()
        else:
            self._has_room.clear()


def _size(event: Event | None) -> int:
    """Bytes of what others wrote."""
    return event.control.ByteSize() if isinstance(event, MessageFrom) else 0
