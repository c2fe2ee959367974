"""Blocking calls on threads of their own, and how those who wait for them give up."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """Nobody waits for this call any more."""


class Stop:
    """Tells a blocking call that it is not wanted any more, and wakes it where it waits for bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = threading.Event()
        self._wake: Callable[[], None] | None = None

    def check(self) -> None:
        """Raises Stopped once `ask` was called."""
        if self._asked.is_set():
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Raises Stopped as soon as it is asked to stop."""
        with self.while_receiving(self._asked.set):
            self._asked.wait(seconds)

    def ask(self) -> bool:
        """From another thread; whether the call was woken and ends at once (else it ends at its next look)."""
        with self._lock:
            self._asked.set()
            if self._wake is None:
                return False
            with contextlib.suppress(ValueError, RuntimeError, OSError):  # there is nothing to wait for any more
                self._wake()
            return True

    @contextmanager
    def while_receiving(self, wake: Callable[[], None]) -> Iterator[None]:
        """`wake` ends the wait for bytes. Raises Stopped if it was asked before or meanwhile."""
        with self._lock:
            self.check()
            self._wake = wake
        try:
            yield
        except Exception:
            self.check()
            raise
        finally:
            with self._lock:
                self._wake = None
        self.check()


async def in_thread(call: Callable[[Stop], T]) -> T:
    """The result of a blocking call on a thread of its own, which does not keep the process alive.

    When the caller is cancelled, the call is asked to stop and, once it receives, waited for: it touches nothing
    afterwards. One that still waits for its first byte is left to find out by itself.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    stop = Stop()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type]
        else:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = call(stop)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="fetch", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        if stop.ask():
            await asyncio.wait([done])
        done.add_done_callback(_forget)
        raise


def _forget(done: "asyncio.Future[T]") -> None:
    """What a call that nobody waits for ended with is nobody's business."""
    if not done.cancelled():
        done.exception()
