"""The one queue through which everything enters a driver: events, links that changed, and what was put off."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.session.channel.events import Event

MOST_EVENTS_WAITING = 32  # further ones stay in the channel, which holds up those who bring them


@dataclass(frozen=True, slots=True)
class Call:
    """Something that has to happen in a turn of its own."""

    run: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """A link came up, went down (None), or can't be made."""

    peer: str
    link: Link | None
    error: KafilaError | None


Item = Event | LinkChanged | Call


class Turns:
    """Items in the order of coming, one at a time."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        self._room_for_events = asyncio.Semaphore(MOST_EVENTS_WAITING)

    def soon(self, run: Callable[[], Awaitable[None]]) -> None:
        """In a turn of its own."""
        self._queue.put_nowait(Call(run))

    def link_changed(self, peer: str, link: Link | None, error: KafilaError | None) -> None:
        self._queue.put_nowait(LinkChanged(peer, link, error))

    async def bring(self, items: AsyncIterator[Event]) -> None:
        """Queues events as they come, never more than `MOST_EVENTS_WAITING` at once."""
        async for item in items:
            await self._room_for_events.acquire()
            self._queue.put_nowait(item)

    async def next(self, until: float | None) -> Item | None:
        """The next item; None at the loop's time `until`, if that comes first."""
        try:
            async with asyncio.timeout_at(until):
                item = await self._queue.get()
        except TimeoutError:
            return None
        if isinstance(item, Event):
            self._room_for_events.release()
        return item
