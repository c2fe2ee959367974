"""The threads on which models run: one for each session, so that one that stands still holds up no other session.

A session keeps its thread: what it has not evaluated yet can be evaluated on no other one. A thread that is given back
is lent again, since MLX keeps a stream, on the CPU with a thread behind it, for every thread that ever used it. One
that stands still is left alone: what was held there is freed if it ever moves again, by calls that wait behind.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import ParamSpec, TypeVar

from kafila_sidecar.errors import TimedOut, Unavailable
from kafila_sidecar.runtime.mlx_thread import CLOSE_S, MlxThread
from kafila_sidecar.runtime.still import LOOK_S, LOOKS, unless_still

P = ParamSpec("P")
T = TypeVar("T")

MOST_STILL = 4  # of those whose sessions are over: each may hold the weights of a stage
CALL_LOOK_S = LOOK_S / 2  # of a call that loads no weights: the longest measures this machine, in a minute or two
REST_S = LOOKS * CALL_LOOK_S  # for what a thread that comes back was still at: what takes longer stands still

log = logging.getLogger(__name__)


class ModelThreads:
    """To be used on the event loop. make: one more thread."""

    def __init__(self, make: Callable[[], MlxThread] = MlxThread) -> None:
        self._make = make
        self._lent: list[MlxThread] = []
        self._back: dict[MlxThread, float] = {}  # and from when on one that is busy stands still

    def lend(self) -> MlxThread:
        """A thread on which nothing else runs.

        Raises: Unavailable where too many that came back don't move.
        """
        idle = next((thread for thread in self._back if thread.is_idle), None)
        if idle is not None:
            del self._back[idle]
        elif self._still >= MOST_STILL:
            raise Unavailable(
                f"{MOST_STILL} models stand still on this machine, and hold the memory that they took: start Kafila"
                " here again"
            )
        thread = idle or self._make()
        self._lent.append(thread)
        return thread

    def give_back(self, thread: MlxThread, *, rest_s: float = REST_S) -> None:
        """Who had it wants nothing more of it than what waits there already. rest_s: for that."""
        self._lent.remove(thread)
        self._back[thread] = monotonic() + rest_s
        if not thread.is_idle:
            log.warning("thread_left_alone still=%d", self._still)

    @property
    def _still(self) -> int:
        now = monotonic()
        return sum(since <= now and not thread.is_idle for thread, since in self._back.items())

    @contextmanager
    def lent(self) -> Iterator[MlxThread]:
        """For the length of the block; raises as `lend`. A thread whose call timed out there stands still."""
        thread, rest_s = self.lend(), REST_S
        try:
            yield thread
        except TimedOut:
            rest_s = 0.0
            raise
        finally:
            self.give_back(thread, rest_s=rest_s)

    def close(self) -> None:
        """Ends them all, as `MlxThread.close`, side by side."""
        threads = [*self._lent, *self._back]
        for thread in threads:
            thread.stop()
        until = monotonic() + CLOSE_S
        for thread in threads:
            thread.join(until - monotonic())


class PassingCalls:
    """Calls that belong to no session and leave nothing on their thread, one after another, those included for which
    nobody waits any more. One that stands still is given up, and the next one runs on another thread."""

    def __init__(self, threads: ModelThreads, *, look_s: float = CALL_LOOK_S) -> None:
        self._threads = threads
        self._look_s = look_s
        self._turn = asyncio.Lock()
        self._running: asyncio.Task[object] | None = None

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `MlxThread.run`.

        Raises: TimedOut for a call that stands still; Unavailable where too many did.
        """
        await self._turn.acquire()
        running = asyncio.create_task(self._on_a_thread(partial(fn, *args, **kwargs)), name="a call of no session")
        self._running = running
        running.add_done_callback(self._ended)
        await asyncio.wait((running,))  # which goes on if its caller is cancelled
        return running.result()

    async def _on_a_thread(self, call: Callable[[], T]) -> T:
        with self._threads.lent() as thread:
            outcome = thread.start(call)
            return await unless_still(outcome, what="the model runtime of this machine", look_s=self._look_s)

    def _ended(self, running: "asyncio.Task[T]") -> None:
        self._turn.release()
        if not running.cancelled():
            running.exception()  # nobody may wait for it
