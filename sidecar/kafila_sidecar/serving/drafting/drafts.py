"""A session's draft model on the member that is its head: fetched and loaded while answers go on without it."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from statistics import median
from time import monotonic
from typing import Protocol

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.runtime.footprint import PREFILL_CHUNK_TOKENS
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.finite import NotFinite
from kafila_sidecar.serving.drafting.model import DraftModel
from kafila_sidecar.serving.guessing.draft import Draft
from kafila_sidecar.serving.standstill import ModelThread

log = logging.getLogger(__name__)

SOON_TOKENS = 32  # that it reads before it guesses; more are read while answers go on
LATEST = 8  # guesses whose time is reckoned with

LoadDraft = Callable[[], DraftModel]
"""On the MLX thread."""

Fetched = Callable[[], AbstractAsyncContextManager[LoadDraft]]


class Drafts(Protocol):
    """A session's draft model on this machine, from one epoch to the next."""

    def begin(self, mlx: ModelThread) -> Draft:
        """What it guesses for the requests of one epoch, on this thread, while this member is the head."""

    async def free(self) -> None:
        """This member is the head no longer."""


class DraftHere:
    """At most one model in memory. fetched: has its files on this disk, and gives what loads it.

    `_model` changes on the MLX thread, whose calls keep their order.
    """

    def __init__(self, mlx: MlxThread, *, fetched: Fetched) -> None:
        self._mlx = mlx
        self._fetched = fetched
        self._model: DraftModel | None = None
        self._coming: asyncio.Task[None] | None = None

    def begin(self, mlx: ModelThread) -> "RunningDraft":
        """What it guesses for the requests of one epoch, on this thread: nothing before it is here."""
        coming = self._coming
        if self._model is None and (coming is None or coming.done() or coming.cancelling()):
            self._coming = asyncio.create_task(self._come(), name="bring the draft model")
        return RunningDraft(mlx, lambda: self._model)

    async def arrived(self) -> None:
        """Returns once it is here, or it is known that it can't be had."""
        if self._coming is not None:
            await asyncio.wait((self._coming,))

    async def free(self) -> None:
        """This member is the head no longer. Who waits for it no longer does not keep it from being done."""
        coming = self._coming
        if coming is None:
            return
        coming.cancel()
        await asyncio.wait((coming,))
        if self._coming is coming:
            freed = self._mlx.start(self._close)
            self._coming = None  # not before: who is cancelled while it waits leaves it to the next one
            await asyncio.shield(freed)

    async def _come(self) -> None:
        """An answer without guesses is as good: what goes wrong here is written down, and tried again with the next
        plan."""
        try:
            async with self._fetched() as load:
                await self._mlx.run(self._take, load)
        except KafilaError as error:
            log.warning("no_draft_model reason=%s", error)

    def _take(self, load: LoadDraft) -> None:
        if self._model is None:
            self._model = load()

    def _close(self) -> None:
        model, self._model = self._model, None
        if model is not None:
            model.close()


class RunningDraft:
    """Guesses of one epoch. model: as soon as it is there."""

    def __init__(self, mlx: ModelThread, model: Callable[[], DraftModel | None]) -> None:
        self._mlx = mlx
        self._model = model
        self._taken_s: deque[float] = deque(maxlen=LATEST)
        self._reading: dict[int, asyncio.Task[None]] = {}

    @property
    def token_s(self) -> float | None:
        """What a guess takes."""
        return median(self._taken_s) if self._taken_s else None

    async def guesses(self, request: int, text: Sequence[int], most: int) -> Sequence[int]:
        """What may follow; nothing while it still reads the text."""
        model = self._model()
        if model is None or request in self._reading:
            return ()
        if model.lacks(request, text) > SOON_TOKENS:
            self._read(model, request, text)
            return ()
        try:
            guesses, seconds = await self._mlx.start(_timed, model, request, text, most)
        except NotFinite:
            return ()
        self._taken_s.append(seconds / max(1, len(guesses)))
        return guesses

    def forget(self, request: int) -> None:
        """The request is over."""
        if reading := self._reading.pop(request, None):
            reading.cancel()
        if model := self._model():
            with suppress(KafilaError):  # the thread is gone, and all that it held
                self._mlx.start(model.forget, request)

    def _read(self, model: DraftModel, request: int, text: Sequence[int]) -> None:
        task = asyncio.create_task(self._read_on(model, request, list(text)), name="a draft model reads")
        self._reading[request] = task
        task.add_done_callback(lambda _: self._reading.pop(request, None))

    async def _read_on(self, model: DraftModel, request: int, text: Sequence[int]) -> None:
        """In chunks, between which others have their turns."""
        try:
            while lacks := model.lacks(request, text):
                at = len(text) - 1 - lacks
                size = min(lacks, PREFILL_CHUNK_TOKENS)
                await self._mlx.start(model.read, request, text[at : at + size])
        except KafilaError as error:
            log.info("draft_model_reads_no_further reason=%s", error)


def _timed(model: DraftModel, request: int, text: Sequence[int], most: int) -> tuple[Sequence[int], float]:
    began = monotonic()
    return model.guess(request, text, most), monotonic() - began
