"""Runs a part of an architecture's own Model by doctoring its list of blocks. MLX thread only.

Every block keeps its place, its class and its plain attributes, so index arithmetic, layer types and masks work as
written. What changes is what a call of it does: blocks that aren't ours let the state through, the block at our entry
takes the received state, and the block just past our end stops the whole call.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten

from kafila_sidecar.errors import Refused
from kafila_sidecar.models.family import Beside, Family, Spread
from kafila_sidecar.runtime.shard.carried import Carried

Given = dict[str, Any]  # what a block is called with, by parameter
Forward = Callable[[Given], Any]
Handler = Callable[[Given, Forward], Any]


class _Stopped(Exception):
    """No error: it carries the state out of the Model's call."""

    def __init__(self, carried: Carried) -> None:
        self.carried = carried


class PartialModel:
    """What the blocks of one Model do during the present call.

    Letters: B sequences, T tokens, D hidden size, V vocabulary.
    """

    def __init__(
        self, model: Module, family: Family, beside: Sequence[Beside], *, start: int, end: int, idle: list[Any]
    ) -> None:
        """beside: the values that travel in this very Model. idle: caches for calls in which no block runs."""
        self._model, self._family, self._idle = model, family, idle
        self._blocks = blocks_of(model, family)
        self._ours = range(start, end)
        self._beside = beside
        self._each = [one for one in beside if one.reach is Spread.EACH]
        self._received: Carried | None = None
        self._head_only = False
        self._is_whole = False  # nothing leaves: norm and unembedding follow at once
        self._leaving: Carried | None = None  # complete but for the values of the blocks past our end
        self._doctor()

    def of_tokens(self, tokens: mx.array, slots: list[Any]) -> Carried:
        """[B, T] ids through the embedding and our blocks: the state [B, T, D] after them, lazy."""
        return self._until_stopped(tokens, slots, None)

    def of_state(self, received: Carried, slots: list[Any]) -> Carried:
        """A received state through our blocks, lazy."""
        return self._until_stopped(_no_tokens(received), slots, received)

    def of_head(self, received: Carried) -> mx.array:
        """The state after the last block through norm and unembedding: logits [B, T, V], lazy."""
        self._received, self._head_only = received, True
        try:
            logits: mx.array = self._model(_no_tokens(received), cache=self._idle)
        finally:
            self._received, self._head_only = None, False
        return logits

    def of_whole(self, tokens: mx.array, slots: list[Any]) -> mx.array:
        """[B, T] ids through all of the model, whose blocks are all ours: logits [B, T, V], lazy."""
        self._is_whole = True
        try:
            logits: mx.array = self._model(tokens, cache=slots)
        finally:
            self._is_whole = False
        return logits

    def of_norm(self, received: Carried) -> mx.array:
        """The state after the last block and the norm behind it, [B, T, D], lazy: what the unembedding would get.

        Raises: Refused where the architecture's code has no part that returns it.
        """
        path = self._family.blocks.rpartition(".")[0]
        with _stopping_after(module_at(self._model, path)) if path else nullcontext():
            try:
                self.of_head(received)
            except _Stopped as stopped:
                normed: Any = stopped.carried.hidden
                if isinstance(normed, mx.array) and normed.shape[-1] == received.hidden.shape[-1]:
                    return normed
        raise Refused("the code of this model's architecture gives no states of which embeddings could be made")

    @property
    def ends(self) -> Sequence[int]:
        """Our first block and our last one."""
        return sorted({*self._ours[:1], *self._ours[-1:]})

    @contextmanager
    def only(self, block: int) -> Iterator[None]:
        """Calls in here run no more of our blocks than this one."""
        ours = self._ours
        self._ours = range(block, block + 1)
        try:
            yield
        finally:
            self._ours = ours

    def weights(self) -> dict[str, mx.array]:
        """All arrays that the model has, by name; those of other stages may be lazy."""
        model: Any = self._model
        flat: Any = tree_flatten(model.parameters())
        return dict(flat)

    def free(self) -> None:
        """Takes the weights out of the model; it can't be called any more."""
        strip(self._model)

    def _until_stopped(self, tokens: mx.array, slots: list[Any], received: Carried | None) -> Carried:
        self._received, self._leaving = received, None
        try:
            self._model(tokens, cache=slots)
        except _Stopped as stopped:
            return stopped.carried
        finally:
            self._received = self._leaving = None
        raise RuntimeError("the model ran past the last block of this stage")

    def _doctor(self) -> None:
        for index, block in enumerate(self._blocks):
            redirect(block, partial(self._at_block, index, self._family.state or first_parameter(block)))
        embedding = module_at(self._model, self._family.embedding)
        redirect(embedding, partial(self._at_embedding, first_parameter(embedding)))

    def _at_block(self, index: int, state: str, given: Given, forward: Forward) -> Any:
        """What block `index` returns to the architecture's loop; `state` is the parameter of the hidden state."""
        received, ours = self._received, self._ours
        if self._head_only and received is not None:
            return passed(self._family, received.hidden)
        if index == ours.start and received is not None:
            given[state] = received.hidden
        if index in ours:
            if received is not None:
                self._take(index, given, received)
            answer = forward(given)
            if index + 1 == ours.stop == len(self._blocks) and not self._is_whole:
                raise _Stopped(Carried(answer[0] if self._family.returns > 1 else answer))
            return answer
        if index >= ours.stop:
            self._leave(index, given[state], given)
        return passed(self._family, given[state])

    def _take(self, index: int, given: Given, received: Carried) -> None:
        """Puts what came beside the state into a block's call."""
        entry = self._ours.start
        for beside in self._beside:
            value = received.beside[beside.parameter]
            if beside.reach is Spread.EACH:
                given[beside.parameter] = value[:, :, index - entry]
            elif beside.reach is Spread.SAME or index == entry:
                given[beside.parameter] = value

    def _leave(self, index: int, hidden: mx.array, given: Given) -> None:
        """Gathers what leaves with the state, and stops when that is complete."""
        if self._leaving is None:
            received = self._received.beside if self._received else {}
            same = {one.parameter for one in self._beside if one.reach is Spread.SAME}
            beside = given | {name: value for name, value in received.items() if name in same}
            beside = {one.parameter: beside[one.parameter] for one in self._beside if one not in self._each}
            self._leaving = Carried(hidden, beside | {one.parameter: [] for one in self._each})
        for one in self._each:
            self._leaving.beside[one.parameter].append(self._later(one, index, given))
        if not self._each or index + 1 == len(self._blocks):
            stacked = {one.parameter: mx.stack(self._leaving.beside[one.parameter], axis=2) for one in self._each}
            raise _Stopped(Carried(self._leaving.hidden, {**self._leaving.beside, **stacked}))

    def _later(self, one: Beside, index: int, given: Given) -> mx.array:
        """The value of a block past our end: as received, or as the architecture made it from the tokens."""
        if self._received is None:
            value: mx.array = given[one.parameter]
        else:
            value = self._received.beside[one.parameter][:, :, index - self._ours.start]
        return value

    def _at_embedding(self, tokens: str, given: Given, embed: Forward) -> Any:
        """The embedding of the ids, or a placeholder of the received state's shape and type."""
        return embed(given) if self._received is None else mx.zeros_like(self._received.single)


@contextmanager
def _stopping_after(module: Module) -> Iterator[None]:
    """A call of the module in here ends the whole call, with what it returns."""
    kind = type(module)

    def call(self: Module, *args: Any, **kwargs: Any) -> Any:
        raise _Stopped(Carried(kind.__call__(self, *args, **kwargs)))

    module.__class__ = type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})
    try:
        yield
    finally:
        module.__class__ = kind


def passed(family: Family, hidden: Any) -> Any:
    """What a block that isn't ours returns."""
    return hidden if family.returns == 1 else (hidden, *[None] * (family.returns - 1))


def blocks_of(model: Module, family: Family) -> list[Any]:
    return list(module_at(model, family.blocks))


def strip(module: Any) -> None:
    """Takes every array out of a module that isn't ours; its structure and plain attributes stay."""
    for part in module.modules():
        for name in [name for name, value in part.items() if isinstance(value, mx.array)]:
            del part[name]


def module_at(model: Module, path: str) -> Module:
    """The submodule at a dotted path.

    Raises: AttributeError when the architecture has none there.
    """
    module = model
    for name in path.split("."):
        module = getattr(module, name)
    return module


def first_parameter(module: Module) -> str:
    return parameters_of(type(module))[0]


def redirect(module: Module, handler: Handler) -> None:
    """Lets `handler(what it is called with, original)` answer the calls of one module, which else stays what it is."""
    kind = type(module)
    names = parameters_of(kind)

    @wraps(kind.__call__)
    def call(self: Module, *args: Any, **kwargs: Any) -> Any:
        return handler({**dict(zip(names, args, strict=False)), **kwargs}, lambda given: kind.__call__(self, **given))

    module.__class__ = type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


def parameters_of(kind: type) -> tuple[str, ...]:
    """What a call of a module takes, in order; a doctored one's as it was before."""
    plain: Mapping[str, Any] = inspect.signature(kind.__call__).parameters
    return tuple(plain)[1:]


def _no_tokens(received: Carried) -> mx.array:
    """Ids to call a Model with that must not read them."""
    return mx.zeros(received.single.shape[:2], dtype=mx.int32)
