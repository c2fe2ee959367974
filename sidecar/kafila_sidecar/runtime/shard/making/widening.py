"""Matrices in f32 for the moment of a product, a slice at a time. MLX thread only.

Slices are small, and no more than two are there at once, so that each takes the memory of the one before. Of larger
ones that were all set up at once, memory went back to the system after each product and was taken again, page by page,
for the next: 16 tokens through a block of width 4096 took 361 ms in bf16, and 131 so; over 4 bits in f32 502 and 196
(one core).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import mlx.core as mx

from kafila_sidecar.runtime.footprint import SLICE_WEIGHTS, SLICES_AT_ONCE


def slices_of(module: Any, expert: int | None = None) -> Iterator[mx.array]:
    """The matrix [outputs, inputs] of a module, or of one of its experts, in f32, some outputs at a time."""
    outputs, columns = module.weight.shape[-2:]
    inputs = columns * 32 // module.bits if is_packed(module) else columns
    step = max(1, SLICE_WEIGHTS // inputs)
    for start in range(0, outputs, step):
        part = partial(rows_of, rows=slice(start, start + step), expert=expert)
        yield unpacked(module, part) if is_packed(module) else part(module.weight).astype(mx.float32)


def rows_of(array: mx.array, *, rows: slice = slice(None), expert: int | None = None) -> mx.array:
    """Of a matrix, or of that of one expert, [rows, columns]: in place, where a number as index would copy it."""
    return array[rows] if expert is None else array[expert : expert + 1, rows].squeeze(0)


def is_packed(module: Any) -> bool:
    return "scales" in module


def computed(made: Iterable[mx.array]) -> Iterator[mx.array]:
    """What is made of a slice each, with a few slices in memory: MLX would set up dozens ahead of the one that it
    computes."""
    left = iter(made)
    while some := list(islice(left, SLICES_AT_ONCE)):
        mx.eval(some)
        yield from some


def unpacked(module: Any, part: Callable[[mx.array], mx.array] = lambda array: array) -> mx.array:
    """A part of packed weights in f32, [outputs, inputs]: none is rounded to the element type of the scales.

    Where there is something quicker than MLX's `dequantize`, which takes one weight after another on a processor, it
    gives the same bits on x86-64; elsewhere a compiler may join a multiplication and an addition, and round once less.
    Of 0.8 million weights `dequantize` takes 0.7 ms in 4 bits, and 4.2 in mxfp4; this 0.3 and 1.5 (one core).
    """
    weight, scales = part(module.weight), part(module.scales)
    biases = part(module.biases).astype(mx.float32) if "biases" in module else None
    packing = {"group_size": module.group_size, "bits": module.bits, "mode": module.mode}
    groups = (*scales.shape, module.group_size)
    if module.mode == "affine":
        scales = scales.astype(mx.float32)
        if module.bits in NUMBERS and biases is not None:
            numbers = NUMBERS[module.bits](weight.view(mx.uint8)).astype(mx.float32)
            return _flat(numbers.reshape(groups) * scales[..., None] + biases[..., None])
    elif module.mode in SCALES:
        numbers = _of_four_bits(_halves(weight.view(mx.uint8)))
        return _flat(numbers.reshape(groups) * SCALES[module.mode](scales)[..., None])
    weights: mx.array = mx.dequantize(weight, scales, biases, dtype=mx.float32, **packing)
    return weights


def _flat(groups: mx.array) -> mx.array:
    return groups.reshape(groups.shape[0], -1)


def _halves(octets: mx.array) -> mx.array:
    """The numbers of 4 bits that these bytes hold, a byte each, the lower half of each first."""
    wide = octets.astype(mx.uint16)
    return ((wide | (wide << 4)) & 0x0F0F).view(mx.uint8)


def _of_four_bits(codes: mx.array) -> mx.array:
    """What floats of 4 bits stand for (E2M1): 0, 1/2, 1, 3/2, 2, 3, 4, 6, and the same below zero."""
    size = (codes & 7).astype(mx.float32)
    sign = 1 - (codes >> 3).astype(mx.float32) * 2
    return mx.maximum(mx.maximum(size / 2, size - 2), 2 * size - 8) * sign


def _powers(octets: mx.array) -> mx.array:
    """Powers of two by their exponents (E8M0)."""
    bits = octets.astype(mx.uint32)
    return mx.where(bits == 0, 1 << 22, bits << 23).view(mx.float32)


NUMBERS: Mapping[int, Callable[[mx.array], mx.array]] = {4: _halves, 8: lambda octets: octets}
"""By bits, the whole numbers that are packed so."""
SCALES: Mapping[str, Callable[[mx.array], mx.array]] = {
    "mxfp4": _powers,
    "nvfp4": lambda octets: mx.from_fp8(octets, mx.float32),
}
"""Of groups of floats of 4 bits, by the way of packing."""
