"""Frames to the next stage: one stream, opened when first needed, and opened again after it broke."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from kafila_sidecar.errors import KafilaError, TimedOut, Unavailable
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.frames.wire import Frame, FrameKind, Timing, encode, with_next

SEND_DEADLINE_S = 120.0  # for a prefill chunk on a slow uplink
SMALL_BYTES = 128 << 10  # a frame up to this size enters its stream whole or not at all

Open = Callable[[], Awaitable[Stream]]
Message = tuple[bytes, memoryview]
"""A frame's head and payload."""


class HopSender:
    """The way to the next stage of the ring. Whoever uses it sets `broken`, which hears when the stream breaks: what
    was on its way is lost, and a frame sent later opens a new stream."""

    def __init__(self, *, peer: str, open_stream: Open, deadline_s: float = SEND_DEADLINE_S) -> None:
        self.peer = peer
        self._deadline_s = deadline_s
        self.broken: Callable[[KafilaError], None] = lambda _: None
        self._open = open_stream
        self._stream: Stream | None = None
        self._opening = asyncio.Lock()
        self._closed = False
        self._gathered: list[Message] = []  # what goes with the loop's next turn, in one write
        self._gathered_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()  # frames being sent, and the watch over the stream

    async def send(self, *frames: Frame) -> None:
        """Hands frames over, in the order of the calls; several at once cost little more than one, and say that they
        are together, be they of several calls at the same moment: so that who runs them can do so in one run. A caller
        that is cancelled does not stop a frame half-way, which would break the stream for every other sequence.

        Raises:
            Unavailable: the link is down or broke, or this hop is closed.
            TimedOut: the next stage takes nothing for `deadline_s`.
        """
        messages = [encode(_by_itself(frame)) for frame in frames]
        size = sum(len(head) + payload.nbytes for head, payload in messages)
        stream = self._stream
        if stream is not None and stream.can_send_at_once(self._gathered_bytes + size) and not self._opening.locked():
            self._gather(messages, size)
            return
        self._send_gathered()
        for head, payload in messages:
            if payload.nbytes <= SMALL_BYTES:
                await self._send(head, payload)
            else:
                await asyncio.shield(self._spawn(self._send(head, payload)))

    def drop(self) -> None:
        """Gives up the stream and what is on its way; the next frame opens another."""
        stream, self._stream = self._stream, None
        self._gathered, self._gathered_bytes = [], 0
        if stream is not None:
            stream.reset()

    def close(self) -> None:
        """No more frames."""
        self._closed = True
        self.drop()

    def _gather(self, messages: Sequence[Message], size: int) -> None:
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._send_gathered)
        self._gathered.extend(messages)
        self._gathered_bytes += size

    def _send_gathered(self) -> None:
        """As `_send`, where nothing has to be waited for, and so no deadline is needed. Whoever waits for what comes of
        it hears of a stream that breaks."""
        messages, self._gathered, self._gathered_bytes = self._gathered, [], 0
        stream = self._stream
        if not messages or stream is None:
            return
        try:
            stream.send_at_once([*((with_next(head), payload) for head, payload in messages[:-1]), messages[-1]])
        except KafilaError as error:
            self._broke(stream, error)

    async def _send(self, head: bytes, payload: memoryview) -> None:
        stream = None
        try:
            async with asyncio.timeout(self._deadline_s):
                stream = await self._ready()
                await stream.send(head, payload)
        except TimeoutError:
            late = TimedOut(f"{self.peer} took no frame for {self._deadline_s:.0f} s")
            self._broke(stream, late)
            raise late from None
        except KafilaError as error:
            self._broke(stream, error)
            raise

    async def _ready(self) -> Stream:
        async with self._opening:
            if self._closed:
                raise Unavailable(f"nothing more is sent to {self.peer}")
            if self._stream is None:
                self._stream = await self._open()
                self._spawn(self._watch(self._stream))
            return self._stream

    async def _watch(self, stream: Stream) -> None:
        """The next stage says nothing on this stream; what ends the wait is the stream's end."""
        try:
            while await stream.receive() is not None:
                pass
            end: KafilaError = Unavailable(f"{self.peer} takes no more frames")
        except KafilaError as error:
            end = error
        self._broke(stream, end)

    def _broke(self, stream: Stream | None, error: KafilaError) -> None:
        if stream is not None and self._stream is stream:
            self.drop()
            self.broken(error)

    def _spawn(self, work: Awaitable[None]) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller who waited has it; one who was cancelled wants it no more


def frame_of(
    state: HiddenState,
    *,
    epoch: int,
    sequence: int,
    needs_output: bool,
    has_guesses: bool = False,
    attempt: int = 0,
    timings: tuple[Timing, ...] = (),
) -> Frame:
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
        has_guesses=has_guesses,
        timings=timings,
        attempt=attempt,
    )


def limits_frame(limits: StepLimits, *, epoch: int) -> Frame:
    """What is said of steps with several tokens, as a frame."""
    return Frame(kind=FrameKind.STEPS, epoch=epoch, sequence=0, shape=limits.numbers)


def limits_of(frame: Frame) -> StepLimits:
    """What such a frame says."""
    return StepLimits(*frame.shape)


def state_of(frame: Frame) -> HiddenState:
    """The hidden state in a frame.

    Raises:
        InvalidInput: its parts don't fit each other.
    """
    batch, tokens, width = frame.shape if len(frame.shape) == 3 else (0, 0, 0)
    return HiddenState(frame.payload, frame.dtype or "", (batch, tokens, width), frame.position)


def _by_itself(frame: Frame) -> Frame:
    """Of a frame that is passed on: what left with it on the way here need not do so on the way on."""
    return replace(frame, with_next=False) if frame.with_next else frame
