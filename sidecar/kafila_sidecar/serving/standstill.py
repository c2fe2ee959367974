"""A stage's way to the MLX thread, which tells when a step stands still: a hang is a death too.

How long a step may take follows from what steps took. What else runs on the session's thread, as loading a draft model,
is no standstill of a step that waits behind it until it has lasted very much longer.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from kafila_sidecar.runtime.handed_over import HandedOver

P = ParamSpec("P")
T = TypeVar("T")

FLOOR_S = 60.0  # of a step's deadline: memory that has to come back from disk is no standstill
FACTOR = 4.0  # of the longest step so far
QUEUE_S = 900.0  # for what is before a step: a draft model may be loading
LATE_S = 2.0  # a timer that comes so much later: this process stood still, and knows nothing of the thread


class ModelThread(Protocol):
    """Runs calls one after another where the model lives; see `MlxThread`."""

    def start(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]": ...
    def when_idle(self, fn: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None: ...


class WatchedThread:
    """Runs one stage's steps. stalled: hears once, with the seconds that a step has stood still.

    floor_s: the least deadline of a step, at least `FLOOR_S` and what a prefill chunk is predicted to take.
    """

    def __init__(
        self, mlx: ModelThread, *, stalled: Callable[[float], None], floor_s: float = FLOOR_S, queue_s: float = QUEUE_S
    ) -> None:
        self._mlx = mlx
        self._stalled = stalled
        self._floor_s = floor_s
        self._queue_s = queue_s
        self._loop = asyncio.get_running_loop()
        self._pending = 0
        self._longest_s = 0.0
        self._since: list[float] = []  # when what is under way began; written where it runs
        self._waiting_since = 0.0  # when a step began or ended last, or the first of those that wait came
        self._timer: asyncio.TimerHandle | None = None
        self._has_told = False

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `MlxThread.run`."""
        return await self.start(fn, *args, **kwargs)

    def start(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        """As `MlxThread.start`."""
        if not self._pending:
            self._waiting_since = monotonic()
        outcome = self._mlx.start(self._step, partial(fn, *args, **kwargs))
        self._pending += 1
        self._watch()
        outcome.add_done_callback(self._ended)
        return outcome

    def when_idle(self, fn: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """As `MlxThread.when_idle`. One that hangs is told of when a step waits behind it."""
        self._mlx.when_idle(self._step, partial(fn, *args, **kwargs))

    def close(self) -> None:
        """Nobody wants to hear of it any more."""
        self._has_told = True
        if self._timer is not None:
            self._timer.cancel()

    def _step(self, work: Callable[[], T]) -> T:
        """A step that is handed over to a device ends there."""
        began = monotonic()
        self._since.append(began)
        made: Any = self._until_over(began, work)
        if not isinstance(made, HandedOver):
            return cast(T, made)
        self._since.append(began)
        return cast(T, HandedOver(partial(self._until_over, began, made.finish)))

    def _until_over(self, began: float, work: Callable[[], T]) -> T:
        try:
            return work()
        finally:
            self._waiting_since = monotonic()
            self._since.remove(began)
            self._longest_s = max(self._longest_s, self._waiting_since - began)

    @property
    def _running_since(self) -> float | None:
        return min(list(self._since), default=None)

    def _ended(self, _: object) -> None:
        self._pending -= 1

    @property
    def _deadline_s(self) -> float:
        return max(self._floor_s, FACTOR * self._longest_s)

    def _watch(self) -> None:
        """One timer for all steps: it comes at most once in a deadline, so that a step costs nothing."""
        if self._timer is None and not self._has_told:
            due = self._loop.time() + self._deadline_s
            self._timer = self._loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        self._timer = None
        if not self._pending and self._running_since is None:
            return
        still_s, most_s = self._standstill()
        if still_s < most_s or self._loop.time() - due > LATE_S:
            self._watch()
            return
        self._has_told = True
        self._stalled(still_s)

    def _standstill(self) -> tuple[float, float]:
        """For how long nothing of ours has moved, and for how long it may."""
        running_since = self._running_since
        if running_since is None:
            return monotonic() - self._waiting_since, self._queue_s
        return monotonic() - running_since, self._deadline_s
