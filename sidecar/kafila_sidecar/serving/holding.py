"""The blocks that this member has in memory, from one epoch to the next."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.still import LOOK_S, unless_still

log = logging.getLogger(__name__)

LoadShard = Callable[..., Shard]
"""`Shard.load`, on the MLX thread."""


class Part(NamedTuple):
    """The blocks [start, end) of a checkpoint, with what else the head has if `head`."""

    start: int
    end: int
    head: bool

    def common(self, other: "Part") -> "Part":
        """What both parts have."""
        start = max(self.start, other.start)
        return Part(start, max(start, min(self.end, other.end)), self.head and other.head)


class Holding:
    """At most one shard at a time, always of the same checkpoint, packed to `bits` while it is loaded (0: as it is).

    `shard` changes on the MLX thread, whose calls keep their order: a load that was cancelled while it ran is taken
    over or freed by the call after it.
    """

    def __init__(self, mlx: MlxThread, *, bits: int = 0, load: LoadShard = Shard.load, look_s: float = LOOK_S) -> None:
        """look_s: between two looks at whether loading goes on, see `unless_still`."""
        self._load = load
        self._look_s = look_s
        self.parts_come = 0  # since ever; counted where they are loaded
        self.shard: Shard | None = None
        self._part = Part(0, 0, False)  # of the shard
        self._may_hold = False  # a shard, or has asked the MLX thread for one
        self._freeing: asyncio.Task[None] | None = None
        self._mlx = mlx
        self._bits = bits

    async def hold(
        self, folder: Path, files: Callable[[], Mapping[Path, Collection[str]]], *, start: int, end: int, head: bool
    ) -> None:
        """Loads the blocks [start, end), with embedding, norm and unembedding if `head`. What is held of them already
        stays and is not read again; what is held of others is freed before anything comes. `folder` and what `files`
        gives, on the MLX thread, as in `Shard.load`.

        Raises:
            KafilaError: as `files` does; what was held stays.
            Refused: weights are missing or don't fit; nothing is held then.
            TimedOut: nothing comes any more. What comes after all is freed by the next `free`.
        """
        self._may_hold = True
        outcome = self._mlx.start(self._take_over, folder, files, start, end, head)
        await self.unless_still(outcome, f"loading blocks {start} to {end - 1}")

    def keeps(self, part: Part) -> Part:
        """What of a part is in memory already, and stays."""
        return Part(0, 0, False) if self.shard is None else self._part.common(part)

    async def free(self) -> None:
        """Holds nothing any more. Who waits for it no longer does not keep it from being done."""
        if self._may_hold:
            await asyncio.shield(self._mlx.start(self._free))
            self._may_hold = False

    def free_soon(self) -> None:
        """The same, while others go on: another stage holds it now."""
        self._freeing = asyncio.create_task(self.free(), name="free what another stage holds now")
        self._freeing.add_done_callback(_freed)

    async def freed(self) -> None:
        """Returns once that is done, if it was begun; whether it could be or not. Raises TimedOut as `unless_still`."""
        if self._freeing is not None:
            await self.unless_still(asyncio.wait((self._freeing,)), "freeing what another stage holds now")

    async def close(self) -> None:
        """Holds nothing any more, however long that takes."""
        if self._freeing is not None:
            await asyncio.wait((self._freeing,))
        await self.free()

    async def unless_still(self, work: Awaitable[object], what: str) -> None:
        """Waits for what the MLX thread does. Raises TimedOut where that stands still, which does it all the same if it
        goes on: behind a load that nobody wants any more, as long as parts of it come."""
        outcome = asyncio.ensure_future(work)
        await unless_still(outcome, what=what, sign=lambda: self.parts_come, look_s=self._look_s)

    def _take_over(
        self, folder: Path, files: Callable[[], Mapping[Path, Collection[str]]], start: int, end: int, head: bool
    ) -> None:
        opened = files()
        before, self.shard = self.shard, None
        self.shard = self._load(
            folder=folder,
            files=opened,
            start=start,
            end=end,
            head=head,
            bits=self._bits,
            before=before,
            quick=True,
            came=self._one_came,
        )
        self._part = Part(start, end, head)
        self.shard.learn_steps(before)

    def _one_came(self) -> None:
        self.parts_come += 1

    def _free(self) -> None:
        shard, self.shard = self.shard, None
        if shard is not None:
            shard.close()


def _freed(freeing: "asyncio.Task[None]") -> None:
    """What could not be freed is freed by the next load."""
    if not freeing.cancelled() and (error := freeing.exception()):
        log.warning("not_freed error=%r", error)
