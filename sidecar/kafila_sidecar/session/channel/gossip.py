"""One way by which sealed messages are passed on beside the rendezvous: a link, or several behind one function."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

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
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting_bytes = 0

    def put(self, sealed: bytes) -> None:
        if self._queue.qsize() >= MOST_WAITING or self._waiting_bytes >= MOST_WAITING_BYTES:
            logger.warning("gossip_dropped waiting=%d", self._queue.qsize())
            return
        self._queue.put_nowait(sealed)
        self._waiting_bytes += len(sealed)

    async def emptied(self) -> None:
        """Returns when all that was put has been forwarded."""
        await self._queue.join()

    async def run(self) -> None:
        """Forwards for ever. A message that can't be forwarded is lost on this way only."""
        while True:
            sealed = await self._queue.get()
            self._waiting_bytes -= len(sealed)
            try:
                async with asyncio.timeout(FORWARD_DEADLINE_S):
                    await self.forward(sealed)
            except (KafilaError, TimeoutError, ConnectionError) as error:
                logger.info("gossip_failed reason=%s", type(error).__name__)
            finally:
                self._queue.task_done()
