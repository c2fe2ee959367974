"""The head's side of the ring: a hidden state goes out, and comes back from the last stage.

The streams of a ring stand and fall together: when one breaks, each stage gives up its own, forgets the sequences that
came over it, and so the break goes round to the head, whose running requests fail. The next request starts anew.
"""

import asyncio
from dataclasses import dataclass

from kafila_sidecar.errors import KafilaError, TimedOut, Unavailable
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.hop import HopSender, frame_of, state_of
from kafila_sidecar.serving.wire import Frame, FrameKind, Timing, decode

DECODE_DEADLINE_S = 60.0  # one token through all stages
PROMPT_DEADLINE_S = 600.0  # the last chunk of a prompt, with all earlier ones before it in every stage's queue
INTERRUPTED = "the ring was interrupted and this answer with it: ask again"


class Interrupted(Unavailable):
    """A run broke off: the streams of the ring did, or the epoch is over, or the way to the head. What was told of the
    answer stands, and it may go on."""


@dataclass(frozen=True, slots=True)
class Returned:
    """What came back: the hidden state after the last block, and the other stages' times in ring order."""

    state: HiddenState
    stages: tuple[Timing, ...]


class Ring:
    """Frames out over `hop`, answers by sequence; with no hop the head holds every block itself."""

    def __init__(self, *, epoch: int, hop: HopSender | None, decode_deadline_s: float = DECODE_DEADLINE_S) -> None:
        self._epoch = epoch
        self._decode_deadline_s = decode_deadline_s
        self._hop = hop
        self._back: Stream | None = None  # from the last stage
        self._waiting: dict[int, asyncio.Future[Returned]] = {}
        self._running: set[int] = set()  # sequences that the other stages know
        self._lost: set[int] = set()  # sequences that they knew before the ring broke
        self._fault: KafilaError | None = None
        if hop is not None:
            hop.broken = self._interrupted

    def check(self) -> None:
        """Raises the fault that ended the epoch."""
        if self._fault is not None:
            raise self._fault

    async def send(self, sequence: int, state: HiddenState, *, wants_output: bool) -> None:
        """A hidden state to the next stage.

        Raises:
            Interrupted: the ring broke, or the next stage can't be reached.
            TimedOut: the next stage takes nothing.
            KafilaError: the fault that ended the epoch.
        """
        self.check()
        if sequence in self._lost:
            raise Interrupted(INTERRUPTED)
        if self._hop is None:
            return
        self._running.add(sequence)
        try:
            await self._hop.send(frame_of(state, epoch=self._epoch, sequence=sequence, needs_output=wants_output))
        except Unavailable as error:
            raise Interrupted(f"{INTERRUPTED} ({error})") from error

    async def go_round(self, sequence: int, state: HiddenState, *, is_prompt: bool) -> Returned:
        """A hidden state once round the ring.

        Raises:
            Interrupted: the ring broke.
            TimedOut: nothing came back in time.
            KafilaError: the fault that ended the epoch.
        """
        if self._hop is None:
            self.check()
            return Returned(state, ())
        future: asyncio.Future[Returned] = asyncio.get_running_loop().create_future()
        self._waiting[sequence] = future
        deadline_s = PROMPT_DEADLINE_S if is_prompt else self._decode_deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                await self.send(sequence, state, wants_output=True)
                return await future
        except TimeoutError:
            raise TimedOut(f"the ring brought nothing back within {deadline_s:.0f} s: try again") from None
        finally:
            del self._waiting[sequence]
            _retrieve(future)

    async def release(self, sequence: int) -> None:
        """Every stage frees what it holds for the sequence; where the ring is broken they have done so already."""
        self._lost.discard(sequence)
        if self._hop is None or sequence not in self._running:
            return
        self._running.discard(sequence)
        try:
            await self._hop.send(Frame(kind=FrameKind.RELEASE, epoch=self._epoch, sequence=sequence))
        except KafilaError:
            return  # the stream broke, and every stage forgets what came over it

    async def take_frames(self, stream: Stream) -> None:
        """Reads what the last stage sends, until it finishes or the link breaks.

        Raises:
            KafilaError: the stream broke; nothing more comes on it.
        """
        self._back = stream
        try:
            while (message := await stream.receive()) is not None:
                self._take(decode(message))
        finally:
            if self._back is stream:
                self._interrupted(Unavailable(f"{stream.peer} sends nothing more"))

    def fail(self, fault: KafilaError) -> None:
        """Ends the epoch: whoever waits, and whoever comes, gets `fault`."""
        self._fault = fault
        self._fail_waiting(fault)
        if self._hop is not None:
            self._hop.close()

    def _take(self, frame: Frame) -> None:
        waiting = self._waiting.get(frame.sequence)
        if frame.epoch != self._epoch or frame.kind is not FrameKind.ACTIVATION or waiting is None:
            return  # of an epoch or a request that is over
        if not waiting.done():
            waiting.set_result(Returned(state_of(frame), frame.timings))

    def _interrupted(self, error: KafilaError) -> None:
        """A stream of the ring broke: every sequence in it is lost, the rest of the ring hears of it."""
        self._lost |= self._running
        self._running.clear()
        self._fail_waiting(Interrupted(f"{INTERRUPTED} ({error})"))
        back, self._back = self._back, None
        if back is not None:
            back.reset()
        if self._hop is not None:
            self._hop.drop()

    def _fail_waiting(self, fault: KafilaError) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(fault)


def _retrieve(future: "asyncio.Future[Returned]") -> None:
    """An exception that nobody waited for any more is no loss."""
    if future.done() and not future.cancelled():
        future.exception()
