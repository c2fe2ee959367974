"""The head's side of the ring: a hidden state goes out, and comes back from the last stage."""

import asyncio
from dataclasses import dataclass

from sidecar.errors import KafilaError, TimedOut
from sidecar.net.frames import Frame, FrameKind, Timing, decode
from sidecar.net.stream import Stream
from sidecar.runtime.state import State
from sidecar.serving.hop import Hop, frame_of, state_of

DECODE_DEADLINE_S = 60.0  # one token through all stages
PROMPT_DEADLINE_S = 600.0  # the last chunk of a prompt, with all earlier ones before it in every stage's queue


@dataclass(frozen=True, slots=True)
class Returned:
    """What came back: the hidden state after the last block, and the other stages' times in ring order."""

    state: State
    stages: tuple[Timing, ...]


class Ring:
    """Frames out over `hop`, answers by sequence; with no hop the head holds every block itself."""

    def __init__(self, *, epoch: int, hop: Hop | None) -> None:
        self._epoch = epoch
        self._hop = hop
        self._waiting: dict[int, asyncio.Future[Returned]] = {}
        self._fault: KafilaError | None = None

    async def send(self, sequence: int, state: State, *, wants_output: bool) -> None:
        """A hidden state to the next stage.

        Raises:
            Unavailable, TimedOut: the next stage can't be reached, or a member was lost.
        """
        if self._fault is not None:
            raise self._fault
        if self._hop is not None:
            await self._hop.send(frame_of(state, epoch=self._epoch, sequence=sequence, needs_output=wants_output))

    async def go_round(self, sequence: int, state: State, *, is_prompt: bool) -> Returned:
        """A hidden state once round the ring.

        Raises:
            Unavailable: a member was lost.
            TimedOut: nothing came back in time.
        """
        if self._hop is None:
            return Returned(state, ())
        future: asyncio.Future[Returned] = asyncio.get_running_loop().create_future()
        self._waiting[sequence] = future
        deadline_s = PROMPT_DEADLINE_S if is_prompt else DECODE_DEADLINE_S
        try:
            await self.send(sequence, state, wants_output=True)
            async with asyncio.timeout(deadline_s):
                return await future
        except TimeoutError:
            raise TimedOut(f"the ring brought nothing back within {deadline_s:.0f} s: try again") from None
        finally:
            del self._waiting[sequence]

    async def release(self, sequence: int) -> None:
        """Every stage frees what it holds for the sequence; nothing to do when the ring is broken anyway."""
        if self._hop is None or self._fault is not None:
            return
        try:
            await self._hop.send(Frame(kind=FrameKind.RELEASE, epoch=self._epoch, sequence=sequence))
        except KafilaError:
            return  # the link broke: the epoch ends, and with it all sequences

    async def take_frames(self, stream: Stream) -> None:
        """Reads what the last stage sends, until it finishes or the link breaks.

        Raises:
            KafilaError: the stream broke; nothing more comes on it.
        """
        while (message := await stream.receive()) is not None:
            frame = decode(message)
            waiting = self._waiting.get(frame.sequence)
            if frame.epoch != self._epoch or frame.kind is not FrameKind.ACTIVATION or waiting is None:
                continue  # of an epoch or a request that is over
            if not waiting.done():
                waiting.set_result(Returned(state_of(frame), frame.timings))

    def fail(self, fault: KafilaError) -> None:
        """Ends the epoch: whoever waits, and whoever comes, gets `fault`."""
        self._fault = fault
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(fault)
        if self._hop is not None:
            self._hop.close()
