"""An event loop whose time passes only while everybody waits, and machines' processes that may hang or die on it.

All that a process does runs in its own context, so that the loop knows whose step comes next: a hung process' steps are
kept until it wakes, a dead one's never run again, not even its `finally`.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from kafila_planner import make_plan

START_S = 1000.0
TURN_S = 1e-6  # each turn of the loop takes a moment, so that timers see time pass
WAKING_S = 0.001
MOST_TURNS = 20_000  # in a row without waiting: a timer that stays due would keep a real machine busy

T = TypeVar("T")


class Life(StrEnum):
    RUNS = "runs"
    HANGS = "hangs"
    DEAD = "dead"


class SimProcess:
    """One machine's sidecar from its start to its end."""

    def __init__(self, name: str, loop: "SimLoop") -> None:
        self.name = name
        self.life = Life.RUNS
        self.parked: list[SimHandle] = []  # steps that came due while it hung
        self.mail: list[SimHandle] = []  # what the network brought meanwhile
        self.tasks: list[asyncio.Task[Any]] = []  # all that it ever began; kept, so that nothing of a dead one runs
        self.hears: Callable[[bytes, tuple[str, int]], object] | None = None  # single datagrams
        self.stopped_at = self.woken_at = loop.now
        self._was_deaf = False
        self._loop = loop
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def start(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        """A task of this process."""
        return self._loop.create_task(work, name=name, context=self.context)

    def call_at(self, when: float, call: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        """What the network brings to this process."""
        return self._loop.call_at(when, partial(_brought, self, call, *arguments), context=self.context)

    def hang(self) -> None:
        self.life, self.stopped_at = Life.HANGS, self._loop.now

    def wake(self, *, mail_first: bool) -> None:
        """Its timers fire late, and it reads what has come; which of them first is chance."""
        self.life, self.woken_at, self._was_deaf = Life.RUNS, self._loop.now, not mail_first
        first, then = (self.mail, self.parked) if mail_first else (self.parked, self.mail)
        self._loop.ready.extend([*first, *then])
        self.parked, self.mail = [], []

    @property
    def is_deaf(self) -> bool:
        """It just woke, and has not read yet what came meanwhile."""
        return self._was_deaf and self._loop.now - self.woken_at < WAKING_S

    def die(self) -> None:
        self.life = Life.DEAD
        self.parked, self.mail = [], []


PROCESS: ContextVar[SimProcess | None] = ContextVar("process", default=None)


def _brought(process: SimProcess, call: Callable[..., object], *arguments: object) -> None:
    call(*arguments)


class SimHandle(asyncio.TimerHandle):
    """A step, at once or at a time, and whose it is; without what asyncio notes for those who look for mistakes."""

    __slots__ = ("process",)

    def __init__(
        self, when: float, call: Callable[..., object], args: tuple[Any, ...], loop: "SimLoop", context: Context
    ) -> None:
        self._when, self._scheduled = when, False
        self._callback, self._args, self._loop, self._context = call, args, loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self.process: SimProcess | None = context.get(PROCESS)

    @property
    def came(self) -> bool:
        """By the network."""
        return isinstance(self._callback, partial) and self._callback.func is _brought


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set is the same in every run."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class NumberedFuture(asyncio.Future[Any]):
    """The same of a future."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.BaseEventLoop):
    """Runs the real drivers; what they leave to threads runs at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START_S
        self.ready: deque[SimHandle] = deque()
        self.steps = 0
        self.errors: list[str] = []
        self._due: list[tuple[float, int, SimHandle]] = []
        self._made = 0
        self._turns = 0
        self._plans: dict[Any, Any] = {}
        self.ahead_s = 0.0  # of a call that is under way on a model thread, and what it has taken so far
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_error)

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        """As the one of `time`, which the product reads where it has no loop at hand."""
        return self.now + self.ahead_s

    def waiting_timers(self) -> list[tuple[SimProcess | None, str]]:
        """Whose they are, and what they call; what the network still brings is nobody's."""
        waiting = [handle for _, _, handle in sorted(self._due) if not handle.cancelled() and not handle.came]
        return [(handle.process, str(handle._callback)) for handle in waiting]

    # ---- What asyncio asks of a loop

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = SimHandle(self.now, callback, args, self, copy_context() if context is None else context)
        self._enqueue(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = SimHandle(when, callback, args, self, copy_context() if context is None else context)
        self._made += 1
        heapq.heappush(self._due, (when, self._made, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def outside(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """As `call_later`, of no process."""
        return self.call_at(self.now + delay, callback, *args, context=Context())

    def create_future(self) -> "asyncio.Future[Any]":
        future = NumberedFuture(loop=self)
        self._made += 1
        future.number = self._made
        return future

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        outcome: asyncio.Future[Any] = self.create_future()
        try:
            outcome.set_result(self._at_once(func, args))
        except Exception as error:  # noqa: BLE001  # who waits gets it
            outcome.set_exception(error)
        return outcome

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when it is due."""

    def _process_events(self, event_list: Any) -> None:
        """There are no sockets."""

    def _run_once(self) -> None:
        self._take_due()
        if not self.ready:
            self._leap()
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise RuntimeError("the simulation spins: something is due again and again")
        for _ in range(len(self.ready)):
            handle = self.ready.popleft()
            if not handle._cancelled:
                self._step(handle)
        self.now += TURN_S

    # ---- Private

    def _step(self, handle: SimHandle) -> None:
        if handle.process is not None and handle.process.life is not Life.RUNS:
            self._enqueue(handle)
            return
        self.steps += 1
        handle._run()

    def _enqueue(self, handle: SimHandle) -> None:
        process = handle.process
        if process is None or process.life is Life.RUNS:
            self.ready.append(handle)
        elif process.life is Life.HANGS:
            (process.mail if handle.came else process.parked).append(handle)

    def _take_due(self) -> None:
        while self._due and self._due[0][0] <= self.now:
            _, _, handle = heapq.heappop(self._due)
            if not handle._cancelled:
                self._enqueue(handle)

    def _leap(self) -> None:
        while not self.ready:
            while self._due and self._due[0][2].cancelled():
                heapq.heappop(self._due)
            if not self._due:
                raise RuntimeError("everybody in the simulation waits, and nothing is due")
            self.now = max(self.now, self._due[0][0])
            self._turns = 0
            self._take_due()

    def _at_once(self, func: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Plans are arithmetic, and every member makes the same: once is enough."""
        if isinstance(func, partial) and len(func.args) == 2 and func.args[0] is make_plan:
            problem = func.args[1]
            if problem not in self._plans:
                self._plans[problem] = make_plan(problem)
            return self._plans[problem]
        return func(*args)

    def _make_task(self, loop: Any, coro: Any, context: Context | None = None) -> "asyncio.Task[Any]":
        task = NumberedTask.__new__(NumberedTask)
        self._made += 1
        task.number = self._made
        task.__init__(coro, loop=self, context=context)  # type: ignore[misc]  # its number comes first
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # of the dead
        process = (copy_context() if context is None else context).get(PROCESS)
        if process is not None:
            process.tasks.append(task)
        return task

    def _note_error(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {error!r}")
