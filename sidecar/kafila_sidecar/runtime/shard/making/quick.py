"""Prompts in 16 bits, or over packed weights, on a processor: computed in f32. MLX thread only.

MLX's matrix products of these kinds are made for few tokens on a processor: of 31 tokens and a 1024 x 3072 matrix one
took 51 ms in bf16 and 690 ms in 4 bits, through f32 6 and 13 ms (two cores). So from `LEAST_TOKENS` tokens of one
sequence on, a matrix is turned into f32 for the moment of its product, a slice at a time, and the result rounded. Each
element is then at least as near to the exact one, but not always the same: of bf16 1 in 5,000 is the neighbouring
number. Attention in 16 bits goes the same way, whose products are of that kind too: 256 tokens behind 1,800 took a
block's 16 heads of 128 elements 2.7 s in bf16, and 0.5 s through f32 (one core). Single tokens and guesses are never
computed so: what is decoded is what the architecture's own code gives.

Slices are small, and no more than two are there at once, so that each takes the memory of the one before. Of larger
ones that were all set up at once, memory went back to the system after each product and was taken again, page by page,
for the next: 16 tokens through a block of width 4096 took 361 ms in bf16, and 131 so; over 4 bits in f32 502 and 196
(one core). `bench/prefill.py` has how many times as quickly as an answer's tokens those of a prompt are read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import FunctionType
from typing import Any

import mlx.core as mx
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedLinear

from kafila_sidecar.runtime.footprint import SLICE_WEIGHTS, SLICES_AT_ONCE
from kafila_sidecar.runtime.shard.partial import Forward, Given, redirect
from kafila_sidecar.runtime.shard.rows import ATTENTION

LEAST_TOKENS = 9  # a step with guesses has up to 8
HALF = (mx.bfloat16, mx.float16)


def quicken_prompts(blocks: Sequence[Any]) -> None:
    """Lets matrices and attention of these blocks take long chunks through f32, where the processor computes."""
    if mx.default_device() != mx.Device(mx.cpu):
        return
    for module in (part for block in blocks for part in block.modules()):
        if _is_slow(module):
            redirect(module, _Product(module))
        elif _attends(module):
            _quicken_attention(module)


def _is_slow(module: Any) -> bool:
    if isinstance(module, QuantizedLinear):
        return "global_scale" not in module
    return isinstance(module, Linear) and module.weight.dtype in HALF


def _attends(module: Any) -> bool:
    call = type(module).__call__
    return isinstance(call, FunctionType) and ATTENTION in call.__code__.co_names


def _quicken_attention(module: Any) -> None:
    """Lets this one module call another attention than its code's other modules do."""
    kind = type(module)
    own = kind.__call__
    names = {**own.__globals__, ATTENTION: _Attention(own.__globals__)}
    call = FunctionType(own.__code__, names, own.__name__, own.__defaults__, own.__closure__)
    call.__kwdefaults__ = own.__kwdefaults__
    module.__class__ = type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


class _Attention:
    """In place of what an architecture's code calls so, which is looked up for each call: it may be replaced too."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def __call__(self, queries: mx.array, keys: Any, values: Any, *rest: Any, **given: Any) -> mx.array:
        """queries: [B, H, T, D]; keys and values [B, K, S, D], or what only another attention understands."""
        attention = self._names[ATTENTION]
        is_long = queries.dtype in HALF and queries.shape[-2] >= LEAST_TOKENS
        if not is_long or not isinstance(keys, mx.array) or not isinstance(values, mx.array):
            plain: mx.array = attention(queries, keys, values, *rest, **given)
            return plain
        wide = (part.astype(mx.float32) for part in (queries, keys, values))
        answer: mx.array = attention(*wide, *rest, **given)
        return answer.astype(queries.dtype)


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
        product = mx.concatenate(list(self._products(wide)), axis=-1)
        if "bias" in self._module:
            product = product + self._module.bias.astype(mx.float32)
        return product.astype(x.dtype)

    def _products(self, wide: mx.array) -> Iterable[mx.array]:
        """With a few slices in memory: MLX would set up dozens ahead of the one that it computes."""
        for slices in _batched(self._slices(), SLICES_AT_ONCE):
            products = [wide @ part.T for part in slices]
            mx.eval(products)
            yield from products

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
    """[outputs, inputs] in the element type of the scales."""
    weight, scales, biases = module.weight[rows], module.scales[rows], module.get("biases")
    if module.mode == "affine" and module.bits in NUMBERS:
        numbers = NUMBERS[module.bits](weight.view(mx.uint8)).astype(scales.dtype)
        groups = numbers.reshape(*scales.shape, module.group_size)
        spread: mx.array = groups * scales[..., None] + biases[rows][..., None]
        return spread.reshape(numbers.shape)
    weights: mx.array = mx.dequantize(
        weight,
        scales,
        None if biases is None else biases[rows],
        group_size=module.group_size,
        bits=module.bits,
        mode=module.mode,
    )
    return weights


def _halves(octets: mx.array) -> mx.array:
    """The numbers of 4 bits that these bytes hold, a byte each, the lower half of each first."""
    wide = octets.astype(mx.uint16)
    return ((wide | (wide << 4)) & 0x0F0F).view(mx.uint8)


NUMBERS: Mapping[int, Callable[[mx.array], mx.array]] = {4: _halves, 8: lambda octets: octets}
"""By bits, what unpacks numbers by operations on whole arrays. On x86-64 it gives the bits of MLX's `dequantize`, which
takes one after another on a processor: 3.1 million weights of 4 bits in f32 1.4 ms in place of 4.1 (one core).
Elsewhere a compiler may join its multiplication and addition, and round once less."""


def _batched(slices: Iterable[mx.array], count: int) -> Iterator[Sequence[mx.array]]:
    left = iter(slices)
    while some := list(islice(left, count)):
        yield some
