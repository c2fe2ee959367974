"""Who may run and who waits: a bounded number of sequences at once, a bounded queue behind them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafila_sidecar.errors import Exhausted, TimedOut

MAX_WAITING = 512  # as many as Ollama's own OLLAMA_MAX_QUEUE allows by default
WAIT_DEADLINE_S = 600.0


class Slots:
    """`concurrency` sequences run, up to `MAX_WAITING` wait in order of arrival."""

    def __init__(self, concurrency: int) -> None:
        self._free = asyncio.Semaphore(concurrency)
        self._waiting = 0

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Holds one slot.

        Raises:
            Exhausted: the queue is full.
            TimedOut: no slot came free within `WAIT_DEADLINE_S`.
        """
        if self._waiting >= MAX_WAITING:
            raise Exhausted(f"{self._waiting} requests are waiting already: try again later")
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_DEADLINE_S):
                await self._free.acquire()
        except TimeoutError:
            raise TimedOut(f"no sequence came free within {WAIT_DEADLINE_S:.0f} s: try again later") from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()
