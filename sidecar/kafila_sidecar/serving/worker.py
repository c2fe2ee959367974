"""Every stage but the head: a frame in, its blocks, a frame out."""

import asyncio
from dataclasses import dataclass, field, replace

from kafila_sidecar.errors import InvalidInput, KafilaError
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.hop import HopSender, frame_of, state_of
from kafila_sidecar.serving.scheduler import MOST_ROWS_A_RUN
from kafila_sidecar.serving.standstill import ModelThread
from kafila_sidecar.serving.wire import Frame, FrameKind, Timing, decode


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the plan reserved memory for: sequences at once, and tokens in each."""

    sequences: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Incoming:
    """The stream from the stage before, and the sequences that came over it."""

    stream: Stream
    sequences: set[int] = field(default_factory=set)


class Worker:
    """Serves one stage for one epoch."""

    def __init__(
        self, *, epoch: int, shard: Shard, mlx: ModelThread, hop: HopSender, is_last: bool, bounds: Bounds
    ) -> None:
        self._epoch = epoch
        self._shard = shard
        self._mlx = mlx
        self._hop = hop
        self._is_last = is_last
        self._bounds = bounds
        self._clock = asyncio.get_running_loop().time
        self._turn = asyncio.Lock()  # a new stream waits until what came over the old one is forgotten
        self._incoming: Incoming | None = None
        hop.broken = self._next_broke

    async def take_frames(self, stream: Stream) -> None:
        """Serves the stage before this one until it finishes or a link breaks; then every sequence that came this way
        is forgotten, and the next stage hears of it by the end of its own stream.

        Raises:
            KafilaError: the stream broke, or the next stage can't be reached.
        """
        async with self._turn:
            incoming = self._incoming = Incoming(stream)
            try:
                while (message := await stream.receive()) is not None:
                    await self._take(decode(message), incoming.sequences)
            finally:
                self._incoming = None
                self._hop.drop()
                await asyncio.shield(self._mlx.run(self._forget, incoming.sequences))

    def close(self) -> None:
        """No more frames go out."""
        self._hop.close()

    async def forgotten(self) -> None:
        """Returns once what came over streams that are over is forgotten."""
        async with self._turn:
            return

    async def _take(self, frame: Frame, sequences: set[int]) -> None:
        arrived = self._clock()
        if frame.epoch != self._epoch:
            return
        if frame.kind is FrameKind.RELEASE:
            await self._release(frame, sequences)
            return
        state = state_of(frame)
        self._check(frame.sequence, state, sequences)
        sequences.add(frame.sequence)
        await self._run(frame, state, arrived)

    async def _run(self, frame: Frame, state: HiddenState, arrived: float) -> None:
        if self._is_last and not frame.needs_output:
            await self._mlx.run(self._shard.absorb, frame.sequence, state)
            return
        after, compute_s = await self._mlx.run(self._timed, frame.sequence, state)
        timing = Timing(compute_s=compute_s, residence_s=self._clock() - arrived)
        out = frame_of(after, epoch=self._epoch, sequence=frame.sequence, needs_output=frame.needs_output)
        await self._hop.send(replace(out, timings=(*frame.timings, timing)))

    def _timed(self, sequence: int, state: HiddenState) -> tuple[HiddenState, float]:
        began = self._clock()
        after = self._shard.run_blocks(sequence, state)
        return after, self._clock() - began

    async def _release(self, frame: Frame, sequences: set[int]) -> None:
        sequences.discard(frame.sequence)
        await self._mlx.run(self._shard.release, frame.sequence)
        if not self._is_last:
            await self._hop.send(frame)

    def _forget(self, sequences: set[int]) -> None:
        for sequence in sequences:
            self._shard.release(sequence)

    def _check(self, sequence: int, state: HiddenState, sequences: set[int]) -> None:
        """A stage before this one that errs, or means ill, takes no more memory here than was planned."""
        if sequence not in sequences and len(sequences) >= self._bounds.sequences:
            raise InvalidInput(f"more than {self._bounds.sequences} sequences came at once")
        if state.shape[0] > MOST_ROWS_A_RUN or state.position + state.tokens > self._bounds.tokens:
            raise InvalidInput(f"a sequence is longer than the session's {self._bounds.tokens} tokens")

    def _next_broke(self, _: KafilaError) -> None:
        if self._incoming is not None:
            self._incoming.stream.reset()
