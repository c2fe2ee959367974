"""Every stage but the head: a frame in, its blocks, a frame out."""

import asyncio
import logging
from dataclasses import replace

from sidecar.net.frames import Frame, FrameKind, Timing, decode
from sidecar.net.stream import Stream
from sidecar.runtime.mlx_thread import MlxThread
from sidecar.runtime.shard import Shard
from sidecar.runtime.state import State
from sidecar.serving.hop import Hop, frame_of, state_of

log = logging.getLogger(__name__)


class Worker:
    """Serves one stage for one epoch."""

    def __init__(self, *, epoch: int, shard: Shard, mlx: MlxThread, hop: Hop, is_last: bool) -> None:
        self._epoch = epoch
        self._shard = shard
        self._mlx = mlx
        self._hop = hop
        self._is_last = is_last
        self._clock = asyncio.get_running_loop().time

    async def take_frames(self, stream: Stream) -> None:
        """Serves the stage before this one until it finishes or the link breaks.

        Raises:
            KafilaError: the stream broke, or the next stage can't be reached.
        """
        while (message := await stream.receive()) is not None:
            arrived = self._clock()
            frame = decode(message)
            if frame.epoch != self._epoch:
                continue
            if frame.kind is FrameKind.RELEASE:
                await self._release(frame)
            else:
                await self._run(frame, arrived)

    async def _run(self, frame: Frame, arrived: float) -> None:
        state = state_of(frame)
        if self._is_last and not frame.needs_output:
            await self._mlx.run(self._shard.absorb, frame.sequence, state)
            return
        after, compute_s = await self._mlx.run(self._timed, frame.sequence, state)
        timing = Timing(compute_s=compute_s, residence_s=self._clock() - arrived)
        out = frame_of(after, epoch=self._epoch, sequence=frame.sequence, needs_output=frame.needs_output)
        await self._hop.send(replace(out, timings=(*frame.timings, timing)))

    def _timed(self, sequence: int, state: State) -> tuple[State, float]:
        began = self._clock()
        after = self._shard.run_blocks(sequence, state)
        return after, self._clock() - began

    async def _release(self, frame: Frame) -> None:
        await self._mlx.run(self._shard.release, frame.sequence)
        if not self._is_last:
            await self._hop.send(frame)

    def close(self) -> None:
        """No more frames go out."""
        self._hop.close()
