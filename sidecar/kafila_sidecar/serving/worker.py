"""Every stage but the head: a frame in, its blocks, a frame out."""

import asyncio
from dataclasses import dataclass, field, replace

from kafila_sidecar.errors import InvalidInput, KafilaError
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.shard.finite import NotFinite
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.hop import HopSender, frame_of, state_of
from kafila_sidecar.serving.scheduler import MOST_ROWS_A_RUN
from kafila_sidecar.serving.standstill import ModelThread
from kafila_sidecar.serving.wire import Frame, FrameKind, RulesBroken, Timing, decode, most_bytes, sent_by


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the plan reserved memory for: sequences at once, tokens in each, and tokens in one frame."""

    sequences: int
    tokens: int
    chunk_tokens: int


@dataclass(frozen=True, slots=True)
class Incoming:
    """The stream from the stage before, the sequences that came over it, and those of them that go no further."""

    stream: Stream
    sequences: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)


class Worker:
    """Serves one stage for one epoch. `place`: in the ring's order, where the head has 0."""

    def __init__(
        self, *, epoch: int, place: int, shard: Shard, mlx: ModelThread, hop: HopSender, is_last: bool, bounds: Bounds
    ) -> None:
        self._epoch = epoch
        self._place = place
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
            RulesBroken: what came is nothing that a stage may send.
            KafilaError: the stream broke, or the next stage can't be reached.
        """
        async with self._turn:
            incoming = self._incoming = Incoming(stream)
            try:
                while (frame := await self._next_frame(stream)) is not None:
                    await self._take(frame, incoming)
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

    async def _next_frame(self, stream: Stream) -> Frame | None:
        with sent_by(stream.peer):
            message = await stream.receive(most_bytes=most_bytes(self._bounds.chunk_tokens, self._shard.entry.width))
            return None if message is None else decode(message)

    async def _take(self, frame: Frame, incoming: Incoming) -> None:
        arrived = self._clock()
        if frame.epoch != self._epoch:
            return
        match frame.kind:
            case FrameKind.RELEASE:
                await self._release(frame, incoming)
            case FrameKind.NOT_FINITE:
                await self._pass_on(frame, incoming)
            case FrameKind.ACTIVATION if frame.sequence not in incoming.ended:
                await self._run(frame, arrived, incoming)

    async def _run(self, frame: Frame, arrived: float, incoming: Incoming) -> None:
        with sent_by(incoming.stream.peer):
            state = state_of(frame)
            self._check(frame, state, incoming.sequences)
        incoming.sequences.add(frame.sequence)
        try:
            await self._run_blocks(frame, state, arrived, incoming.stream.peer)
        except NotFinite:
            incoming.ended.add(frame.sequence)
            told = Frame(FrameKind.NOT_FINITE, epoch=self._epoch, sequence=frame.sequence, position=self._place)
            await self._hop.send(told)

    async def _run_blocks(self, frame: Frame, state: HiddenState, arrived: float, peer: str) -> None:
        if self._is_last and not frame.needs_output:
            await self._mlx.run(self._absorb, peer, frame.sequence, state)
            return
        after, compute_s = await self._mlx.run(self._timed, peer, frame.sequence, state)
        timing = Timing(compute_s=compute_s, residence_s=self._clock() - arrived)
        out = frame_of(after, epoch=self._epoch, sequence=frame.sequence, needs_output=frame.needs_output)
        await self._hop.send(replace(out, timings=(*frame.timings, timing)))

    def _timed(self, peer: str, sequence: int, state: HiddenState) -> tuple[HiddenState, float]:
        began = self._clock()
        with sent_by(peer):
            self._shard.check_next(sequence, state)
        after = self._shard.run_blocks(sequence, state)
        return after, self._clock() - began

    def _absorb(self, peer: str, sequence: int, state: HiddenState) -> None:
        with sent_by(peer):
            self._shard.check_next(sequence, state)
        self._shard.absorb(sequence, state)

    async def _release(self, frame: Frame, incoming: Incoming) -> None:
        incoming.sequences.discard(frame.sequence)
        incoming.ended.discard(frame.sequence)
        await self._mlx.run(self._shard.release, frame.sequence)
        if not self._is_last:
            await self._hop.send(frame)

    async def _pass_on(self, frame: Frame, incoming: Incoming) -> None:
        """A stage before this one can't go on with a sequence; the head hears it, and releases it everywhere."""
        if not 0 < frame.position < self._place:
            raise RulesBroken(incoming.stream.peer, f"{incoming.stream.peer} told of a stage that is not before it")
        await self._hop.send(frame)

    def _forget(self, sequences: set[int]) -> None:
        for sequence in sequences:
            self._shard.release(sequence)

    def _check(self, frame: Frame, state: HiddenState, sequences: set[int]) -> None:
        """A stage before this one that errs, or means ill, takes no more memory here than was planned."""
        bounds = self._bounds
        if frame.sequence not in sequences and len(sequences) >= bounds.sequences:
            raise InvalidInput(f"more than {bounds.sequences} sequences came at once")
        if state.shape[0] > MOST_ROWS_A_RUN or state.position + state.tokens > bounds.tokens:
            raise InvalidInput(f"a sequence is longer than the session's {bounds.tokens} tokens")
        if state.tokens > bounds.chunk_tokens:
            raise InvalidInput(f"a frame has {state.tokens} tokens, and {bounds.chunk_tokens} were agreed on")
        if len(frame.timings) >= self._place:
            raise InvalidInput(f"a frame has the times of {len(frame.timings)} stages at place {self._place}")

    def _next_broke(self, _: KafilaError) -> None:
        if self._incoming is not None:
            self._incoming.stream.reset()
