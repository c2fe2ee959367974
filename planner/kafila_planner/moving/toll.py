"""The toll of a stage: what its member has to fetch and load for it, and how long that takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from kafila_planner.model.types import BlockRanges, HeldParts, Model, Node

FETCH_BYTES_PER_S = 12.5e6
"""Where it was not measured: a line of 100 Mbit/s."""

LOAD_BYTES_PER_S = 500e6
"""Where it was not measured: a slow SSD."""

NANOSECONDS = 10**9
"""A toll is a whole number of them, so that equal tolls compare as equal."""


@dataclass(frozen=True, slots=True)
class Toll:
    """Of one stage, or of several: bytes that come over the network, bytes that come into memory, and the time."""

    fetch_bytes: int = 0
    load_bytes: int = 0
    ns: int = 0

    @property
    def seconds(self) -> float:
        return self.ns / NANOSECONDS

    def with_(self, other: "Toll") -> "Toll":
        return Toll(self.fetch_bytes + other.fetch_bytes, self.load_bytes + other.load_bytes, self.ns + other.ns)


@dataclass(frozen=True, slots=True)
class Gate:
    """One member's tolls. `fetch` and `load` are running sums over blocks of the bytes that are missing here, `ns` of
    the time that these take; the head's are beside.

    Without holdings nothing is here, and rates are the assumed ones.
    """

    fetch: tuple[int, ...]
    load: tuple[int, ...]
    head_fetch: int
    head_load: int
    ns: tuple[int, ...]
    head_ns: int

    def toll(self, start: int, end: int, is_head: bool) -> Toll:
        """Of blocks [start, end), with what the head holds."""
        fetch = self.fetch[end] - self.fetch[start] + (self.head_fetch if is_head else 0)
        load = self.load[end] - self.load[start] + (self.head_load if is_head else 0)
        return Toll(fetch, load, self.ns[end] - self.ns[start] + (self.head_ns if is_head else 0))


def gate_of(model: Model, member: Node) -> Gate:
    """A member's tolls for all stages that it might have."""
    held = member.holds or HeldParts()
    in_memory, here = _blocks(held.memory_blocks), _blocks((*held.disk_blocks, *held.memory_blocks))
    load, fetch = _missing(model.block_bytes, in_memory), _missing(model.block_bytes, here)
    head_load = 0 if held.memory_head else model.head_held_bytes
    head_fetch = 0 if held.disk_head else head_load
    return Gate(
        fetch=fetch,
        load=load,
        head_fetch=head_fetch,
        head_load=head_load,
        ns=tuple(_ns(held, *missing) for missing in zip(fetch, load, strict=True)),
        head_ns=_ns(held, head_fetch, head_load),
    )


def _ns(held: HeldParts, fetch_bytes: int, load_bytes: int) -> int:
    fetch_s = fetch_bytes / (held.fetch_bytes_per_s or FETCH_BYTES_PER_S)
    load_s = load_bytes / (held.load_bytes_per_s or LOAD_BYTES_PER_S)
    return round((fetch_s + load_s) * NANOSECONDS)


def _blocks(ranges: BlockRanges) -> frozenset[int]:
    return frozenset(block for start, end in ranges for block in range(start, end))


def _missing(block_bytes: Sequence[int], here: frozenset[int]) -> tuple[int, ...]:
    """Running sums, with one entry more than there are blocks."""
    lacking = (0 if block in here else size for block, size in enumerate(block_bytes))
    return tuple(accumulate(lacking, initial=0))
