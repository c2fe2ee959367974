"""Runs a part of an architecture's own Model by doctoring its list of blocks. MLX thread only.

Every block keeps its place, its class and its plain attributes, so index arithmetic, layer types and masks work as
written. What changes is what a call of it does: blocks that aren't ours let the state through, the block at our entry
takes the received state, and the block just past our end stops the whole call.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten

Forward = Callable[[mx.array], mx.array]


class _Stopped(Exception):
    """No error: it carries the state out of the Model's call."""

    def __init__(self, hidden: mx.array) -> None:
        self.hidden = hidden


class PartialModel:
    """What the blocks of one Model do during the present call.

    Letters: B sequences, T tokens, D hidden size, V vocabulary.
    """

    def __init__(self, model: Module, *, start: int, end: int) -> None:
        self._model = model
        self._count = len(model.layers)
        self._ours = range(start, end)
        self._incoming: mx.array | None = None
        self._head_only = False

    def of_tokens(self, tokens: mx.array, slots: list[Any]) -> mx.array:
        """[B, T] ids through the embedding and our blocks: the state [B, T, D] after them, lazy."""
        self._incoming, self._head_only = None, False
        return self._until_stopped(tokens, slots)

    def of_state(self, hidden: mx.array, slots: list[Any]) -> mx.array:
        """A received state [B, T, D] through our blocks, lazy."""
        self._incoming, self._head_only = hidden, False
        return self._until_stopped(_no_tokens(hidden), slots)

    def of_head(self, hidden: mx.array, slots: list[Any]) -> mx.array:
        """The state [B, T, D] after the last block through norm and unembedding: logits [B, T, V], lazy."""
        self._incoming, self._head_only = hidden, True
        try:
            logits: mx.array = self._model(_no_tokens(hidden), cache=slots)
        finally:
            self._incoming = None
        return logits

    def at_block(self, index: int, hidden: mx.array, forward: Forward) -> mx.array:
        """What block `index` returns to the architecture's loop when that hands it `hidden`."""
        received = self._incoming
        if self._head_only and received is not None:
            return received
        if index == self._ours.start and received is not None:
            hidden = received
        if index == self._ours.stop:
            raise _Stopped(hidden)
        if index in self._ours:
            hidden = forward(hidden)
        if index + 1 == self._ours.stop == self._count:
            raise _Stopped(hidden)
        return hidden

    def at_embedding(self, tokens: mx.array, embed: Forward) -> mx.array:
        """The embedding of the ids, or a placeholder of the received state's shape and type."""
        return embed(tokens) if self._incoming is None else mx.zeros_like(self._incoming)

    def _until_stopped(self, tokens: mx.array, slots: list[Any]) -> mx.array:
        try:
            self._model(tokens, cache=slots)
        except _Stopped as stopped:
            return stopped.hidden
        finally:
            self._incoming = None
        raise RuntimeError("the model ran past the last block of this stage")

    def weights(self) -> dict[str, mx.array]:
        """All arrays that the model holds, by name."""
        model: Any = self._model
        flat: Any = tree_flatten(model.parameters())
        return dict(flat)

    def free(self) -> None:
        """Takes the weights out of the model; it can't be called any more."""
        strip(self._model)


def doctor(model: Module, embedding: str, *, start: int, end: int) -> PartialModel:
    """Doctors the blocks of `model` and the embedding at the module path `embedding`, in place."""
    passage = PartialModel(model, start=start, end=end)
    for index, block in enumerate(model.layers):
        _redirect(block, partial(passage.at_block, index))
    _redirect(module_at(model, embedding), passage.at_embedding)
    return passage


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


def _redirect(module: Module, handler: Callable[[mx.array, Forward], mx.array]) -> None:
    """Lets `handler(first_argument, original)` answer the calls of one module, which otherwise stays what it is."""
    kind = type(module)

    def call(self: Module, first: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        return handler(first, lambda x: kind.__call__(self, x, *args, **kwargs))

    module.__class__ = type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


def _no_tokens(hidden: mx.array) -> mx.array:
    """Ids to call a Model with that must not read them."""
    return mx.zeros(hidden.shape[:2], dtype=mx.int32)
