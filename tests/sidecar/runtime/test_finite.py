"""NaN and infinity among raw elements: whatever numpy finds, wherever it stands, in every element type."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.shard.finite import INFINITY, NAN, TokenLayout, check_state, flaw, flaw_of_logits
from kafila_sidecar.runtime.shard.state import ITEM_BYTES, HiddenState

WIDTH, STATE = 6, 4
DTYPES = sorted(ITEM_BYTES)
LAYOUT = TokenLayout(WIDTH, STATE)


def numbers(dtype: str, payload: bytes) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    """What the raw elements are; a bfloat16 is the upper half of a float32."""
    if dtype == "bfloat16":
        raw = np.frombuffer(payload, "<u2").astype("<u4") << 16
        return raw.view("<f4").reshape(-1, WIDTH)
    read = "<f4" if dtype == "float32" else "<f2"
    return np.frombuffer(payload, read).astype(np.float32).reshape(-1, WIDTH)


@given(st.sampled_from(DTYPES), st.integers(1, 3), st.data())
def test_flaw_when_any_bits_come_then_it_finds_what_numpy_finds(dtype: str, tokens: int, data: st.DataObject) -> None:
    size = tokens * WIDTH * ITEM_BYTES[dtype]
    payload = data.draw(st.binary(min_size=size, max_size=size))
    rows = numbers(dtype, payload)
    infinite = np.isinf(rows) & ~((np.arange(WIDTH) >= STATE) & (rows < 0))
    expected = {NAN} if np.isnan(rows).any() else set()
    if infinite.any():
        expected = expected | {INFINITY}
    found = flaw(payload, dtype, LAYOUT)
    assert found in expected if expected else found == ""


BITS = {
    "float32": {"nan": 0x7FC0_0000, "-nan": 0xFF80_0001, "inf": 0x7F80_0000, "-inf": 0xFF80_0000, "most": 0xFF7F_FFFF},
    "bfloat16": {"nan": 0x7FC0, "-nan": 0xFF81, "inf": 0x7F80, "-inf": 0xFF80, "most": 0xFF7F},
    "float16": {"nan": 0x7E00, "-nan": 0xFC01, "inf": 0x7C00, "-inf": 0xFC00, "most": 0xFBFF},
}


def row(dtype: str, place: int, name: str) -> bytes:
    letter = "I" if dtype == "float32" else "H"
    elements = [0] * WIDTH
    elements[place] = BITS[dtype][name]
    return struct.pack(f"<{WIDTH}{letter}", *elements)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "own", "beside"),
    [
        ("nan", NAN, NAN),
        ("-nan", NAN, NAN),
        ("inf", INFINITY, INFINITY),
        ("-inf", INFINITY, ""),
        ("most", "", ""),
    ],
)
def test_flaw_when_it_stands_beside_the_state_then_only_minus_infinity_passes(
    dtype: str, name: str, own: str, beside: str
) -> None:
    for place in range(WIDTH):
        assert flaw(row(dtype, place, name), dtype, LAYOUT) == (own if place < STATE else beside)


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_when_some_are_minus_infinity_then_there_is_a_choice_and_when_all_are_then_there_is_none(
    dtype: str,
) -> None:
    assert flaw_of_logits(row(dtype, 2, "-inf"), dtype) == ""
    assert flaw_of_logits(row(dtype, 2, "nan"), dtype) == NAN
    assert flaw_of_logits(row(dtype, 2, "inf"), dtype) == INFINITY
    letter = "I" if dtype == "float32" else "H"
    assert flaw_of_logits(struct.pack(f"<3{letter}", *[BITS[dtype]["-inf"]] * 3), dtype) == INFINITY


def test_state_when_it_lies_at_an_odd_place_of_a_buffer_then_it_is_read_all_the_same() -> None:
    buffer = memoryview(b"\1" + row("float32", 1, "nan"))
    with pytest.raises(InvalidInput, match="NaN"):
        check_state(HiddenState(buffer[1:], "float32", (1, 1, WIDTH), 0), LAYOUT)
