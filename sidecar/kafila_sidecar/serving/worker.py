"""Every stage but the head: frames in, its blocks over those of several sequences at once, frames out.

What comes is put in line as soon as it is there; meanwhile the runs go on, each with what is due next (`gathering`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from kafila_sidecar.errors import InvalidInput, KafilaError
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.handed_over import HandedOver
from kafila_sidecar.runtime.shard.finite import NotFinite
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.frames.hop import HopSender, frame_of, limits_frame, limits_of, state_of
from kafila_sidecar.serving.frames.wire import Frame, FrameKind, RulesBroken, Timing, decode, most_bytes, sent_by
from kafila_sidecar.serving.gathering import Gathering, InLine, RunTimes
from kafila_sidecar.serving.standstill import ModelThread

CHUNKS_IN_LINE = 8  # prompt chunks that wait here; more stay in the stream, and so with who sent them

Rows = Callable[[int], int]
"""How many sequences a run has, of so many that are there."""

Outcome = tuple[list[HiddenState | NotFinite], float]
"""What is made of a run's rows, none where nobody wants that, and the run's seconds."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the plan reserved memory for: sequences at once, tokens in each, and tokens in one frame."""

    sequences: int
    tokens: int
    chunk_tokens: int


@dataclass(frozen=True, slots=True)
class Came:
    """A frame that waits for its run."""

    frame: Frame
    state: HiddenState
    arrived: float  # seconds on the loop's clock


@dataclass(frozen=True, slots=True)
class Running:
    """A run that was begun."""

    rows: Sequence[InLine[Came]]
    outcome: "asyncio.Future[Outcome]"


@dataclass(slots=True)
class Incoming:
    """The stream from the stage before, the sequences that came over it, and those of them that go no further."""

    stream: Stream
    sequences: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    resting: set[int] = field(default_factory=set)  # of which nothing runs
    attempts: dict[int, int] = field(default_factory=dict)  # the latest of each
    to_rest: dict[int, Frame] = field(default_factory=dict)  # once all that came of them before that frame went on
    runs: list[Sequence[InLine[Came]]] = field(default_factory=list)  # that were begun and did not go on as a whole yet
    running: deque[Running] = field(default_factory=deque)  # those of them that are not over
    line: Gathering[Came] = field(default_factory=Gathering)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    awaits_next: bool = False  # with the frame that came last another one left, which is on its way
    is_over: bool = False  # nothing more comes

    def begin_attempt(self, frame: Frame) -> None:
        """With a new attempt of a sequence nobody waits any more for what came of the one before.

        Raises: InvalidInput where some of that is no guess.
        """
        if self.attempts.setdefault(frame.sequence, frame.attempt) == frame.attempt:
            return
        self.attempts[frame.sequence] = frame.attempt
        self.ended.discard(frame.sequence)
        for one in self.line.drop(frame.sequence):
            if one.work.frame.position < frame.position:
                raise InvalidInput(f"an attempt at {frame.position} leaves out what came at {one.work.frame.position}")

    def forget(self, sequence: int) -> None:
        """The sequence is over."""
        self.line.drop(sequence)
        self.attempts.pop(sequence, None)
        self.to_rest.pop(sequence, None)
        for those in (self.sequences, self.ended, self.resting):
            those.discard(sequence)

    def wants(self, frame: Frame) -> bool:
        """Whether anybody waits for what is made of it: it may have been released meanwhile, or been a wrong guess."""
        return frame.sequence in self.sequences and self.attempts[frame.sequence] == frame.attempt

    def has_work(self, sequence: int) -> bool:
        """Whether something of it is still to go on."""
        return self.line.has(sequence) or any(one.sequence == sequence for run in self.runs for one in run)

    def change(self) -> None:
        """Wakes who waits for work, or for room."""
        self.changed.set()
        self.changed = asyncio.Event()


class Worker:
    """Serves one stage for one epoch. `place`: in the ring's order, where the head has 0."""

    def __init__(
        self,
        *,
        epoch: int,
        place: int,
        shard: Shard,
        mlx: ModelThread,
        hop: HopSender,
        is_last: bool,
        bounds: Bounds,
        rows: Rows,
    ) -> None:
        self._epoch = epoch
        self._place = place
        self._shard = shard
        self._mlx = mlx
        self._hop = hop
        self._is_last = is_last
        self._bounds = bounds
        self._rows = rows
        self._clock = asyncio.get_running_loop().time
        self._turn = asyncio.Lock()  # a new stream waits until what came over the old one is forgotten
        self._incoming: Incoming | None = None
        self._times = RunTimes()
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
            tasks = [asyncio.create_task(part(incoming)) for part in (self._read_all, self._run_all)]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                self._incoming = None
                self._hop.drop()
                await asyncio.shield(self._mlx.start(self._forget, incoming.sequences))

    @property
    def resting(self) -> int:
        """Sequences that are kept for what may come, with no answer under way."""
        return len(self._incoming.resting) if self._incoming is not None else 0

    def close(self) -> None:
        """No more frames go out."""
        self._hop.close()

    async def forgotten(self) -> None:
        """Returns once what came over streams that are over is forgotten."""
        async with self._turn:
            return

    # ---- In

    async def _read_all(self, incoming: Incoming) -> None:
        try:
            while (frame := await self._next_frame(incoming.stream)) is not None:
                incoming.awaits_next = frame.with_next
                await self._take(frame, incoming)
                if not frame.with_next or self._is_full(incoming):
                    incoming.awaits_next = False
                    self._wake(incoming)
                while self._is_full(incoming):
                    await incoming.changed.wait()
        finally:
            incoming.is_over, incoming.awaits_next = True, False
            incoming.change()

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
            case FrameKind.REST:
                await self._rest(frame, incoming)
            case FrameKind.NOT_FINITE:
                await self._pass_on(frame, incoming)
            case FrameKind.STEPS:
                await self._hop.send(limits_frame(limits_of(frame).least(self._shard.step_limits), epoch=self._epoch))
            case FrameKind.ACTIVATION:
                self._put_in_line(frame, arrived, incoming)

    def _put_in_line(self, frame: Frame, arrived: float, incoming: Incoming) -> None:
        with sent_by(incoming.stream.peer):
            state = state_of(frame)
            self._check(frame, state, incoming.sequences)
            incoming.begin_attempt(frame)
        if frame.sequence in incoming.ended:
            return
        incoming.sequences.add(frame.sequence)
        incoming.resting.discard(frame.sequence)
        incoming.to_rest.pop(frame.sequence, None)
        is_chunk = not frame.has_guesses and (state.tokens > 1 or not frame.needs_output)
        incoming.line.add(InLine(frame.sequence, state.tokens, is_chunk, Came(frame, state, arrived)))

    def _is_full(self, incoming: Incoming) -> bool:
        return incoming.line.tokens > CHUNKS_IN_LINE * self._bounds.chunk_tokens

    def _wake(self, incoming: Incoming) -> None:
        """Who waits for work: what came together is there."""
        incoming.change()
        if incoming.running and self._shard.hands_over:
            asyncio.get_running_loop().call_soon(self._start_due, incoming)

    async def _release(self, frame: Frame, incoming: Incoming) -> None:
        incoming.forget(frame.sequence)
        await self._mlx.start(self._shard.release, frame.sequence)
        if not self._is_last:
            await self._hop.send(frame)

    async def _rest(self, frame: Frame, incoming: Incoming) -> None:
        if frame.sequence in incoming.sequences:
            incoming.begin_attempt(frame)
            incoming.to_rest[frame.sequence] = frame
        await self._let_rest(incoming)

    async def _let_rest(self, incoming: Incoming) -> None:
        """Who was told to, and has nothing more to go on: the next stage must not hear of it before that."""
        for sequence in [sequence for sequence in incoming.to_rest if not incoming.has_work(sequence)]:
            frame = incoming.to_rest.pop(sequence)
            incoming.resting.add(sequence)
            if not self._is_last:
                await self._hop.send(frame)

    # ---- Through

    async def _run_all(self, incoming: Incoming) -> None:
        """The next run begins before the results of the last one are sent, so that the model need not wait for it."""
        running = incoming.running
        try:
            while await self._next_run(incoming):
                made, compute_s = await running[0].outcome
                run = running.popleft().rows
                wanted = self._wanted(run, made, incoming)
                self._start_due(incoming)
                await self._send_on(wanted, len(run), compute_s, incoming)
                incoming.runs.pop(0)
                await self._let_rest(incoming)
        finally:
            for one in running:
                one.outcome.cancel()

    async def _next_run(self, incoming: Incoming) -> bool:
        """As soon as there is one; false when nothing more comes."""
        self._start_due(incoming)
        while not incoming.running and not incoming.is_over:
            await incoming.changed.wait()
            self._start_due(incoming)
        return bool(incoming.running)

    def _start_due(self, incoming: Incoming) -> None:
        """The runs that are due, but none while a frame that left with the last one is on its way."""
        if incoming.awaits_next:
            return
        running, most_rows = incoming.running, self._most_rows(incoming)
        while incoming.line.is_due(most_rows, under_way=len(running), hands_over=self._shard.hands_over):
            running.append(self._start(incoming, most_rows))

    def _most_rows(self, incoming: Incoming) -> int:
        return self._rows(max(1, len(incoming.sequences) - len(incoming.resting)))

    def _start(self, incoming: Incoming, most_rows: int) -> Running:
        run = incoming.line.next(most_rows)
        incoming.runs.append(run)
        incoming.change()
        is_wanted = not self._is_last or any(one.work.frame.needs_output for one in run)
        call = partial(self._timed if is_wanted else self._absorb, incoming.stream.peer, run)
        try:
            return Running(run, cast("asyncio.Future[Outcome]", self._mlx.start(call)))
        except KafilaError as error:
            outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            outcome.set_exception(error)
            return Running(run, outcome)

    def _wanted(
        self, run: Sequence[InLine[Came]], made: Sequence[HiddenState | NotFinite], incoming: Incoming
    ) -> Sequence[tuple[InLine[Came], HiddenState | NotFinite]]:
        """What of a run goes on. A sequence that can't leaves the line."""
        wanted = [
            (one, what)
            for one, what in zip(run, made, strict=False)
            if incoming.wants(one.work.frame) and one.sequence not in incoming.ended
        ]
        for one, what in wanted:
            if isinstance(what, NotFinite):
                incoming.ended.add(one.sequence)
                incoming.line.drop(one.sequence)
        return wanted

    async def _send_on(
        self,
        wanted: Sequence[tuple[InLine[Came], HiddenState | NotFinite]],
        rows: int,
        compute_s: float,
        incoming: Incoming,
    ) -> None:
        """What a run of so many rows made, all of it together, so that the next stage may run it together too."""
        if wanted:
            await self._hop.send(*(self._made_of(one, what, compute_s, rows) for one, what in wanted))
        if wanted and len(wanted) >= self._most_rows(incoming) and all(_is_step(what) for _, what in wanted):
            # as the next ones will be, together
            states = [(one.sequence, one.work.state) for one, _ in wanted]
            at = [(sequence, state.position + state.tokens) for sequence, state in states]
            # Not before they are sent, which is the loop's next turn: building keeps the interpreter to itself.
            asyncio.get_running_loop().call_soon(self._mlx.when_idle, self._shard.build_steps, at, states[0][1])

    def _made_of(self, one: InLine[Came], made: HiddenState | NotFinite, compute_s: float, rows: int) -> Frame:
        frame = one.work.frame
        if isinstance(made, NotFinite):
            return Frame(
                FrameKind.NOT_FINITE,
                epoch=self._epoch,
                sequence=frame.sequence,
                position=self._place,
                attempt=frame.attempt,
            )
        timing = Timing(compute_s=compute_s, residence_s=self._clock() - one.work.arrived, rows=rows)
        return frame_of(
            made.last_token if self._is_last and not frame.has_guesses else made,
            epoch=self._epoch,
            sequence=frame.sequence,
            needs_output=frame.needs_output,
            has_guesses=frame.has_guesses,
            attempt=frame.attempt,
            timings=(*frame.timings, timing),
        )

    def _timed(self, peer: str, run: Sequence[InLine[Came]]) -> "Outcome | HandedOver[Outcome]":
        """What is made of each row, and the seconds of the run."""
        began = self._clock()
        rows = [(one.sequence, one.work.state) for one in run]
        with sent_by(peer):
            for sequence, state in rows:
                self._shard.check_next(sequence, state)
        has_guesses = run[0].work.frame.has_guesses  # as in each: they have equally many tokens
        if self._shard.hands_over and rows[0][1].tokens == 1 and not has_guesses:
            given = self._shard.hand_over_rows(rows)
            return HandedOver(lambda: (given.finish(), self._times.spent_s(began, self._clock())))
        return self._shard.run_rows(rows, has_guesses=has_guesses), self._times.spent_s(began, self._clock())

    def _absorb(self, peer: str, run: Sequence[InLine[Came]]) -> Outcome:
        """As `_timed`, where nobody wants what is made."""
        (one,) = run
        with sent_by(peer):
            self._shard.check_next(one.sequence, one.work.state)
        self._shard.absorb(one.sequence, one.work.state)
        return [], 0.0

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
        if state.shape[0] != 1 or state.position + state.tokens > bounds.tokens:
            raise InvalidInput(f"a sequence is longer than the session's {bounds.tokens} tokens")
        if state.tokens > bounds.chunk_tokens:
            raise InvalidInput(f"a frame has {state.tokens} tokens, and {bounds.chunk_tokens} were agreed on")
        if len(frame.timings) >= self._place:
            raise InvalidInput(f"a frame has the times of {len(frame.timings)} stages at place {self._place}")

    def _next_broke(self, _: KafilaError) -> None:
        if self._incoming is not None:
            self._incoming.stream.reset()


def _is_step(made: HiddenState | NotFinite) -> bool:
    return isinstance(made, HiddenState) and made.tokens == 1
