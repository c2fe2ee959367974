"""Prompts in 16 bits, or over packed weights, on a processor: computed in f32. MLX thread only.

MLX's matrix products of these kinds are made for few tokens on a processor: of 31 tokens and a 1024 x 3072 matrix one
took 51 ms in bf16 and 690 ms in 4 bits, through f32 6 and 13 ms (two cores). So from `LEAST_TOKENS` tokens of one
sequence on, a matrix is turned into f32 for the moment of its product, a slice at a time, and the result rounded. Each
element is then at least as near to the exact one, but not always the same: of bf16 1 in 5,000 is the neighbouring
number. Single tokens and guesses are never computed so: what is decoded is what the architecture's own code gives.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import mlx.core as mx
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedLinear

from kafila_sidecar.runtime.footprint import SLICE_WEIGHTS
from kafila_sidecar.runtime.shard.partial import Forward, Given, redirect

LEAST_TOKENS = 9  # a step with guesses has up to 8
HALF = (mx.bfloat16, mx.float16)


def quicken_prompts(blocks: Sequence[Any]) -> None:
    """Lets the matrices of these blocks take long chunks through f32, where the processor computes."""
    if mx.default_device() != mx.Device(mx.cpu):
        return
    for module in (part for block in blocks for part in block.modules()):
        if _is_slow(module):
            redirect(module, _Product(module))


def _is_slow(module: Any) -> bool:
    if isinstance(module, QuantizedLinear):
        return "global_scale" not in module
    return isinstance(module, Linear) and module.weight.dtype in HALF


class _Product:
    """Answers the calls of one Linear."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, given: Given, forward: Forward) -> mx.array:
        """x: [B, T, inputs]."""
        x: mx.array = given["x"]
        if x.ndim < 3 or x.shape[-2] < LEAST_TOKENS:
            result: mx.array = forward(given)
            return result
        wide = x.astype(mx.float32)
        product = mx.concatenate([wide @ part.T for part in self._slices()], axis=-1)
        if "bias" in self._module:
            product = product + self._module.bias.astype(mx.float32)
        return product.astype(x.dtype)

    def _slices(self) -> Iterable[mx.array]:
        """The matrix [outputs, inputs] in f32, some outputs at a time."""
        module = self._module
        packed = isinstance(module, QuantizedLinear)
        outputs = module.weight.shape[0]
        inputs = module.weight.shape[1] * 32 // module.bits if packed else module.weight.shape[1]
        step = max(1, SLICE_WEIGHTS // inputs)
        for start in range(0, outputs, step):
            rows = slice(start, start + step)
            yield (_unpacked(module, rows) if packed else module.weight[rows]).astype(mx.float32)


def _unpacked(module: Any, rows: slice) -> mx.array:
    biases = module.get("biases")
    weights: mx.array = mx.dequantize(
        module.weight[rows],
        module.scales[rows],
        None if biases is None else biases[rows],
        group_size=module.group_size,
        bits=module.bits,
        mode=module.mode,
    )
    return weights
