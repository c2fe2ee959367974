"""The ways by which sealed messages are passed on beside the rendezvous: links, each with a bounded queue."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container

from kafila_sidecar.errors import KafilaError

logger = logging.getLogger(__name__)

MOST_WAITING = 256  # messages; a way so far behind misses what follows
MOST_WAITING_BYTES = 4 * 1024 * 1024
FORWARD_DEADLINE_S = 5.0

Forward = Callable[[bytes], Awaitable[None]]


class Way:
    """A bounded queue in front of `forward`, so that a stalled link holds up nobody."""

    def __init__(self, forward: Forward, peer: str = "") -> None:
        self.forward = forward
        self.peer = peer  # where it leads, if that is one member
        self.waiting_bytes = 0
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()

    @property
    def waiting(self) -> int:
        """Messages."""
        return self._queue.qsize()

    def put(self, sealed: bytes) -> None:
        """Drops it when the way is too far behind."""
        if self.waiting >= MOST_WAITING or self.waiting_bytes >= MOST_WAITING_BYTES:
            logger.warning("gossip_dropped waiting=%d", self.waiting)
            return
        self._queue.put_nowait(sealed)
        self.waiting_bytes += len(sealed)

    async def emptied(self) -> None:
        """Returns when all that was put has been forwarded."""
        await self._queue.join()

    async def run(self) -> None:
        """Forwards for ever. A message that can't be forwarded is lost on this way only."""
        while True:
            sealed = await self._queue.get()
            self.waiting_bytes -= len(sealed)
            try:
                async with asyncio.timeout(FORWARD_DEADLINE_S):
                    await self.forward(sealed)
            except (KafilaError, TimeoutError, ConnectionError) as error:
                logger.info("gossip_failed reason=%s", type(error).__name__)
            finally:
                self._queue.task_done()


class Ways:
    """All of one channel's, whether it runs yet or not."""

    def __init__(self) -> None:
        self._ways: dict[Forward, Way] = {}
        self._tasks: dict[Forward, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def attach(self, forward: Forward, peer: str) -> Way:
        """Messages go over this way too from now on."""
        way = self._ways[forward] = Way(forward, peer)
        if self._group:
            self._tasks[forward] = self._group.create_task(way.run())
        return way

    def detach(self, forward: Forward) -> None:
        """The way is closed."""
        self._ways.pop(forward, None)
        if task := self._tasks.pop(forward, None):
            task.cancel()

    def put(self, sealed: bytes, *, known_to: Container[str] = ()) -> None:
        """On every way but those to members who have it."""
        for way in self._ways.values():
            if way.peer not in known_to or not way.peer:
                way.put(sealed)

    def put_for(self, readers: Container[str], sealed: bytes) -> None:
        """On the ways that lead to these members."""
        for way in self._ways.values():
            if way.peer in readers:
                way.put(sealed)

    async def emptied(self) -> None:
        """Returns when everything was forwarded on every way."""
        for way in list(self._ways.values()):
            await way.emptied()

    async def run(self) -> None:
        """Forwards until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._group:
                for forward, way in self._ways.items():
                    self._tasks[forward] = self._group.create_task(way.run())
                await asyncio.Event().wait()
        finally:
            self._group = None
