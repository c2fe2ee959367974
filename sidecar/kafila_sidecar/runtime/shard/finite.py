"""NaN and infinity among the raw elements of a state or of logits: found without MLX and without a copy, before
anything is computed with them.

Of a float the largest exponent means infinity or NaN. So two maxima tell all: of the bits as signed integers, among the
positive numbers, and of the bits as unsigned ones, among the negative. With 4,096 elements a token they take 5 µs for
one token; for 512 of them 0.26 ms in float32 and 0.11 ms in 16 bits (two cores of a small server).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kafila_sidecar.errors import InvalidInput, KafilaError
from kafila_sidecar.runtime.shard.state import HiddenState

_BITS = {  # unsigned and signed integers, and infinity's bits
    "float32": ("<u4", "<i4", 0x7F80_0000),
    "bfloat16": ("<u2", "<i2", 0x7F80),
    "float16": ("<u2", "<i2", 0x7C00),
}

NAN, INFINITY = "NaN", "infinity"


WHY = "its weights are damaged, or its element type is too small for its numbers; a checkpoint in bf16 or f32 may help"


class NotFinite(KafilaError):
    """A model's own computation left the numbers that its element type can hold."""


@dataclass(frozen=True, slots=True)
class TokenLayout:
    """How one token of a state lies on the wire: `width` elements, of which the first `state` are the hidden state's
    own and the others travel beside it, where masks may have -inf."""

    width: int
    state: int


def flaw(payload: bytes | memoryview, dtype: str, layout: TokenLayout) -> str:
    """What of rows of `layout.width` elements no computation may go on with: `NAN`, `INFINITY`, or empty."""
    unsigned, signed, infinity = _BITS[dtype]
    bits = np.frombuffer(payload, dtype=unsigned)
    highest, lowest = int(bits.view(signed).max()), int(bits.max())
    minus_infinity = infinity | 1 << (8 * bits.itemsize - 1)
    if highest > infinity or lowest > minus_infinity:
        return NAN
    if highest == infinity:
        return INFINITY
    if lowest < minus_infinity:
        return ""
    own = bits.reshape(-1, layout.width)[:, : layout.state]
    return INFINITY if own.max(initial=0) == minus_infinity else ""


def flaw_of_state(state: HiddenState, layout: TokenLayout) -> str:
    """The same of a state of that layout."""
    return flaw(state.payload, state.dtype, layout)


def flaw_of_logits(payload: bytes | memoryview, dtype: str) -> str:
    """The same of one row of logits: -inf are tokens that are never picked, unless all of them are."""
    unsigned, _, infinity = _BITS[dtype]
    bits = np.frombuffer(payload, dtype=unsigned)
    if int(bits.min()) == infinity | 1 << (8 * bits.itemsize - 1):
        return INFINITY
    return flaw(payload, dtype, TokenLayout(len(bits), 0))


def check_state(state: HiddenState, layout: TokenLayout) -> None:
    """Raises: InvalidInput for a received state that is not laid out so, or holds NaN or infinity."""
    if state.shape[2] != layout.width:
        raise InvalidInput(f"a hidden state is {state.shape[2]} wide, this model's are {layout.width}")
    if wrong := flaw_of_state(state, layout):
        raise InvalidInput(f"a hidden state holds {wrong}")


def made_well(state: HiddenState, layout: TokenLayout) -> HiddenState:
    """A state that our blocks made. Raises: NotFinite when it holds NaN or infinity."""
    if wrong := flaw_of_state(state, layout):
        raise NotFinite(f"the model's blocks made {wrong} of this request: {WHY}")
    return state


def or_not_finite(make: Callable[[], HiddenState]) -> HiddenState | NotFinite:
    """What is made, or why it can't be."""
    try:
        return make()
    except NotFinite as error:
        return error
