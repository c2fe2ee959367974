"""The one thread that imports, loads, evaluates and frees MLX.

MLX's streams belong to the thread that made them: a lazy array made on another thread can't be evaluated. So every
call that touches MLX goes through `MlxThread.run`; the event loop never imports it. `mx.eval` releases the GIL, so the
loop goes on meanwhile.
"""

import asyncio
import ctypes
import logging
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from sidecar.errors import Exhausted, Unavailable

P = ParamSpec("P")
T = TypeVar("T")

QUEUE_LIMIT = 4096  # calls; each running sequence of a session has at most two, and 256 may run (session/terms.py)
OPENBLAS = "libopenblas.so.0"  # Debian's libopenblas0-pthread; MLX's CPU wheel brings a slow reference BLAS
# How long OpenBLAS's idle threads spin before they sleep: 2^17 processor cycles, some 45 µs, about what waking them
# costs. Its own 2^26 (20 ms) keep a core busy while the next stage on the same machine, or this one's event loop, wants
# it: a ring of three on two cores took 201 ms a token and 75 ms of processor time, with this 170 and 52.
SPIN = ("OPENBLAS_THREAD_TIMEOUT", "17")

log = logging.getLogger(__name__)


class MlxThread:
    """Runs functions one after another, in the order of the calls, on a thread of its own."""

    def __init__(self, *, openblas: bool = True, queue_limit: int = QUEUE_LIMIT) -> None:
        self._queue_limit = queue_limit
        self._waiting = 0
        self._closed = False
        self._executor = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="mlx", initializer=_prepare, initargs=(openblas,)
        )

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `fn(*args, **kwargs)`, or its exception.

        Cancelling the caller drops the call if it has not begun; one that has begun runs to its end.

        Raises: Exhausted with `queue_limit` calls waiting; Unavailable after `close`.
        """
        if self._closed:
            raise Unavailable("the model runtime of this member is closed")
        if self._waiting >= self._queue_limit:
            raise Exhausted(f"{self._waiting} calls wait for this member's model: try again when some have ended")
        self._waiting += 1
        loop = asyncio.get_running_loop()
        call = self._executor.submit(fn, *args, **kwargs)
        call.add_done_callback(lambda ended: self._count_down(loop, ended))
        return await asyncio.wrap_future(call)

    def close(self) -> None:
        """Drops the calls that have not begun, waits for the one that runs, and joins the thread."""
        self._closed = True
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _count_down(self, loop: asyncio.AbstractEventLoop, _ended: "Future[T]") -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self._waiting -= 1


def prefer_openblas() -> bool:
    """Lets MLX's CPU back end use OpenBLAS where Linux has it. Must come before MLX is first imported.

    Members and reference runs should agree on it: the two libraries differ in the last bits.
    """
    if sys.platform != "linux":
        return False
    os.environ.setdefault(*SPIN)
    try:
        ctypes.CDLL(OPENBLAS, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        log.info("openblas_absent library=%s", OPENBLAS)
        return False
    return True


def _prepare(openblas: bool) -> None:
    """First thing on the thread: a quick BLAS where there is one, then MLX, so that its streams are this thread's."""
    if openblas:
        prefer_openblas()
    import mlx.core as mx

    if mx.default_device() == mx.Device(mx.cpu) and shutil.which("g++") is None:
        mx.disable_compile()  # MLX's CPU back end compiles its fused functions with g++, when they first run
    wired_bytes = mx.device_info().get("max_recommended_working_set_size")
    if wired_bytes:
        mx.set_wired_limit(int(wired_bytes))  # Apple's GPU pages weights out between steps unless they are wired
    log.info("mlx_ready device=%s", mx.default_device())
