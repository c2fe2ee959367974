"""The frames that go round the ring: pure encoding and decoding, one frame a message. RING.md has every byte.

Letters: T tokens of the frame, W elements of one token.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.net.errors import BadFrame
from kafila_sidecar.net.link.stream import MAX_MESSAGE_BYTES

VERSION = 3
MAX_DIMENSIONS = 4
MAX_TIMINGS = 64  # stages of a ring
STEP_TOKENS = 8  # the most of a frame with guesses
STEP_LIMITS = 3  # numbers in a frame of kind STEPS

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_DTYPES = (None, "float32", "float16", "bfloat16")  # by code
_HEADER = struct.Struct("!BBBBIQIIBBH")
_TIMING = struct.Struct("!ffHxx")
_NO_OUTPUT = 0x01
_GUESSES = 0x02
_WITH_NEXT = 0x04
_FLAGS = _NO_OUTPUT | _GUESSES | _WITH_NEXT
_FLAGS_AT = 2  # in the header
_ATTEMPTS = 1 << 16
_ALIGNMENT = 8  # the payload starts at a multiple, so that an array can be laid over it
_EMPTY = memoryview(b"")


class RulesBroken(BadFrame):
    """A member sent what no stage that keeps the rules can send; `by` is its name."""

    def __init__(self, by: str, sentence: str) -> None:
        super().__init__(sentence)
        self.by = by


class FrameKind(IntEnum):
    ACTIVATION = 1  # the hidden state of T tokens of one sequence, for the next stage or back to the head
    RELEASE = 2  # the sequence is over: every stage frees what it holds for it and passes this on
    NOT_FINITE = 3  # the stage at place `position` of the ring made NaN or infinity of the sequence: the answer ends
    STEPS = 4  # `shape` has limits of steps with several tokens, which each stage lowers to its own, back to the head
    REST = 5  # the answer is over and the sequence is kept: more may come of it, or its release; passed on likewise


_WITHOUT_ATTEMPT = (FrameKind.RELEASE, FrameKind.STEPS)


@dataclass(frozen=True, slots=True)
class Timing:
    """One stage's part in a frame's way, in ring order.

    `compute_s` is spent in the model; `residence_s` runs from the frame's arrival to its sending on, and so holds
    compute_s. A circuit less the residences of all stages is what the hops took, with no clock shared. `rows`: how many
    sequences were in the run, whose time it is.
    """

    compute_s: float
    residence_s: float
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Frame:
    """`position` counts the sequence's tokens before this frame; `payload` is raw little-endian items of `shape`.

    With `needs_output` false nobody wants the last stage's result: a prefill chunk before the last. With `has_guesses`
    the tokens after the first are guesses: every token's state comes back, else the last one's alone. `attempt`: a
    frame of another one than those of its sequence before it says that from its position on they were guesses, and that
    nobody waits for them any more. `with_next`: the next frame of the stream left at the same moment, so that whoever
    runs them can do so in one run.
    """

    kind: FrameKind
    epoch: int
    sequence: int
    position: int = 0
    tokens: int = 0
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    payload: memoryview = field(default=_EMPTY, repr=False)
    needs_output: bool = True
    has_guesses: bool = False
    timings: tuple[Timing, ...] = ()
    attempt: int = 0
    with_next: bool = False


def most_bytes(tokens: int, width: int) -> int:
    """The longest frame of so many tokens, of that many elements each."""
    beside = 4 * MAX_DIMENSIONS + _TIMING.size * MAX_TIMINGS + _ALIGNMENT
    return _HEADER.size + beside + tokens * width * max(ITEM_BYTES.values())


def next_attempt(attempt: int) -> int:
    """They begin again at 0, long after whatever was of that one."""
    return (attempt + 1) % _ATTEMPTS


@contextmanager
def sent_by(peer: str) -> Iterator[None]:
    """What does not make sense in here is this peer's doing. Raises RulesBroken for it."""
    try:
        yield
    except InvalidInput as error:
        raise RulesBroken(peer, f"{peer} broke the rules of the ring: {error}") from error


def encode(frame: Frame) -> tuple[bytes, memoryview]:
    """The head of the message and its payload, for `Stream.send`; the payload is not copied.

    Raises BadFrame for a frame that `decode` would refuse.
    """
    _check(frame)
    flags = (
        (0 if frame.needs_output else _NO_OUTPUT)
        | (_GUESSES if frame.has_guesses else 0)
        | (_WITH_NEXT if frame.with_next else 0)
    )
    try:
        head = b"".join(_head(frame, flags))
    except struct.error as error:
        raise BadFrame(f"a frame of sequence {frame.sequence} has a field out of range: {error}") from error
    return head + bytes(-len(head) % _ALIGNMENT), frame.payload.cast("B")


def with_next(head: bytes) -> bytes:
    """The head of an encoded frame whose next one leaves at the same moment."""
    return head[:_FLAGS_AT] + bytes([head[_FLAGS_AT] | _WITH_NEXT]) + head[_FLAGS_AT + 1 :]


def decode(message: bytes | memoryview) -> Frame:
    """The frame in a message; its payload is a view into it. Raises BadFrame."""
    view = memoryview(message).cast("B")
    try:
        return _decoded(view)
    except struct.error as error:
        raise BadFrame(f"a frame of {len(view)} bytes ends too early") from error


def _head(frame: Frame, flags: int) -> Iterator[bytes]:
    yield _HEADER.pack(
        VERSION,
        frame.kind,
        flags,
        _DTYPES.index(frame.dtype),
        frame.epoch,
        frame.sequence,
        frame.position,
        frame.tokens,
        len(frame.shape),
        len(frame.timings),
        frame.attempt,
    )
    yield struct.pack(f"!{len(frame.shape)}I", *frame.shape)
    for timing in frame.timings:
        yield _TIMING.pack(timing.compute_s, timing.residence_s, timing.rows)


def _decoded(view: memoryview) -> Frame:
    (version, kind, flags, dtype, epoch, sequence, position, tokens, dimensions, stages, attempt) = _HEADER.unpack_from(
        view
    )
    if version != VERSION:
        raise BadFrame(f"a frame of version {version}, expected {VERSION}: the members run different versions")
    if dimensions > MAX_DIMENSIONS or stages > MAX_TIMINGS or dtype >= len(_DTYPES) or flags & ~_FLAGS:
        raise BadFrame("a frame with a dtype, flag or count that this version doesn't know")
    if kind not in tuple(FrameKind):
        raise BadFrame(f"a frame of the unknown kind {kind}")
    at = _HEADER.size
    shape = struct.unpack_from(f"!{dimensions}I", view, at)
    at += 4 * dimensions
    timings = tuple(Timing(*_TIMING.unpack_from(view, at + _TIMING.size * i)) for i in range(stages))
    at += _TIMING.size * stages
    start = at + -at % _ALIGNMENT
    if len(view) < start or any(view[at:start]):
        raise BadFrame(f"a frame of {len(view)} bytes lacks its {start - at} bytes of zero padding")
    frame = Frame(
        kind=FrameKind(kind),
        epoch=epoch,
        sequence=sequence,
        position=position,
        tokens=tokens,
        dtype=_DTYPES[dtype],
        shape=shape,
        payload=view[start:],
        needs_output=not flags & _NO_OUTPUT,
        has_guesses=bool(flags & _GUESSES),
        timings=timings,
        attempt=attempt,
        with_next=bool(flags & _WITH_NEXT),
    )
    _check(frame)
    return frame


def _check(frame: Frame) -> None:
    """What holds for every frame, made here or received."""
    _check_payload(frame)
    if not _are_durations([s for t in frame.timings for s in (t.compute_s, t.residence_s)]):
        raise BadFrame("a frame with a stage time that is no duration")
    if not all(timing.rows for timing in frame.timings):
        raise BadFrame("a frame with a stage time of no rows")
    if frame.kind is FrameKind.ACTIVATION and (frame.tokens == 0 or frame.dtype is None):
        raise BadFrame("an activation frame without tokens or dtype")
    if frame.kind is FrameKind.STEPS and (len(frame.shape) != STEP_LIMITS or not all(frame.shape)):
        raise BadFrame(f"a frame with {len(frame.shape)} limits of steps, or none that is a number of tokens")
    if frame.kind is FrameKind.ACTIVATION and len(frame.shape) == 3 and frame.shape[1] != frame.tokens:
        raise BadFrame(f"a frame of {frame.tokens} tokens with a payload of {frame.shape[1]}")
    if frame.kind is not FrameKind.ACTIVATION and (frame.tokens or frame.dtype is not None):
        raise BadFrame("a frame with tokens or a payload whose kind has none")
    if frame.attempt and frame.kind in _WITHOUT_ATTEMPT:
        raise BadFrame("a frame with an attempt whose kind has none")
    if frame.has_guesses and not (1 < frame.tokens <= STEP_TOKENS and frame.needs_output):
        raise BadFrame(f"a frame of {frame.tokens} tokens can't have guesses, or nobody wants what comes of them")


def _check_payload(frame: Frame) -> None:
    if len(frame.shape) > MAX_DIMENSIONS or len(frame.timings) > MAX_TIMINGS:
        raise BadFrame(f"a frame with {len(frame.shape)} dimensions and {len(frame.timings)} stage times")
    item_bytes = 0 if frame.dtype is None else ITEM_BYTES.get(frame.dtype, -1)
    wanted = math.prod(frame.shape) * item_bytes
    if item_bytes < 0 or frame.payload.nbytes != wanted or wanted > MAX_MESSAGE_BYTES:
        raise BadFrame(f"a frame with {frame.payload.nbytes} bytes of payload for shape {frame.shape} in {frame.dtype}")


def _are_durations(values: Sequence[float]) -> bool:
    return all(math.isfinite(value) and value >= 0 for value in values)
