"""Weights that this machine has no stage for yet, fetched while nobody waits for anything: it needs them when somebody
is lost."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from kafila_sidecar.errors import KafilaError

log = logging.getLogger(__name__)

QUIET_S = 5.0
"""Without any work on this machine before a spare is fetched: somebody who reads an answer asks again."""
AGAIN_S = 300.0
"""Before what could not be had is tried again."""
SHARE_OF_FREE = 10
"""Without a bound of its owner's, a tenth of the free disk."""


class SpareWeights(Protocol):
    """See `sharing.session.SessionWeights`."""

    async def fetch(self, names: Iterable[str]) -> None: ...
    def download_bytes(self, names: Iterable[str]) -> int: ...
    def shard_bytes(self, names: Iterable[str]) -> int: ...


class Rest(Protocol):
    """See `runtime.activity.Activity`."""

    async def until_quiet(self, quiet_s: float) -> None: ...
    async def until_work(self) -> None: ...


class SpareRoom:
    """How many more bytes of spares this disk takes. `bound_bytes`: what the owner said, 0 for none at all; None: a
    tenth of what is free, spares counted as free. `left_bytes`: within the limit of all weights on this disk."""

    def __init__(self, folder: Path, *, bound_bytes: int | None, left_bytes: Callable[[], int | None]) -> None:
        self._folder = folder
        self._bound_bytes = bound_bytes
        self._left_bytes = left_bytes

    @property
    def is_off(self) -> bool:
        """The owner wants none."""
        return self._bound_bytes == 0

    def left(self, spare_bytes: int) -> int:
        """With so many bytes of spares here already. Blocks for as long as the disk takes."""
        free_bytes = shutil.disk_usage(self._folder).free
        bound = (free_bytes + spare_bytes) // SHARE_OF_FREE if self._bound_bytes is None else self._bound_bytes
        left = min(bound - spare_bytes, free_bytes)
        within = self._left_bytes()
        return max(0, left if within is None else min(left, within))


class Spares:
    """Fetches them one after another, each as a whole or, when work begins here, as far as it has come."""

    def __init__(self, *, weights: SpareWeights, room: SpareRoom, rest: Rest, quiet_s: float = QUIET_S) -> None:
        self._weights = weights
        self._room = room
        self._rest = rest
        self._quiet_s = quiet_s

    @property
    def is_off(self) -> bool:
        """Nothing may be fetched."""
        return self._room.is_off

    async def fetch(self, wanted: Sequence[frozenset[str]], own: frozenset[str], everything: frozenset[str]) -> bool:
        """Brings the tensors of each block or head, the most urgent first, as long as there is room; whether anything
        came. `own`: of this machine's stage, which are no spares. To be cancelled when they are wanted no more."""
        came = False
        for names in wanted:
            if not self._weights.download_bytes(names):
                continue
            if self._weights.download_bytes(names) > await self._left(everything - own):
                log.info("spare_left_out bytes=%d", self._weights.download_bytes(names))
                return came
            await self._bring(names)
            came = True
        log.info("spares_complete parts=%d", len(wanted))
        return came

    async def _left(self, others: frozenset[str]) -> int:
        spare_bytes = self._weights.shard_bytes(others) - self._weights.download_bytes(others)
        return await asyncio.to_thread(self._room.left, spare_bytes)

    async def _bring(self, names: frozenset[str]) -> None:
        """All of it, through as many pauses as it takes."""
        while missing_bytes := self._weights.download_bytes(names):
            await self._rest.until_quiet(self._quiet_s)
            try:
                await self._until_work_begins(names)
            except KafilaError as error:
                log.info("spare_not_fetched code=%s reason=%s", error.code, error)
                await asyncio.sleep(AGAIN_S)
            fetched_bytes = missing_bytes - self._weights.download_bytes(names)
            log.info("spare_fetched bytes=%d missing_bytes=%d", fetched_bytes, missing_bytes - fetched_bytes)

    async def _until_work_begins(self, names: frozenset[str]) -> None:
        """Raises KafilaError as fetching does."""
        fetching = asyncio.ensure_future(self._weights.fetch(names))
        working = asyncio.ensure_future(self._rest.until_work())
        both = (fetching, working)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)
        if not fetching.cancelled():
            fetching.result()
