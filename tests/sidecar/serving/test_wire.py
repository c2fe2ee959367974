"""Frames: what is encoded comes back, hostile bytes give typed errors only."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.net.errors import BadFrame
from kafila_sidecar.serving.frames.wire import (
    ITEM_BYTES,
    Frame,
    FrameKind,
    Timing,
    decode,
    encode,
    next_attempt,
    with_next,
)
from tests.sidecar.serving.test_ring_md import ACTIVATION, RELEASE, example
from tests.support import fuzz

_u32 = st.integers(0, 2**32 - 1)
_seconds = st.floats(0, 1e6, width=32)


@st.composite
def activations(draw: st.DrawFn) -> Frame:
    dtype = draw(st.sampled_from(sorted(ITEM_BYTES)))
    tokens = draw(st.integers(1, 5))
    shape = (1, tokens, draw(st.integers(0, 7)))
    size = shape[1] * shape[2] * ITEM_BYTES[dtype]
    return Frame(
        kind=FrameKind.ACTIVATION,
        epoch=draw(_u32),
        sequence=draw(st.integers(0, 2**64 - 1)),
        position=draw(_u32),
        tokens=tokens,
        dtype=dtype,
        shape=shape,
        payload=memoryview(draw(st.binary(min_size=size, max_size=size))),
        needs_output=draw(st.booleans()),
        attempt=draw(st.integers(0, 2**16 - 1)),
        timings=tuple(Timing(*t) for t in draw(st.lists(st.tuples(_seconds, _seconds), max_size=4))),
        with_next=draw(st.booleans()),
    )


@given(activations())
def test_frame_when_encoded_then_decoding_gives_it_back(frame: Frame) -> None:
    assert decode(b"".join(encode(frame))) == frame


@given(activations())
def test_frame_when_said_after_encoding_to_have_left_with_the_next_one_then_it_is_as_if_said_before(
    frame: Frame,
) -> None:
    head, payload = encode(frame)
    assert decode(with_next(head) + bytes(payload)) == replace(frame, with_next=True)


@given(activations())
def test_payload_when_encoded_then_it_is_not_copied_and_starts_aligned(frame: Frame) -> None:
    head, payload = encode(frame)
    assert len(head) % 8 == 0
    assert payload.obj is frame.payload.obj


def test_payload_when_decoded_then_it_is_a_view_into_the_message() -> None:
    message = example("activation")
    assert decode(message).payload.obj is message


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(Frame(FrameKind.ACTIVATION, 1, 1), id="activation-without-tokens"),
        pytest.param(Frame(FrameKind.RELEASE, 1, 1, tokens=1), id="release-with-tokens"),
        pytest.param(Frame(FrameKind.RELEASE, 2**32, 1), id="epoch-out-of-range"),
        pytest.param(
            Frame(FrameKind.ACTIVATION, 1, 1, tokens=1, dtype="float32", shape=(2,), payload=memoryview(b"1234")),
            id="payload-too-short",
        ),
        pytest.param(
            Frame(FrameKind.ACTIVATION, 1, 1, tokens=1, dtype="int7", shape=(1,), payload=memoryview(b"1")),
            id="unknown-dtype",
        ),
        pytest.param(Frame(FrameKind.RELEASE, 1, 1, timings=(Timing(float("nan"), 0),)), id="time-not-a-number"),
        pytest.param(Frame(FrameKind.RELEASE, 1, 1, timings=(Timing(0, -1.0),)), id="negative-time"),
        pytest.param(Frame(FrameKind.RELEASE, 1, 1, timings=(Timing(0, 0),) * 65), id="too-many-stages"),
    ],
)
def test_encode_when_the_frame_makes_no_sense_then_bad_frame(frame: Frame) -> None:
    with pytest.raises(BadFrame):
        encode(frame)


@pytest.mark.parametrize(
    ("offset", "value"),
    [(0, 2), (1, 0), (1, 9), (2, 8), (2, 3), (3, 4), (24, 5), (25, 65), (20, 0xFF)],
    ids=[
        "version",
        "kind-0",
        "kind-9",
        "flag",
        "guesses-and-no-output",
        "dtype",
        "dimensions",
        "stages",
        "tokens",
    ],
)
def test_decode_when_one_header_byte_is_wrong_then_bad_frame(offset: int, value: int) -> None:
    message = bytearray(example("activation"))
    message[offset] = value
    with pytest.raises(BadFrame):
        decode(bytes(message))


@pytest.mark.parametrize("name", ["release", "steps"])
def test_decode_when_a_frame_whose_kind_has_no_attempt_has_one_then_bad_frame(name: str) -> None:
    message = bytearray(example(name))
    message[27] = 1
    with pytest.raises(BadFrame):
        decode(bytes(message))


def test_attempt_when_there_were_as_many_as_there_are_numbers_then_they_begin_again() -> None:
    assert (next_attempt(0), next_attempt((1 << 16) - 1)) == (1, 0)


def test_decode_when_cut_short_anywhere_then_bad_frame() -> None:
    for frame in (ACTIVATION, RELEASE):
        message = b"".join(encode(frame))
        for length in range(len(message)):
            with pytest.raises(BadFrame):
                decode(message[:length])


@pytest.mark.fuzz
def test_decode_when_fed_hostile_bytes_then_a_frame_that_reads_the_same_again_or_bad_frame() -> None:
    def read(message: bytes) -> None:
        frame = decode(message)
        assert decode(b"".join(encode(frame))) == frame

    samples = [example("activation"), *(b"".join(encode(frame)) for frame in (ACTIVATION, RELEASE))]
    assert len(samples) <= fuzz.fuzz(read, samples, errors=(BadFrame,)) < fuzz.INPUTS
