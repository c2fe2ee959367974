"""A thread that imports, loads, evaluates and frees MLX.

MLX's streams belong to the thread that made them: a lazy array made on another thread can't be evaluated. So every
call that touches MLX goes through `MlxThread.run`, all those of one session on the same thread (`model_threads.py`);
the event loop never imports it. `mx.eval` releases the GIL, so the loop goes on meanwhile.
"""

import asyncio
import ctypes
import logging
import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, ParamSpec, Protocol, TypeVar

from kafila_rendezvous.allowance import lacking_threads
from kafila_sidecar.errors import Exhausted, KafilaError, Unavailable
from kafila_sidecar.lack import as_typed, in_words
from kafila_sidecar.runtime.handed_over import HandedOver, WaitingThread

P = ParamSpec("P")
T = TypeVar("T")

QUEUE_LIMIT = 4096  # calls; each running sequence of a session has at most two, and 256 may run (session/terms.py)
IDLE_LIMIT = 64  # preparations that wait; the oldest are given up
OPENBLAS = "libopenblas.so.0"  # Debian's libopenblas0-pthread; MLX's CPU wheel brings a slow reference BLAS
# How long OpenBLAS's idle threads spin before they sleep: 2^17 processor cycles, some 45 µs, about what waking them
# costs. Its own 2^28 (90 ms) keep a core busy that the next stage on the same machine wants, or this one's event loop:
# with it a ring of three on two cores took 95 ms a token and 59 ms of processor time, with this 83 and 40.
SPIN = ("OPENBLAS_THREAD_TIMEOUT", "17")

# Operations that MLX's CUDA back end hands over at once. Its own 100, from compute capability 9 on, suits whole models:
# a stage's GPU waits for the first hundred. With rings of four and of two on H200s a token took 13.3 and 9.2 ms in
# place of 15.0 and 9.5; with 20 operations 12.5 and 9.6.
SOONER = ("MLX_MAX_OPS_PER_BUFFER", "40")
LARGE_BATCHES = 9  # compute capability

# The one NVIDIA GPU that a member computes on, where nobody said which. MLX takes the first one anyway; with two in
# sight its copies between host and device fail once a buffer is used again ("cudaMemcpy … invalid argument").
ONE_GPU = ("CUDA_VISIBLE_DEVICES", "0")

CLOSE_S = 5.0  # for calls that run when this machine's service ends, which does not wait for those that stand still
JOIN_S = 0.1  # for a thread that has nothing left to do to end, whatever others took

WORK_THREADS = 12  # beside BLAS's: MLX's own, those that read and fetch files, and the event loop's

_CLOSED = "the model runtime of this member is closed"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Call:
    """What to run, and the future on the event loop that waits for it; none where nobody does."""

    work: Callable[[], Any]
    outcome: "asyncio.Future[Any] | None"


class CallingThread(Protocol):
    """Runs calls one after another; see `MlxThread`."""

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...


class MlxThread:
    """Runs functions one after another, in the order of the calls, on a thread of its own.

    Every token walks there and back on every stage. So the way is short: a queue there and one wake-up of the loop
    back, 20 µs, where the standard library's executor takes 50.
    """

    def __init__(self, *, openblas: bool = True, queue_limit: int = QUEUE_LIMIT) -> None:
        self._queue_limit = queue_limit
        self._waiting = 0
        self._closed = False
        self._prepares = False  # what nobody waits for; written on the thread
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = Thread(target=self._serve, args=(openblas,), name="mlx", daemon=True)
        self._device = WaitingThread("mlx waits")

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `fn(*args, **kwargs)`, or its exception, in words where it says what this machine lacks.

        Cancelling the caller drops the call if it has not begun; one that has begun runs to its end.

        Raises: Exhausted with `queue_limit` calls waiting; Unavailable after `close`, and where there is no MLX or too
        little of what it needs, which the next call looks at again.
        """
        return await self.start(fn, *args, **kwargs)

    def start(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        """As `run`, for who has something to do meanwhile. Of a call that hands its work over to a device
        (`HandedOver`) the result is what comes of that, and other calls run meanwhile."""
        if self._closed:
            raise Unavailable(_CLOSED)
        if self._waiting >= self._queue_limit:
            raise Exhausted(f"{self._waiting} calls wait for this member's model: try again when some have ended")
        if self._thread.ident is None:
            with in_words():
                self._thread.start()
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting += 1
        self._calls.put(_Call(partial(fn, *args, **kwargs), outcome))
        return outcome

    def when_idle(self, fn: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Runs `fn` when no other call waits, if that comes soon; nobody hears what becomes of it. For preparations,
        without which things take longer and nothing else."""
        if not self._closed and self._thread.ident is not None:
            self._calls.put(_Call(partial(fn, *args, **kwargs), None))

    @property
    def is_idle(self) -> bool:
        """Whether a call that comes now runs at once."""
        return not self._waiting and not self._prepares and self._calls.empty()

    def close(self) -> None:
        """Drops the calls that have not begun, and joins the thread once the one that runs has ended, if that is soon:
        a thread that stands still keeps no process alive."""
        self.stop()
        self.join(CLOSE_S)

    def stop(self) -> None:
        """Runs nothing any more but the call that has begun."""
        self._closed = True
        self._calls.put(None)

    def join(self, most_s: float) -> None:
        """Returns once the thread has ended, after so long in any case, or a moment where that is longer."""
        until = monotonic() + most_s
        if self._thread.ident is not None:
            self._thread.join(max(JOIN_S, most_s))
        if not self._device.close(max(JOIN_S, until - monotonic())) or self._thread.is_alive():
            log.warning("thread_left_behind name=%s", self._thread.name)

    def _serve(self, openblas: bool) -> None:
        is_ready, broken = False, None
        idle: deque[_Call] = deque(maxlen=IDLE_LIMIT)
        while (call := self._next(idle)) is not None:
            if not is_ready and not self._closed:
                broken = _prepare(openblas)
                is_ready = broken is None
            self._prepares = call.outcome is None
            self._answer(call, Unavailable(_CLOSED) if self._closed else broken)
            self._prepares = False
            del call

    def _next(self, idle: "deque[_Call]") -> _Call | None:
        """What is run next: one of `idle` only while nothing else waits."""
        while True:
            try:
                call = self._calls.get(block=not idle)
            except Empty:
                return idle.popleft()
            if call is None or call.outcome is not None:
                return call
            idle.append(call)

    def _answer(self, call: _Call, error: BaseException | None) -> None:
        """What the call used is free when this returns."""
        result: Any = None
        outcome = call.outcome
        if error is None and not (outcome and outcome.cancelled()):
            result, error = _attempt(call.work)
        if outcome is None:
            return
        if isinstance(result, HandedOver):
            self._device.put(partial(self._finish, outcome, result))
        else:
            self._tell(outcome, result, error)

    def _finish(self, outcome: "asyncio.Future[Any]", given: HandedOver[Any]) -> None:
        self._tell(outcome, *_attempt(given.finish))

    def _tell(self, outcome: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            outcome.get_loop().call_soon_threadsafe(self._ended, outcome, result, error)

    def _ended(self, outcome: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._waiting -= 1
        if outcome.done():
            return  # its caller was cancelled
        if error is None:
            outcome.set_result(result)
        else:
            outcome.set_exception(error)


def _attempt(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001  # the caller gets it
        return None, as_typed(error) or error


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


def _prepare(openblas: bool) -> KafilaError | None:
    """First thing on the thread: a quick BLAS where there is one, then MLX, so that its streams are this thread's.

    Returns why MLX can't be used here, if so.
    """
    try:
        # OpenBLAS ends the process without them; it starts its own once.
        if lack := lacking_threads(WORK_THREADS + (0 if "mlx.core" in sys.modules else os.cpu_count() or 1)):
            raise Exhausted(lack)
        if openblas:
            prefer_openblas()
        _import_mlx()
    except Exception as error:  # noqa: BLE001  # whatever it is, this machine's other work goes on
        return Unavailable(f"MLX can't be used on this machine: {as_typed(error) or repr(error)}")
    return None


def _import_mlx() -> None:
    os.environ.setdefault(*ONE_GPU)
    import mlx.core as mx

    if mx.default_device() == mx.Device(mx.cpu) and not _can_compile():
        mx.disable_compile()
    if int(mx.device_info().get("compute_capability_major", 0)) >= LARGE_BATCHES:
        os.environ.setdefault(*SOONER)  # it is read with the first operation
    wired_bytes = mx.device_info().get("max_recommended_working_set_size")
    if wired_bytes:
        mx.set_wired_limit(int(wired_bytes))  # Apple's GPU pages weights out between steps unless they are wired
    log.info("mlx_ready device=%s", mx.default_device())


def _can_compile() -> bool:
    """MLX's CPU back end compiles its fused functions with g++, when they first run, in C++'s folder for temporary
    files: what the first of these variables names."""
    named = (os.environ.get(name) for name in ("TMPDIR", "TMP", "TEMP", "TEMPDIR"))
    folder = next((path for path in named if path), "/tmp")
    try:
        with tempfile.TemporaryFile(dir=folder):
            return shutil.which("g++") is not None
    except OSError as error:
        log.warning("nothing_compiled folder=%s error=%s", folder, error)
        return False
