"""A part of the checkpoint brought into memory: what is not there yet is fetched, then loaded."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Protocol

from kafila_sidecar.serving.holding import Holding, Part
from kafila_sidecar.serving.telling import FetchTelling
from kafila_sidecar.session.driving.jobs import Progress
from kafila_sidecar.weights.fetching import landing


class StageWeights(Protocol):
    """A checkpoint, with or without the other members as its sources; see `weights.checkpoint.Checkpoint`."""

    @property
    def small_files(self) -> Path: ...
    def shard(self, *, start: int, end: int, head: bool) -> frozenset[str]: ...
    async def fetch(
        self, names: Iterable[str], *, progress: landing.Progress | None = None, waiting: landing.Waiting | None = None
    ) -> None: ...
    def download_bytes(self, names: Iterable[str]) -> int: ...
    def files_for(self, names: Iterable[str]) -> dict[Path, frozenset[str]]: ...


class PartLoader:
    """Loads parts of one checkpoint into what this member holds of it."""

    def __init__(self, weights: StageWeights, holding: Holding) -> None:
        self._weights = weights
        self._holding = holding

    async def load(self, part: Part, progress: Progress) -> None:
        """What is held of the part already stays.

        Raises:
            KafilaError: as `StageWeights.fetch` and `Holding.hold` do.
        """
        names = self._weights.shard(**part._asdict())
        await self._fetch(names, part, FetchTelling(progress))
        progress("loading", 0, 0)
        files = partial(self._weights.files_for, names)
        await self._holding.hold(self._weights.small_files, files, **part._asdict())

    async def _fetch(self, names: frozenset[str], part: Part, telling: FetchTelling) -> None:
        """What is not in memory, unless that turns out to be what somebody gave wrongly."""
        await self._holding.freed()
        kept = self._weights.shard(**self._holding.keeps(part)._asdict())
        await self._weights.fetch(names - kept, progress=telling.came, waiting=telling.waits)
        if self._weights.download_bytes(names):
            await self._holding.unless_still(self._holding.free(), "freeing what came damaged")
            await self._weights.fetch(names, progress=telling.came, waiting=telling.waits)
