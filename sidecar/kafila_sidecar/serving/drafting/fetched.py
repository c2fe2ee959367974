"""A draft model's checkpoint, brought here whole."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from kafila_sidecar.models.family import embedded_ids
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.serving.drafting.drafts import LoadDraft
from kafila_sidecar.serving.drafting.model import DraftModel
from kafila_sidecar.weights.checkpoint import Checkpoint


@asynccontextmanager
async def fetched(opened: Callable[[], Awaitable[Checkpoint]], *, model: Mapping[str, Any]) -> AsyncIterator[LoadDraft]:
    """Gives what loads it; its files stay on this disk meanwhile. opened: describes it. model: the configuration of
    that for which it guesses.

    Raises: KafilaError where it can't be had.
    """
    checkpoint = await opened()
    with checkpoint.in_use():
        blocks = len(checkpoint.anatomy.blocks)
        names = checkpoint.shard(start=0, end=blocks, head=True)
        await checkpoint.fetch(names)
        sizes = [size for size in map(embedded_ids, (model, checkpoint.config)) if size]
        yield partial(_load, checkpoint, blocks, min(sizes, default=None))


def _load(checkpoint: Checkpoint, blocks: int, size: int | None) -> DraftModel:
    files = checkpoint.files_for(checkpoint.shard(start=0, end=blocks, head=True))
    shard = Shard.load(folder=checkpoint.small_files, files=files, start=0, end=blocks, head=True)
    return DraftModel(shard, size)
