"""What takes long: measuring, planning, loading. Each job ends in a turn of the driver's."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from kafila_planner import Refusal
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.lack import in_words
from kafila_sidecar.session.coordination.correction import look_anew
from kafila_sidecar.session.coordination.effects import Fault, Json, Proposal
from kafila_sidecar.session.coordination.planning import Packings, advised, propose
from kafila_sidecar.session.driving.pace import FetchPace

log = logging.getLogger(__name__)

REPORT_EVERY_S = 0.5  # of a fetch's progress

Outcome = Callable[[], Awaitable[None]]
Soon = Callable[[Outcome], None]
Failed = Callable[[str, str], Awaitable[None]]  # gRPC code name, sentence
Measure = Callable[[], Awaitable[tuple[Json, str]]]


class Progress(Protocol):
    """Told what a stage does, how many of the wanted bytes are here, and what is waited for while none come."""

    def __call__(self, doing: str, here_bytes: int, total_bytes: int, waits_for: str = "") -> None: ...


Said = Callable[[str, int, int, float, str], None]
"""The same with the bytes per second before the last."""


class StageDriver(Protocol):
    """This machine's part in the present epoch; serving/stage.py is the one."""

    @property
    def active_sequences(self) -> int: ...
    @property
    def answers_here(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    async def answered(self) -> None: ...
    async def load(self, proposal: Proposal, progress: Progress) -> None: ...
    def serve(self, proposal: Proposal) -> None: ...
    async def stop(self, fault: Fault) -> None: ...
    async def close(self, fault: Fault) -> None: ...


class Jobs:
    """Runs them in the driver's task group; `soon` queues what follows."""

    def __init__(self, stage: StageDriver, packings: Packings, tasks: asyncio.TaskGroup, soon: Soon) -> None:
        self._stage = stage
        self._packings = packings
        self._tasks = tasks
        self._soon = soon
        self._measuring: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None

    def measure(self, measure: Measure, done: Callable[[Json, str], Awaitable[None]], failed: Failed) -> None:
        """This machine, with no weights yet."""

        async def work() -> None:
            try:
                with in_words():
                    entry, device = await measure()
            except KafilaError as error:
                code, sentence = error.code, str(error)
                self._soon(lambda: failed(code, sentence))
                return
            self._soon(lambda: done(entry, device))

        self._measuring = self._tasks.create_task(work(), name="measure")

    def look(self, network: Callable[[], Awaitable[Json]], done: Callable[[Json], Awaitable[None]]) -> None:
        """At this machine's network anew; where that can't be done, what was told stays."""

        async def work() -> None:
            try:
                with in_words():
                    entry = await network()
            except KafilaError as error:
                log.info("network_not_seen code=%s", error.code)
                return
            self._soon(lambda: done(entry))

        if self._looking is not None:
            self._looking.cancel()
        self._looking = self._tasks.create_task(work(), name="look at the network")

    def plan(self, epoch: int, problem: Json, done: Callable[[Proposal | Refusal], Awaitable[None]]) -> None:
        """The plan of a problem, off the event loop."""

        async def work() -> None:
            try:
                with in_words():
                    made: Proposal | Refusal = await propose(epoch, problem)
                    if isinstance(made, Refusal):
                        made = await advised(problem, made, self._packings)
            except KafilaError as error:
                made = Refusal(reason=str(error), undersized="", missing_bytes=0)
            self._soon(lambda: done(made))

        self._tasks.create_task(work(), name="plan")

    def look_for_better(self, proposal: Proposal, problem: Json, done: Callable[[float, str], Awaitable[None]]) -> None:
        """Whether a problem has a better plan than the proposal; see `correction.look_anew`."""

        async def work() -> None:
            gain, sentence = await look_anew(proposal, problem)
            self._soon(lambda: done(gain, sentence))

        self._tasks.create_task(work(), name="look for a better plan")

    def load(self, proposal: Proposal, said: Said, done: Outcome, failed: Failed) -> None:
        """This member's stage; its progress is said when it changes, and now and then."""
        now = asyncio.get_running_loop().time

        async def work() -> None:
            began = now()
            try:
                with in_words():
                    await self._stage.load(proposal, _thinned(said))
            except KafilaError as error:
                code, sentence = error.code, str(error)
                self._soon(lambda: failed(code, sentence))
                return
            log.info("stage_loaded epoch=%d took_s=%.1f", proposal.epoch, now() - began)
            self._soon(done)

        self._loading = self._tasks.create_task(work(), name="load")

    async def stop_loading(self) -> None:
        """Returns when no loading goes on."""
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.cancel()
            await asyncio.wait([loading])

    def stop_measuring(self) -> None:
        """Nobody waits for it any more."""
        for task in (self._measuring, self._looking):
            if task is not None:
                task.cancel()


def _thinned(said: Said) -> Progress:
    before, said_at = ("", ""), 0.0
    loop = asyncio.get_running_loop()
    pace = FetchPace()

    def progress(doing: str, here_bytes: int, total_bytes: int, waits_for: str = "") -> None:
        nonlocal before, said_at
        now, is_all = loop.time(), here_bytes == total_bytes
        if (doing, waits_for) != before or is_all or now - said_at >= REPORT_EVERY_S:
            before, said_at = (doing, waits_for), now
            rate_bytes_per_s = pace.note(now, here_bytes)
            said(doing, here_bytes, total_bytes, 0.0 if is_all else rate_bytes_per_s, waits_for)

    return progress
