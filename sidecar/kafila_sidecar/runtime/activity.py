"""Whether this machine works for somebody who waits, so that what nobody waits for can stand back."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Runs(Protocol):
    """Runs calls one after another where the model lives."""

    def start(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]": ...
    def when_idle(self, fn: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None: ...


class Activity:
    """Of all sessions of this machine. To be used on the event loop."""

    def __init__(self) -> None:
        self._at_work = 0
        self._ended_at: float | None = None
        self._began = asyncio.Event()
        self._rests = asyncio.Event()
        self._rests.set()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Somebody waits for what is done meanwhile."""
        self._begin()
        try:
            yield
        finally:
            self._end()

    def at_work_until(self, ended: "asyncio.Future[T]") -> "asyncio.Future[T]":
        """The same, for a future."""
        self._begin()
        ended.add_done_callback(self._end)
        return ended

    def _begin(self) -> None:
        self._at_work += 1
        self._began.set()
        self._rests.clear()

    def _end(self, _: object = None) -> None:
        self._at_work -= 1
        self._ended_at = asyncio.get_running_loop().time()
        if not self._at_work:
            self._began.clear()
            self._rests.set()

    async def until_quiet(self, quiet_s: float) -> None:
        """Returns when nothing was done for so long."""
        clock = asyncio.get_running_loop().time
        while True:
            await self._rests.wait()
            left_s = 0.0 if self._ended_at is None else self._ended_at + quiet_s - clock()
            if left_s <= 0:
                return
            await asyncio.sleep(left_s)

    def was_quiet_since(self, at: float) -> bool:
        """Whether nothing was done from then on. at: by the event loop's clock."""
        return not self._at_work and (self._ended_at is None or self._ended_at <= at)

    async def until_work(self) -> None:
        """Returns as soon as something is done."""
        await self._began.wait()


class NotedThread:
    """The model's thread, whose calls count as work."""

    def __init__(self, mlx: Runs, activity: Activity) -> None:
        self._mlx = mlx
        self._activity = activity

    def start(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        """As the thread does."""
        return self._activity.at_work_until(self._mlx.start(fn, *args, **kwargs))

    def when_idle(self, fn: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """As the thread does; no work that others stand back for."""
        self._mlx.when_idle(fn, *args, **kwargs)
