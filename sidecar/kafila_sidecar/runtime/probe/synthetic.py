"""Stages of a checkpoint's own configuration with made-up weights, to be measured before there are real ones.

They are `Shard`s, so that what is measured is what a stage will do. MLX thread only.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import mlx.core as mx
from mlx.nn.layers.quantized import quantize
from mlx.utils import tree_flatten, tree_unflatten

from kafila_sidecar.runtime.shard.arrays import DTYPES, pack
from kafila_sidecar.runtime.shard.making.building import Built, build, flat
from kafila_sidecar.runtime.shard.making.loading import strip_absent
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState

SMALL_SCALES: Mapping[str, int] = {"mxfp4": 120, "mxfp8": 120, "nvfp4": 24}
"""Of groups, by the way of packing: 2⁻⁷ and 2⁻⁴ as their bytes say it."""
SMALL_NUMBERS = 0xBFBFBFBF
"""The bits of four 8-bit floats below 2; some above are no numbers."""

UNTIED = ("lm_head.weight",)
"""Where the configuration is silent: an unembedding of its own costs what the embedding does in its place."""


class CheckpointShape:
    """One configuration in one element type (a key of `DTYPES`)."""

    def __init__(self, config: Mapping[str, Any], dtype: str) -> None:
        self._config, self._dtype = config, dtype
        built = build(config, UNTIED)
        self._first = _typical(built)
        self.blocks = built.count - self._first
        self.block_weights = sum(array.size for array in _arrays(built.blocks[self._first]) if array.ndim > 1)
        self._entry = built.roll.packing(built.family, self._first)
        self._form(built)
        self.block_bytes = built.weight_bytes(self._first, self._first + 1, head=False)
        self.head_bytes = built.weight_bytes(0, 0, head=True)

    def stage(self, *, end: int, head: bool) -> Shard:
        """A stage of `end` typical blocks; or the head, with embedding, norm and unembedding and the first `end`."""
        built = build(self._config, UNTIED)
        start = 0 if head else self._first
        end += start
        self._form(built)
        strip_absent(built, start=start, end=end)
        _make_up(built, start, end, head=head)
        return Shard.of(built, start, end, head=head, quick=True)

    def state(self, *, batch: int, tokens: int) -> HiddenState:
        """Random hidden states [batch, tokens, W] at position 0, with what travels beside them."""
        return pack(mx.random.normal((batch, tokens, self._entry.layout.width)).astype(DTYPES[self._dtype]), 0)

    def _form(self, built: Built) -> None:
        """Puts the model, still lazy, into the checkpoint's element type and quantisation."""
        built.model.set_dtype(DTYPES[self._dtype])
        quantisation = built.reading.quantisation
        if quantisation is None or quantisation.dequantised:
            return
        group, bits, mode = quantisation.group_size, quantisation.bits, quantisation.mode

        def form(path: str, module: Any) -> Any:
            own = quantisation.own(path)
            fits = hasattr(module, "to_quantized") and module.weight.shape[-1] % group == 0
            return fits if own is None else fits and own

        quantize(built.model, group_size=group, bits=bits, mode=mode, class_predicate=form)


def _arrays(module: Any) -> list[mx.array]:
    flat: Any = tree_flatten(module.parameters())
    return [array for _, array in flat]


def _typical(built: Built) -> int:
    """Where to start: first blocks are unlike the others at times, and no stage starts where no cut may be."""
    banned = {block + 1 for block in built.roll.no_cut_after()}
    middle = built.count // 2 if built.count > 8 else 0
    return max(cut for cut in range(middle + 1) if cut not in banned)


def _make_up(built: Built, start: int, end: int, *, head: bool) -> None:
    """Gives what the stage holds arrays of the same shapes and types in memory of their own."""
    packing = built.reading.quantisation
    mode = "" if packing is None else packing.mode
    ours = [(name, array) for name, array in flat(built.model) if built.is_of(name, start, end, head=head)]
    made = [(name, _made_up(array, mode)) for name, array in ours]
    built.model.update(tree_unflatten(made))
    mx.eval([array for _, array in made])


def _made_up(array: mx.array, mode: str) -> mx.array:
    """Small random numbers, however they are packed. Each row begins one number later than the one before it, which is
    quick to make; were rows alike, a router would send all tokens to the same experts."""
    *rows, width = array.shape
    count = prod(rows)
    if mx.issubdtype(array.dtype, mx.floating):
        values = (0.02 * mx.random.normal((count + width,))).astype(array.dtype)
    elif array.dtype == mx.uint8:
        values = mx.full((count + width,), SMALL_SCALES[mode], dtype=mx.uint8)
    else:
        values = mx.random.randint(0, 1 << 30, (count + width,)).astype(array.dtype) & SMALL_NUMBERS
    return mx.contiguous(mx.as_strided(values, (count, width), (1, 1))).reshape(array.shape)
