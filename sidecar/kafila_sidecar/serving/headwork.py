"""What the head's own shard does for the requests that run: prompt chunks, and tokens picked and sent on their way.

Requests ask and wait; one loop serves them, several of them in a run where that is due (`gathering`).
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.runtime.shard.finite import NotFinite
from kafila_sidecar.runtime.shard.picking import Pick, Picked
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.gathering import Gathering, InLine
from kafila_sidecar.serving.standstill import ModelThread

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spent:
    """What a request got, and what it took: seconds of the run, seconds with the wait for it, sequences in the run."""

    compute_s: float
    stay_s: float
    rows: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one request waits for. pick: None for a prompt chunk, whose tokens `chunk` are."""

    pick: Pick | None
    chunk: Sequence[int]
    asked: float
    done: "asyncio.Future[tuple[Picked | HiddenState, Spent]]"


class HeadWork:
    """Serves one epoch. rows: how many sequences a run has, of so many that are there."""

    def __init__(self, *, shard: Shard, mlx: ModelThread, rows: Callable[[int], int]) -> None:
        self._shard = shard
        self._mlx = mlx
        self._rows = rows
        self._line = Gathering[Wanted]()
        self.running = 0  # sequences that are there
        self._loop: asyncio.Task[None] | None = None  # while anything waits

    async def chunk(self, sequence: int, tokens: Sequence[int]) -> tuple[HiddenState, Spent]:
        """The next tokens of a prompt, embedded and run through our blocks.

        Raises: NotFinite when our blocks make NaN or infinity of them.
        """
        done, spent = await self._ask(sequence, len(tokens), None, tokens)
        assert isinstance(done, HiddenState)
        return done, spent

    async def pick(self, pick: Pick) -> tuple[Picked, Spent]:
        """The token that follows a state, and what goes on its way.

        Raises: NotFinite for scores among which there is no choice, or when our blocks make such numbers.
        """
        done, spent = await self._ask(pick.sequence, 1, pick, ())
        assert isinstance(done, Picked)
        return done, spent

    def expect(self, pick: Pick) -> None:
        """Prepares `pick` while the sequence's state, which will be like the pick's, is on its way."""
        self._mlx.when_idle(self._shard.build_pick, pick)

    def enter(self) -> None:
        """One more sequence runs."""
        self.running += 1

    async def release(self, sequence: int) -> None:
        """It is over: what it waits for is not done, what it holds is freed."""
        self.running -= 1
        for one in self._line.drop(sequence):
            one.work.done.cancel()
        await self._mlx.start(self._shard.release, sequence)

    async def _ask(
        self, sequence: int, tokens: int, pick: Pick | None, chunk: Sequence[int]
    ) -> tuple[Picked | HiddenState, Spent]:
        done: asyncio.Future[tuple[Picked | HiddenState, Spent]] = asyncio.get_running_loop().create_future()
        self._line.add(InLine(sequence, tokens, pick is None, Wanted(pick, chunk, monotonic(), done)))
        if self._loop is None:
            self._loop = asyncio.create_task(self._serve(), name="the head's runs")
        return await done

    async def _serve(self) -> None:
        try:
            while run := self._line.next(self._rows(self.running)):
                await self._run([one.work for one in run], run[0].sequence)
        finally:
            self._loop = None

    async def _run(self, run: Sequence[Wanted], sequence: int) -> None:
        """One run; whatever goes wrong in it is told to those who are in it."""
        picks = [one.pick for one in run if one.pick is not None]
        made: Sequence[Picked | HiddenState | Exception]
        try:
            if picks:
                made, compute_s = await self._mlx.start(_timed, lambda: self._shard.pick(picks))
            else:
                made, compute_s = await self._mlx.start(_timed, lambda: [self._chunk(sequence, run[0].chunk)])
        except Exception as error:  # noqa: BLE001  # those who asked raise it
            made, compute_s = [error] * len(run), 0.0
        now = monotonic()
        for one, what in zip(run, made, strict=True):
            if one.done.done():
                continue  # its request was given up
            if isinstance(what, Exception):
                one.done.set_exception(what)
            else:
                one.done.set_result((what, Spent(compute_s, now - one.asked, len(run))))

    def _chunk(self, sequence: int, tokens: Sequence[int]) -> HiddenState | KafilaError:
        try:
            return self._shard.embed_and_blocks(sequence, tokens)
        except NotFinite as error:
            return error


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    began = monotonic()
    return call(), monotonic() - began
