"""Which cache each block of a Model uses, what it needs of other blocks, and what crosses a cut. MLX thread only.

The architecture's own loop is run once with blocks that only say what they were called with: nothing is computed, no
weight is read, and index arithmetic of any kind is followed as written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from kafila_sidecar.models.family import Family, Spread
from kafila_sidecar.runtime.shard.carried import Packing
from kafila_sidecar.runtime.shard.partial import Forward, Given, blocks_of, first_parameter, module_at, redirect


@dataclass(frozen=True, slots=True)
class Place:
    """One block. slot: its cache's place in the list that `make_cache` makes, None for a block without.

    needs: blocks whose caches or values it reads, and which therefore have to be on its stage.
    """

    slot: int | None
    needs: frozenset[int]


@dataclass(frozen=True, slots=True)
class RollCall:
    """width: D. streams: of the state, 0 where it has no axis for them. beside: the shape behind [B, T] of the values
    that travel, for one block where each has its own."""

    places: tuple[Place, ...]
    slots: int
    width: int
    streams: int
    beside: dict[str, tuple[int, ...]]

    def no_cut_after(self) -> tuple[int, ...]:
        """The blocks i with something that block i + 1 or a later one must have on its own stage."""
        held = {cut for index, place in enumerate(self.places) for need in place.needs for cut in range(need, index)}
        return tuple(sorted(held))

    def slots_of(self, start: int, end: int, *, head: bool) -> list[int]:
        """The caches that a stage keeps; those that no block uses belong to the embedding."""
        own = {place.slot for place in self.places[start:end]} - {None}
        if head:
            own |= set(range(self.slots)) - {place.slot for place in self.places}
        return sorted(slot for slot in own if slot is not None)

    def packing(self, family: Family, block: int) -> Packing:
        """How what enters block `block` lies on the wire; after the last block nothing but the state is left."""
        left = len(self.places) - block
        each = {one.parameter for one in family.beside if one.reach is Spread.EACH}
        shapes = {name: (left, *shape) if name in each else shape for name, shape in self.beside.items()}
        return Packing(self.width, self.streams, shapes if left else {})


def call_roll(model: Module, family: Family, caches: Sequence[Any]) -> RollCall:
    """Runs the Model's loop with an embedding of zeros. Leaves its modules as they were."""
    blocks, embedding = blocks_of(model, family), module_at(model, family.embedding)
    width, kinds = embedding_width(embedding), [type(module) for module in (*blocks, embedding)]
    clerk = _Clerk(family, list(caches), len(blocks))
    for index, block in enumerate(blocks):
        redirect(block, partial(clerk.at_block, index, family.state or first_parameter(block)))
    redirect(embedding, lambda given, embed: mx.zeros((1, 1, width)))
    try:
        model(mx.zeros((1, 1), dtype=mx.int32), cache=list(caches))
    except _AllThere:
        pass
    finally:
        for module, kind in zip((*blocks, embedding), kinds, strict=True):
            module.__class__ = kind
    return RollCall(tuple(clerk.places), len(caches), width, clerk.streams, clerk.beside)


def embedding_width(embedding: Module) -> int:
    """D, of an embedding that isn't quantised yet, or of one made of several."""
    parts: list[Any] = embedding.modules()  # type: ignore[no-untyped-call]
    return max(int(part.weight.shape[-1]) for part in parts if "weight" in part)


class _AllThere(Exception):
    """No error: it ends the Model's call."""


class _Clerk:
    def __init__(self, family: Family, caches: list[Any], blocks: int) -> None:
        self._family, self._blocks = family, blocks
        self._slots = {id(cache): slot for slot, cache in enumerate(caches)}
        self._first_user: dict[int, int] = {}
        self._makers: dict[int, int] = {}  # which block made a value, by its id
        self._kept: list[object] = []  # so that ids stay what they are
        self.places: list[Place] = []
        self.streams = 0
        self.beside: dict[str, tuple[int, ...]] = {}

    def at_block(self, index: int, state: str, given: Given, forward: Forward) -> Any:
        chained = {one.parameter for one in self._family.beside if one.reach is Spread.CHAINED}
        slot = next((self._slots[id(value)] for value in given.values() if id(value) in self._slots), None)
        needs = {self._makers[id(value)] for name, value in given.items() if name not in chained and self._made(value)}
        if slot is not None and self._first_user.setdefault(slot, index) != index:
            needs.add(self._first_user[slot])
        self.places.append(Place(slot, frozenset(needs)))
        if index == 0:
            self._note(given[state], given, forward)
        if index + 1 == self._blocks:
            raise _AllThere
        return self._passed(index, given[state])

    def _made(self, value: Any) -> bool:
        return id(value) in self._makers

    def _passed(self, index: int, hidden: mx.array) -> Any:
        if self._family.returns == 1:
            return hidden
        beside = [object() for _ in range(self._family.returns - 1)]
        self._kept += beside
        self._makers |= {id(value): index for value in beside}
        return (hidden, *beside)

    def _note(self, hidden: mx.array, given: Given, forward: Forward) -> None:
        """What goes into the first block, which tells the shapes; what comes out of it where values are handed on."""
        self.streams = hidden.shape[0] if hidden.ndim == 4 else 0
        chained = [one.parameter for one in self._family.beside if one.reach is Spread.CHAINED]
        returned = dict(zip(chained, forward(dict(given))[1:], strict=True)) if chained else {}
        for one in self._family.beside:
            value = returned.get(one.parameter, given[one.parameter])
            if value is not None:
                self.beside[one.parameter] = tuple(value.shape[2:])
