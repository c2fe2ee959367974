"""What this machine has of a session's model, as the planner reads it: the field `holds` of its entry."""

import asyncio
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from kafila_sidecar.session.coordination.effects import Json
from kafila_sidecar.session.coordination.planning_terms import HOLDS
from kafila_sidecar.sharing.rates import Rates
from kafila_sidecar.weights.checkpoint import Checkpoint

BlockSpan = tuple[int, int]
"""Blocks [start, end)."""


class Inventory:
    """Of one checkpoint on this disk, which all sessions of it share."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint

    async def entry(self, rates: Rates, *, in_memory: BlockSpan = (0, 0), memory_head: bool = False) -> Json:
        """For the planner. Reads no weights."""
        on_disk = await asyncio.to_thread(self._on_disk)
        return {
            HOLDS: {
                "disk_blocks": spans_of(on_disk),
                "memory_blocks": [list(in_memory)] if in_memory[0] < in_memory[1] else [],
                "disk_head": self._is_here(self.head),
                "memory_head": memory_head,
                "fetch_bytes_per_s": self._told(rates.fetch_bytes_per_s),
                "load_bytes_per_s": rates.load_bytes_per_s,
            }
        }

    @cached_property
    def blocks(self) -> tuple[frozenset[str], ...]:
        """The tensors of each block."""
        count = self._checkpoint.sizes["blocks"]
        return tuple(self._checkpoint.shard(start=at, end=at + 1, head=False) for at in range(count))

    @cached_property
    def head(self) -> frozenset[str]:
        """The tensors that only the head has."""
        return self._checkpoint.shard(start=0, end=0, head=True)

    def _on_disk(self) -> list[int]:
        return [block for block, names in enumerate(self.blocks) if self._is_here(names)]

    def _is_here(self, names: frozenset[str]) -> bool:
        return not self._checkpoint.download_bytes(names)

    def _told(self, rate: float | None) -> float | None:
        """In bytes as they are once they are in memory, which are fewer where they are packed while loading."""
        if rate is None:
            return None
        files = sum(map(self._checkpoint.shard_bytes, self.blocks))
        return rate * _total(self._checkpoint.sizes) / files if files else rate


def spans_of(blocks: Iterable[int]) -> list[list[int]]:
    """Ascending block numbers as pairs of a first one and the one after the last."""
    return [list(span) for span in _spans(blocks)]


def _spans(blocks: Iterable[int]) -> Iterator[BlockSpan]:
    start = end = None
    for block in blocks:
        if block != end:
            if start is not None and end is not None:
                yield start, end
            start = block
        end = block + 1
    if start is not None and end is not None:
        yield start, end


def _total(sizes: dict[str, Any]) -> int:
    each = sizes["block_bytes"]
    return sum(each) if isinstance(each, list) else int(each) * int(sizes["blocks"])
