"""Stages of a checkpoint's own configuration with made-up weights, to be measured before there are real ones.

They are `Shard`s, so that what is measured is what a stage will do. MLX thread only.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx.nn.layers.quantized import quantize
from mlx.utils import tree_flatten, tree_unflatten

from kafila_sidecar.models.family import tying_of
from kafila_sidecar.models.quantisation import quantisation_of
from kafila_sidecar.runtime.shard.arrays import DTYPES, pack
from kafila_sidecar.runtime.shard.kv import Sequences
from kafila_sidecar.runtime.shard.loading import build, strip_absent, weight_bytes
from kafila_sidecar.runtime.shard.partial import doctor
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState


class CheckpointShape:
    """One configuration in one element type (a key of `DTYPES`)."""

    def __init__(self, config: Mapping[str, Any], dtype: str) -> None:
        self._config, self._dtype = config, dtype
        self._tied = tying_of(config) is not False
        family, model = build(config, tied=self._tied)
        self.blocks = len(model.layers)
        self.block_weights = sum(array.size for array in _arrays(model.layers[0]) if array.ndim > 1)
        self._form(model)
        self.block_bytes = weight_bytes(model.layers[0])
        strip_absent(model, family, start=0, end=0, head=True)
        self.head_bytes = weight_bytes(model)

    def stage(self, *, end: int, head: bool) -> Shard:
        """A stage with the blocks [0, end), and with embedding, norm and unembedding if `head`."""
        family, model = build(self._config, tied=self._tied)
        self._form(model)
        strip_absent(model, family, start=0, end=end, head=head)
        _make_up(model)
        size = weight_bytes(model)
        passage = doctor(model, family.embedding, start=0, end=end)
        sequences = Sequences(model, start=0, end=end)
        return Shard(passage=passage, sequences=sequences, width=int(self._config["hidden_size"]), weight_bytes=size)

    def state(self, *, batch: int, tokens: int) -> HiddenState:
        """Random hidden states [batch, tokens, D] at position 0."""
        width = int(self._config["hidden_size"])
        return pack(mx.random.normal((batch, tokens, width)).astype(DTYPES[self._dtype]), 0)

    def _form(self, model: Any) -> None:
        """Puts the model, still lazy, into the checkpoint's element type and quantisation."""
        model.set_dtype(DTYPES[self._dtype])
        quantisation = quantisation_of(self._config)
        if quantisation is None:
            return
        group, bits = quantisation["group_size"], quantisation["bits"]

        def form(path: str, module: Any) -> Any:
            fits = hasattr(module, "to_quantized") and module.weight.shape[-1] % group == 0
            return quantisation.get(path, True) if fits else False

        quantize(model, group_size=group, bits=bits, class_predicate=form)


def _arrays(module: Any) -> list[mx.array]:
    flat: Any = tree_flatten(module.parameters())
    return [array for _, array in flat]


def _make_up(model: Any) -> None:
    """Gives a lazy model arrays of the same shapes and types in memory of their own."""
    shapes: Any = tree_flatten(model.parameters())
    model.update(tree_unflatten([(name, _made_up(array)) for name, array in shapes]))
    mx.eval(model.parameters())


def _made_up(array: mx.array) -> mx.array:
    """One random row again and again, which is quick to make."""
    row = array.shape[-1:]
    if mx.issubdtype(array.dtype, mx.floating):
        values = (0.02 * mx.random.normal(row)).astype(array.dtype)
    else:
        values = mx.random.randint(0, 1 << 30, row).astype(array.dtype)
    return mx.contiguous(mx.broadcast_to(values, array.shape))
