"""Between MLX arrays and the bytes of a `HiddenState`. MLX thread only."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.shard.state import HiddenState

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
RAW = {"float32": (np.float32, None), "bfloat16": (np.uint16, mx.bfloat16), "float16": (np.uint16, mx.float16)}


def pack(hidden: mx.array, position: int) -> HiddenState:
    """The evaluated bytes of `hidden` [B, T, D], without a copy: the state keeps the array alive."""
    payload, name = raw_of(hidden)
    batch, tokens, width = hidden.shape
    return HiddenState(payload, name, (batch, tokens, width), position)


def raw_of(array: mx.array) -> tuple[memoryview, str]:
    """The evaluated bytes of an array and the name of its element type; the view keeps the array alive."""
    raw = as_raw(array)
    mx.eval(raw)
    return memoryview(raw).cast("B"), _NAMES[array.dtype]  # type: ignore[arg-type]


def as_raw(array: mx.array) -> mx.array:
    """The same elements as they lie in a payload, lazy."""
    return mx.contiguous(array if array.dtype == mx.float32 else array.view(mx.uint16))


def unpack(state: HiddenState) -> mx.array:
    """The array [B, T, D] that `pack` was given, bit for bit."""
    raw, dtype = RAW[state.dtype]
    array = mx.array(np.frombuffer(state.payload, dtype=raw).reshape(state.shape))
    return array if dtype is None else array.view(dtype)


def pack_rows(hidden: mx.array, positions: Sequence[int]) -> list[HiddenState]:
    """The evaluated rows of `hidden` [B, T, D], each a state of its own at its sequence's position."""
    raw = as_raw(hidden)
    mx.eval(raw)
    return parted_rows(raw, _NAMES[hidden.dtype], positions)


def parted_rows(raw: mx.array, dtype: str, positions: Sequence[int]) -> list[HiddenState]:
    """The same of an array that is evaluated and as it lies in a payload."""
    payload = memoryview(raw).cast("B")  # type: ignore[arg-type]
    size, shape = len(payload) // raw.shape[0], (1, raw.shape[1], raw.shape[2])
    return [
        HiddenState(payload[row * size : (row + 1) * size], dtype, shape, position)
        for row, position in enumerate(positions)
    ]


def dtype_name(array: mx.array) -> str:
    """The name of its element type in a `HiddenState`."""
    return _NAMES[array.dtype]


def unpack_rows(states: Sequence[HiddenState]) -> mx.array:
    """[B, T, D] of states of one shape and element type.

    Raises: InvalidInput when they differ.
    """
    if len({(state.shape, state.dtype) for state in states}) > 1:
        raise InvalidInput("the rows of one run differ in shape or element type")
    _, tokens, width = states[0].shape
    payload = b"".join(state.payload for state in states)
    return unpack(HiddenState(payload, states[0].dtype, (len(states) * states[0].shape[0], tokens, width), 0))
