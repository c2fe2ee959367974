"""The head's side of the ring: a hidden state goes out, and comes back from the last stage.

The streams of a ring stand and fall together: when one breaks, each stage gives up its own, forgets the sequences that
came over it, and so the break goes round to the head, whose running requests fail. The next request starts anew.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from kafila_sidecar.errors import InvalidInput, KafilaError, TimedOut, Unavailable
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.footprint import MOST_ROWS_A_RUN
from kafila_sidecar.runtime.shard.finite import NotFinite, TokenLayout, check_state
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.runtime.shard.state import ITEM_BYTES, HiddenState
from kafila_sidecar.serving.frames.hop import HopSender, frame_of, limits_frame, limits_of, state_of
from kafila_sidecar.serving.frames.wire import Frame, FrameKind, Timing, decode, most_bytes, next_attempt, sent_by

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


@dataclass(frozen=True, slots=True, eq=False)
class OnItsWay:
    """What is on its way round, as far as it is to come back, and what will be its return."""

    state: HiddenState
    returned: "asyncio.Future[Returned]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Ring:
    """Frames out over `hop`, answers by sequence; with no hop the head holds every block itself.

    order: the stages' names, the head first. last: how a state lies on the wire that comes back from the last one.
    """

    def __init__(
        self,
        *,
        epoch: int,
        hop: HopSender | None,
        order: Sequence[str],
        last: TokenLayout,
        chunk_tokens: int,
        limits: StepLimits | None = None,
        decode_deadline_s: float = DECODE_DEADLINE_S,
    ) -> None:
        """limits: what the head's own stage says of steps with several tokens."""
        self._epoch = epoch
        self._decode_deadline_s = decode_deadline_s
        self._hop = hop
        self._order = order
        self._last = last
        self._most_bytes = most_bytes(chunk_tokens, last.width)
        self._back: Stream | None = None  # from the last stage
        self._waiting: dict[int, deque[OnItsWay]] = {}  # of each sequence in the order in which they come back
        self._attempts: dict[int, int] = {}  # the latest of each sequence that had more than one
        self._late: dict[int, deque[OnItsWay]] = {}  # for which nobody waits any more
        self._ended: dict[int, NotFinite] = {}  # sequences that a stage can't go on with
        self._sent: dict[int, int] = {}  # of sequences that the stages know: how many tokens each of them surely gets
        self._lost: set[int] = set()  # sequences that they knew before the ring broke
        self._own_limits = limits or StepLimits()
        self._told_limits: StepLimits | None = None  # by all stages
        self._asks_limits = False  # a frame that asks is on its way
        self._fault: KafilaError | None = None
        self.broke: Callable[[], None] = lambda: None  # hears that the other stages have forgotten every sequence
        if hop is not None:
            hop.broken = self._interrupted

    @property
    def has_others(self) -> bool:
        """Whether the head is not the only stage."""
        return self._hop is not None

    @property
    def step_limits(self) -> StepLimits:
        """Of steps with several tokens: what holds of all stages, and none before all have said theirs."""
        return self._told_limits or StepLimits()

    @property
    def told_limits(self) -> StepLimits | None:
        """The same, once all have said theirs."""
        return self._told_limits

    @property
    def token_bytes(self) -> int:
        """Of one token's state on the wire, at most."""
        return self._last.width * max(ITEM_BYTES.values())

    async def learn_step_limits(self) -> None:
        """Asks the other stages, unless they have told or are being asked. What breaks is told to who sends next."""
        if self._hop is None:
            self._told_limits = self._own_limits
        elif not self._told_limits and not self._asks_limits:
            self._asks_limits = True
            with suppress(KafilaError):
                await self._hop.send(limits_frame(self._own_limits, epoch=self._epoch))

    def has(self, sequence: int) -> bool:
        """Whether every stage still has what was sent of it."""
        return self._hop is None or sequence in self._sent

    def sent(self, sequence: int) -> int:
        """How many of its first tokens every stage has taken in, or will before anything that is sent later."""
        return self._sent.get(sequence, 0)

    def goes_on(self, sequence: int, position: int) -> None:
        """The next that is sent of it is at `position`, whatever came after that before."""
        if sequence in self._sent:
            self._sent[sequence] = position

    def check(self) -> None:
        """Raises the fault that ended the epoch."""
        if self._fault is not None:
            raise self._fault

    async def send(self, sequence: int, state: HiddenState, *, wants_output: bool, has_guesses: bool = False) -> None:
        """A hidden state to the next stage.

        Raises:
            Interrupted: the ring broke, or the next stage can't be reached.
            NotFinite: a stage made NaN or infinity of the sequence.
            TimedOut: the next stage takes nothing.
            KafilaError: the fault that ended the epoch.
        """
        self.check()
        if sequence in self._lost:
            raise Interrupted(INTERRUPTED)
        if sequence in self._ended:
            raise self._ended[sequence]
        position = state.position + (1 if has_guesses else state.tokens)
        if self._hop is None:
            self._sent[sequence] = position
            return
        self._sent.setdefault(sequence, 0)
        try:
            await self._hop.send(
                frame_of(
                    state,
                    epoch=self._epoch,
                    sequence=sequence,
                    needs_output=wants_output,
                    has_guesses=has_guesses,
                    attempt=self._attempt(sequence),
                )
            )
        except Unavailable as error:
            raise Interrupted(f"{INTERRUPTED} ({error})") from error
        self.goes_on(sequence, position)

    async def go_round(
        self, sequence: int, state: HiddenState, *, is_prompt: bool, has_guesses: bool = False
    ) -> Returned:
        """A hidden state once round the ring; back comes that of its last token, or with guesses of each.

        Raises:
            Interrupted: the ring broke.
            NotFinite: a stage made NaN or infinity of the sequence.
            TimedOut: nothing came back in time.
            KafilaError: the fault that ended the epoch.
        """
        async with _in_time(PROMPT_DEADLINE_S if is_prompt else self._decode_deadline_s):
            return await self._returned(sequence, await self.set_out(sequence, state, has_guesses=has_guesses))

    async def set_out(
        self, sequence: int, state: HiddenState, *, has_guesses: bool = False, is_guess: bool = False
    ) -> OnItsWay:
        """A hidden state on its way round, before or while others of its sequence are; they come back in this order.
        is_guess: its token is one. Raises: as `go_round`.
        """
        certain = self.sent(sequence)
        sent = OnItsWay(state if has_guesses else state.last_token)
        if self._hop is None:
            await self.send(sequence, state, wants_output=True, has_guesses=has_guesses)
            sent.returned.set_result(Returned(sent.state, ()))
            return sent
        self._waiting.setdefault(sequence, deque()).append(sent)
        try:
            await self.send(sequence, state, wants_output=True, has_guesses=has_guesses)
        except BaseException:
            self._wait_no_more(sequence, sent)
            raise
        if is_guess:
            self.goes_on(sequence, certain)
        return sent

    async def back(self, sequence: int, sent: OnItsWay) -> Returned:
        """What comes of a token's state that set out. Raises: as `go_round`."""
        async with _in_time(self._decode_deadline_s):
            return await self._returned(sequence, sent)

    def void(self, sequence: int) -> None:
        """Whatever of the sequence is on its way was guessed wrongly: nobody waits for it, and every stage that has not
        run it yet leaves it out as soon as the next frame comes. What a stage could not go on with was of it too."""
        self._ended.pop(sequence, None)
        if line := self._waiting.pop(sequence, None):
            self.goes_on(sequence, line[0].state.position)
            for sent in line:
                _retrieve(sent.returned)
        self._attempts[sequence] = next_attempt(self._attempt(sequence))

    def leave(self, sequence: int) -> None:
        """Nobody waits any more for what of it is on its way; it still comes, and was no wrong guess as far as that is
        known."""
        self._late.setdefault(sequence, deque()).extend(self._waiting.pop(sequence, ()))

    async def settled(self, sequence: int) -> None:
        """Returns once nothing of it is on its way back that nobody waits for.

        Raises:
            Interrupted: the ring broke.
            TimedOut: it did not come in time.
        """
        for late in tuple(self._late.get(sequence, ())):
            async with _in_time(PROMPT_DEADLINE_S):
                await asyncio.shield(late.returned)
        self._late.pop(sequence, None)

    async def release(self, sequence: int) -> None:
        """Every stage frees what it holds for the sequence; where the ring is broken they have done so already."""
        self._attempts.pop(sequence, None)
        for sent in (*self._waiting.pop(sequence, ()), *self._late.pop(sequence, ())):
            _retrieve(sent.returned)
        self._lost.discard(sequence)
        self._ended.pop(sequence, None)
        if self._sent.pop(sequence, None) is not None:
            await self._tell(FrameKind.RELEASE, sequence)

    async def rest(self, sequence: int) -> None:
        """Every stage keeps what it holds for the sequence, of which nothing runs."""
        if sequence in self._sent:
            await self._tell(FrameKind.REST, sequence)

    async def take_frames(self, stream: Stream) -> None:
        """Reads what the last stage sends, until it finishes or the link breaks, or it opens another stream.

        Raises:
            RulesBroken: what came is nothing that a stage may send.
            KafilaError: the stream broke; nothing more comes on it.
        """
        before, self._back = self._back, stream
        if before is not None:
            before.reset()
        try:
            with sent_by(stream.peer):
                together: list[Frame] = []
                while (message := await stream.receive(most_bytes=self._most_bytes)) is not None:
                    together.append(decode(message))
                    if not together[-1].with_next or len(together) == MOST_ROWS_A_RUN:
                        for frame in together:
                            self._take(frame)
                        together.clear()
        finally:
            if self._back is stream:
                self._interrupted(Unavailable(f"{stream.peer} sends nothing more"))

    def fail(self, fault: KafilaError) -> None:
        """Ends the epoch: whoever waits, and whoever comes, gets `fault`."""
        self._fault = fault
        self._fail_waiting(fault)
        if self._hop is not None:
            self._hop.close()

    async def _tell(self, kind: FrameKind, sequence: int) -> None:
        if self._hop is None:
            return
        attempt = self._attempt(sequence) if kind is FrameKind.REST else 0
        try:
            await self._hop.send(Frame(kind=kind, epoch=self._epoch, sequence=sequence, attempt=attempt))
        except KafilaError:
            return  # the stream broke, and every stage forgets what came over it

    def _take(self, frame: Frame) -> None:
        """What is of an epoch or a request that is over is dropped. Raises InvalidInput."""
        if frame.epoch == self._epoch and frame.kind is FrameKind.STEPS:
            self._take_limits(limits_of(frame))
        is_known = frame.epoch == self._epoch and frame.sequence in self._sent
        if not is_known or frame.attempt != self._attempt(frame.sequence):
            return
        coming = (*self._late.get(frame.sequence, ()), *self._waiting.get(frame.sequence, ()))
        sent = next((one for one in coming if not one.returned.done()), None)
        if frame.kind is FrameKind.NOT_FINITE:
            self._end(frame, sent)
        elif frame.kind is FrameKind.ACTIVATION and sent is not None:
            state = state_of(frame)
            self._check(sent.state, state, len(frame.timings))
            sent.returned.set_result(Returned(state, frame.timings))

    def _check(self, sent: HiddenState, came: HiddenState, stages: int) -> None:
        """What comes back is what was sent and asked for, after the last block."""
        if (came.shape[0], came.tokens, came.position) != (sent.shape[0], sent.tokens, sent.position):
            raise InvalidInput(
                f"{came.tokens} tokens at {came.position} came back, and {sent.tokens} at {sent.position} were to"
            )
        if stages != len(self._order) - 1:
            raise InvalidInput(f"a frame has the times of {stages} stages, in a ring of {len(self._order)}")
        check_state(came, self._last)

    def _take_limits(self, told: StepLimits) -> None:
        """No stage raises what it got."""
        if told != told.least(self._own_limits):
            raise InvalidInput(f"steps of {told.numbers} tokens are told, and of {self._own_limits.numbers} were asked")
        self._told_limits = told

    def _end(self, frame: Frame, sent: OnItsWay | None) -> None:
        """A stage made NaN or infinity of a sequence."""
        if not 0 < frame.position < len(self._order):
            raise InvalidInput(f"place {frame.position} is no stage's, in a ring of {len(self._order)}")
        error = NotFinite(
            f"{self._order[frame.position]}'s blocks made NaN or infinity of this request: the weights there are"
            " damaged, or the model's element type is too small for its numbers; a checkpoint in bf16 or f32 may help"
        )
        self._ended[frame.sequence] = error
        if sent is not None:
            sent.returned.set_exception(error)

    def _interrupted(self, error: KafilaError) -> None:
        """A stream of the ring broke: every sequence in it is lost, the rest of the ring hears of it."""
        self._lost.update(self._sent)
        self._asks_limits = False
        self._sent.clear()
        self._fail_waiting(Interrupted(f"{INTERRUPTED} ({error})"))
        back, self._back = self._back, None
        if back is not None:
            back.reset()
        if self._hop is not None:
            self._hop.drop()
        self.broke()

    def _fail_waiting(self, fault: KafilaError) -> None:
        for sent in (one for lines in (self._waiting, self._late) for line in lines.values() for one in line):
            if not sent.returned.done():
                sent.returned.set_exception(fault)
        for sent in (one for line in self._late.values() for one in line):
            _retrieve(sent.returned)
        self._late.clear()

    def _leave_behind(self, sequence: int, sent: OnItsWay) -> None:
        """What somebody waited for until now: it still comes, if it went out; else nobody knows whether it did."""
        if sent.returned.cancelled():
            self._late.setdefault(sequence, deque()).append(OnItsWay(sent.state))
        elif not sent.returned.done():
            self.goes_on(sequence, 0)

    def _attempt(self, sequence: int) -> int:
        return self._attempts.get(sequence, 0)

    async def _returned(self, sequence: int, sent: OnItsWay) -> Returned:
        try:
            return await sent.returned
        finally:
            self._wait_no_more(sequence, sent)

    def _wait_no_more(self, sequence: int, sent: OnItsWay) -> None:
        line = self._waiting.get(sequence)
        if line and sent in line:
            line.remove(sent)
        if not line:
            self._waiting.pop(sequence, None)
        self._leave_behind(sequence, sent)
        _retrieve(sent.returned)


@asynccontextmanager
async def _in_time(deadline_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except TimeoutError:
        raise TimedOut(f"the ring brought nothing back within {deadline_s:.0f} s: try again") from None


def _retrieve(future: "asyncio.Future[Returned]") -> None:
    """An exception that nobody waited for any more is no loss."""
    if future.done() and not future.cancelled():
        future.exception()
