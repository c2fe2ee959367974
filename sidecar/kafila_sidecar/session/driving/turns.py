"""The one queue through which everything enters a driver, one thing at a time.

It is made before the parts that fill it, so that none of them has to know the driver.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from kafila_proto import ring_pb2
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


@dataclass(frozen=True, slots=True)
class Say:
    """This member has something to tell everybody."""

    control: ring_pb2.Control


@dataclass(frozen=True, slots=True)
class StageBroke:
    """This member's stage failed while serving. `code` is a gRPC code name."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class StageMisled:
    """The stage before this member's broke the rules of the ring; `by` is its name."""

    by: str
    sentence: str


@dataclass(frozen=True, slots=True)
class NetworkMoved:
    """This member's candidates are others than before, and perhaps its network."""


Item = Event | LinkChanged | Call | Say | StageBroke | StageMisled | NetworkMoved


class Turns:
    """Items in the order of coming; after `end` nothing comes any more."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        self._room_for_events = asyncio.Semaphore(MOST_EVENTS_WAITING)
        self._ended = False

    def soon(self, run: Callable[[], Awaitable[None]]) -> None:
        """In a turn of its own."""
        self._put(Call(run))

    def say(self, control: ring_pb2.Control) -> None:
        """To everybody, this member included."""
        self._put(Say(control))

    def link_changed(self, peer: str, link: Link | None, error: KafilaError | None) -> None:
        """See `LinkChanged`."""
        self._put(LinkChanged(peer, link, error))

    def stage_broke(self, code: str, sentence: str) -> None:
        """See `StageBroke`."""
        self._put(StageBroke(code, sentence))

    def stage_misled(self, by: str, sentence: str) -> None:
        """See `StageMisled`."""
        self._put(StageMisled(by, sentence))

    def network_moved(self) -> None:
        """See `NetworkMoved`."""
        self._put(NetworkMoved())

    async def bring(self, items: AsyncIterator[Event]) -> None:
        """Queues events as they come, never more than `MOST_EVENTS_WAITING` at once."""
        async for item in items:
            await self._room_for_events.acquire()
            self._put(item)

    async def next(self, until: float | None) -> Item | None:
        """The next item; None at the loop's time `until`, if that comes first."""
        try:
            item = self._queue.get_nowait() if self._queue.qsize() else await self._wait(until)
        except TimeoutError:
            return None
        if isinstance(item, Event):
            self._room_for_events.release()
        return item

    async def _wait(self, until: float | None) -> Item:
        async with asyncio.timeout_at(until):
            return await self._queue.get()

    def end(self) -> None:
        """Nobody handles anything any more."""
        self._ended = True

    def _put(self, item: Item) -> None:
        if not self._ended:
            self._queue.put_nowait(item)
