"""Prompts through experts on a processor: each expert's matrix meets all its tokens at once. MLX thread only.

MLX takes one token and one expert after another on a processor, whatever else chose the same one. So in a long chunk of
one sequence rows are sorted by expert, and each matrix that was chosen is multiplied by all rows that chose it, packed
ones through f32 as in `widening.py`. The choice has to be known for that: what a chunk comes to is computed up to there
at each of these layers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from kafila_sidecar.runtime.shard.making.widening import computed, is_packed, rows_of, slices_of
from kafila_sidecar.runtime.shard.partial import Forward, Given

LEAST_TOKENS = 9  # a step with guesses has up to 8

Numbers = np.ndarray[Any, Any]


class BlockCall:
    """What a block is called with just now. Layers within it may see the tokens of all sequences in one row."""

    def __init__(self, state: str) -> None:
        """state: the parameter of the block's call that takes the hidden state."""
        self._state = state
        self.is_long = False  # of one sequence and of many tokens

    def __call__(self, given: Given, forward: Forward) -> Any:
        """Answers the block's calls; its state is [B, T, D], or [S, B, T, D]."""
        sequences, tokens = given[self._state].shape[-3:-1]
        self.is_long = sequences == 1 and tokens >= LEAST_TOKENS
        return forward(given)


def has_experts(module: Any) -> bool:
    """Whether this layer holds a matrix for each expert, in a form that is understood here."""
    return isinstance(module, SwitchLinear | QuantizedSwitchLinear) and "global_scale" not in module


class ExpertProduct:
    """Answers the calls of one layer of experts within a block."""

    def __init__(self, module: Any, call: BlockCall) -> None:
        self._module, self._call = module, call

    def __call__(self, given: Given, forward: Forward) -> mx.array:
        """x: [..., 1, inputs]; indices: an expert for each of its rows, or for several of them where one is 1 long."""
        plain: mx.array = forward(given)  # lazy: in a long chunk only its shape and element type are looked at
        x: mx.array = given["x"]
        if not self._call.is_long or x.shape[-2] != 1:
            return plain
        rows = Rows.chosen(np.array(given["indices"]), x.shape[:-2])
        flat = x.reshape(-1, x.shape[-1])
        products = [self._product(expert, rows.of(flat, where), plain.dtype) for expert, where in rows.by_expert()]
        return rows.put_back(mx.concatenate(products)).reshape(plain.shape)

    def _product(self, expert: int, x: mx.array, dtype: mx.Dtype) -> mx.array:
        """[rows, outputs] of an expert's rows."""
        module = self._module
        wide = x.astype(mx.float32)
        if is_packed(module):
            product = mx.concatenate(list(computed(wide @ part.T for part in slices_of(module, expert))), axis=-1)
        else:
            product = wide @ rows_of(module.weight, expert=expert).T
        if "bias" in module:
            product = product + module.bias[expert].astype(mx.float32)
        return product.astype(dtype)


@dataclass(frozen=True, slots=True)
class Rows:
    """Which row of x each product is of, and which expert's, sorted by expert. order: where each product belongs."""

    experts: Numbers
    sources: Numbers
    order: Numbers

    @classmethod
    def chosen(cls, indices: Numbers, shape: Sequence[int]) -> "Rows":
        """shape: of the rows of x."""
        sources = np.arange(prod(shape)).reshape(shape)
        experts, sources = (one.ravel() for one in np.broadcast_arrays(indices, sources))
        order = np.argsort(experts, kind="stable")
        return cls(experts[order], sources[order], order)

    def by_expert(self) -> Iterator[tuple[int, slice]]:
        """Each expert that was chosen, and where its products are."""
        starts = np.flatnonzero(np.diff(self.experts, prepend=-1))
        for start, end in pairwise([*starts.tolist(), len(self.experts)]):
            yield int(self.experts[start]), slice(start, end)

    def of(self, x: mx.array, where: slice) -> mx.array:
        """The rows [rows, inputs] of x of these products."""
        sources = self.sources[where]
        first = int(sources[0])
        if np.array_equal(sources, np.arange(first, first + len(sources))):
            return x[first : first + len(sources)]
        return x[mx.array(sources)]

    def put_back(self, products: mx.array) -> mx.array:
        """[products, outputs] in the order in which they were asked for."""
        if np.array_equal(self.order, np.arange(len(self.order))):
            return products
        return products[mx.array(np.argsort(self.order))]
