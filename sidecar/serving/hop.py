"""Frames to the next stage: one stream, opened when first needed, and opened again after a link broke."""

import asyncio
from collections.abc import Awaitable, Callable

from sidecar.errors import KafilaError, TimedOut
from sidecar.net.frames import Frame, FrameKind, encode
from sidecar.net.stream import Stream
from sidecar.runtime.state import State

SEND_DEADLINE_S = 120.0  # for a prefill chunk on a slow uplink

Open = Callable[[], Awaitable[Stream]]


class Hop:
    """The way to the next stage of the ring."""

    def __init__(self, *, peer: str, open_stream: Open) -> None:
        self.peer = peer
        self._open = open_stream
        self._stream: Stream | None = None
        self._opening = asyncio.Lock()
        self.sent_bytes = 0

    async def send(self, frame: Frame) -> None:
        """Hands a frame over.

        Raises:
            Unavailable: the link is down or broke.
            TimedOut: the next stage takes nothing for `SEND_DEADLINE_S`.
        """
        head, payload = encode(frame)
        try:
            async with asyncio.timeout(SEND_DEADLINE_S):
                stream = await self._ready()
                await stream.send(head, payload)
        except TimeoutError:
            self._drop()
            raise TimedOut(f"{self.peer} took no frame for {SEND_DEADLINE_S:.0f} s") from None
        except KafilaError:
            self._drop()
            raise
        self.sent_bytes += len(head) + payload.nbytes

    def close(self) -> None:
        """No more frames."""
        if self._stream is not None:
            self._stream.finish()
            self._stream = None

    async def _ready(self) -> Stream:
        async with self._opening:
            if self._stream is None:
                self._stream = await self._open()
            return self._stream

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.reset()


def frame_of(state: State, *, epoch: int, sequence: int, needs_output: bool) -> Frame:
    """A hidden state as a frame; the payload is not copied."""
    return Frame(
        kind=FrameKind.ACTIVATION,
        epoch=epoch,
        sequence=sequence,
        position=state.position,
        tokens=state.tokens,
        dtype=state.dtype,
        shape=state.shape,
        payload=memoryview(state.payload),
        needs_output=needs_output,
    )


def state_of(frame: Frame) -> State:
    """The hidden state in a frame.

    Raises:
        InvalidInput: its parts don't fit each other.
    """
    batch, tokens, width = frame.shape if len(frame.shape) == 3 else (0, 0, 0)
    return State(frame.payload, frame.dtype or "", (batch, tokens, width), frame.position)
