"""The head of one epoch: a request waits for its turn, then embed and run its blocks → ring → norm, unembed, sample.

Each run of a request is one task that reads top to bottom; they interleave on the MLX thread and in the ring, so that
several sequences fill it. A run begins with all tokens that there are, be it a prompt or an answer that was broken off.
The engine knows no socket, and the ring no model.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from time import monotonic

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError, TimedOut
from kafila_sidecar.runtime.footprint import PREFILL_CHUNK_TOKENS
from kafila_sidecar.runtime.shard.limits import F32_LEAD
from kafila_sidecar.runtime.shard.picking import Guessed, Pick, TokenScore
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.guessing.gate import StepTimes
from kafila_sidecar.serving.guessing.guesser import Guesser
from kafila_sidecar.serving.guessing.room import MOST_GUESSES, most_guesses, why_none
from kafila_sidecar.serving.headwork import GuessStep, HeadWork, LastState, Spent
from kafila_sidecar.serving.intake.question import Question, Replies
from kafila_sidecar.serving.intake.requests import Generation, RequestTable
from kafila_sidecar.serving.keeping.kept import Beginning
from kafila_sidecar.serving.places import Places
from kafila_sidecar.serving.pulse import Pulse
from kafila_sidecar.serving.ring import Interrupted, Returned, Ring
from kafila_sidecar.serving.scheduler import MOST_WAITING, ChunkPace, Scheduler
from kafila_sidecar.serving.standstill import ModelThread
from kafila_sidecar.serving.trace import Circuit, RequestTrace
from kafila_sidecar.session.coordination.effects import Proposal

log = logging.getLogger(__name__)

INTERRUPTED = "interrupted"  # how a run ends that goes on elsewhere

MOST_TOLD = 16  # requests that the other members hear of

Ended = Callable[[RequestTrace, str], None]
TellBusy = Callable[[ring_pb2.Busy], None]


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What an engine takes on, and for how long."""

    most_waiting: int = MOST_WAITING
    wait_deadline_s: float = 600.0  # for a request's turn
    prefill_chunk_tokens: int = PREFILL_CHUNK_TOKENS
    guesses: int = MOST_GUESSES  # in a step of a request that says nothing of them


class Engine:
    """Answers the requests of one epoch. ended: hears of every run that had its turn, and how it ended. busy: hears
    what is done, every second while something is."""

    def __init__(
        self,
        *,
        shard: Shard,
        mlx: ModelThread,
        ring: Ring,
        proposal: Proposal,
        requests: RequestTable,
        ended: Ended,
        busy: TellBusy,
        limits: EngineLimits,
        rows: Callable[[int], int],
    ) -> None:
        """rows: how many sequences a run of this stage has, of so many that are there."""
        self._ring = ring
        self._proposal = proposal
        self._requests = requests
        self._ended = ended
        self._limits = limits
        self._work = HeadWork(shard=shard, mlx=mlx, rows=rows)
        self._rows = rows
        self._pace = ChunkPace(limits.prefill_chunk_tokens)
        self._circuit_s = StepTimes()  # of a sequence that runs alone
        self._busiest_s = StepTimes()  # of the stage that takes longest, which counts when others run too
        most = proposal.problem.concurrency
        self._places = Places(work=self._work, ring=ring, most=most, forgets=shard.all_rewind)
        self._scheduler = Scheduler(most_running=most, most_waiting=limits.most_waiting)
        self._turns: dict[int, asyncio.Future[None]] = {}  # of those who wait
        self._runs: dict[int, asyncio.Task[str]] = {}
        self._begun: dict[int, _Run] = {}  # those that had their turn, by request
        self._clearing: set[asyncio.Task[None]] = set()  # each waits for one run, and clears it away
        self._fault: Interrupted | None = None
        self._pulse = Pulse(tell=lambda rate: busy(self._busy(rate)), idle=lambda: not self._turns)

    @asynccontextmanager
    async def asked(self, question: Question) -> AsyncIterator[Replies]:
        """One answer from where it stands; leaving the block frees its sequence on every stage, if it still runs.

        Raises:
            InvalidInput: options or prompt make no sense, or the prompt is too long and may not be cut.
            Exhausted: too many requests wait.
            Interrupted: the ring broke, or the epoch is over: it may be asked again, with what was told.
            TimedOut: no sequence came free.
        """
        self._ring.check()
        self._replace(question)
        self._scheduler.check_room()
        generation = await self._requests.open(question)
        try:
            self._begin(generation, question)
            yield generation.replies
        finally:
            self._give_up(generation.number)
            self._requests.remove(generation)

    async def close(self, fault: Interrupted) -> None:
        """Ends every run with `fault`, and returns when all is cleared away."""
        self._fault = fault
        for number in list(self._runs):
            self._give_up(number)
        await asyncio.gather(*self._clearing, return_exceptions=True)
        await self._places.close()
        self._pulse.stop()

    @property
    def resting(self) -> int:
        """Sequences that are kept with no answer under way."""
        return self._places.resting

    # ---- A request's life

    def _replace(self, question: Question) -> None:
        """A question that is asked again has lost its former run: the link broke, and nobody reads there."""
        if former := self._requests.former(question):
            former.replies.fail(Interrupted("this request was asked again"))
            self._give_up(former.number)

    def _begin(self, generation: Generation, question: Question) -> None:
        self._ring.check()
        number = generation.number
        self._scheduler.add(number, asker=question.asker, has_begun=question.has_begun)
        self._turns[number] = asyncio.get_running_loop().create_future()
        trace = RequestTrace(
            self._proposal,
            request=str(number),
            prompt_tokens=len(generation.asked.prompt),
            began=generation.asked.began,
            replay=question.replay,
        )
        run = self._runs[number] = asyncio.create_task(self._run(generation, trace), name=f"request {number}")
        clearing = asyncio.create_task(self._clear_away(generation, trace, run), name=f"clear request {number}")
        self._clearing.add(clearing)
        clearing.add_done_callback(self._cleared)
        self._wake()
        self._pulse.beat()

    def _give_up(self, number: int) -> None:
        """Nobody wants the answer any more."""
        run = self._runs.pop(number, None)
        if run is not None:
            run.cancel()

    async def _clear_away(self, generation: Generation, trace: RequestTrace, run: "asyncio.Task[str]") -> None:
        """Once a run has ended, by itself or because it was given up: every stage frees the sequence."""
        await asyncio.wait((run,))
        number = generation.number
        self._runs.pop(number, None)
        error = self._fault if run.cancelled() else run.exception()
        try:
            if begun := self._begun.pop(number, None):
                self._tell(trace, _how(run, error))
                await self._put_away(begun, is_whole=error is None and not run.cancelled())
        finally:
            self._scheduler.remove(number)
            del self._turns[number]
            self._wake()
            if isinstance(error, Exception):
                generation.replies.fail(error)

    async def _put_away(self, run: "_Run", *, is_whole: bool) -> None:
        """The sequence of a run that is over; of one that broke off it is not known what the stages have of it."""
        tokens = run.generation.ran if is_whole and run.leaving else ()
        last = run.leaving.state if run.leaving else None
        await self._places.leave(run.sequence, asker=run.generation.key[0], tokens=tokens, last=last)

    def _tell(self, trace: RequestTrace, how: str) -> None:
        if how != INTERRUPTED or trace.output_tokens:
            why = why_none(
                self._ring.told_limits, is_wanted=self._limits.guesses > 0, can_forget=self._work.model_can_forget
            )
            trace.steps(self._ring.step_limits.exact, why)
            self._ended(trace, how)

    def _cleared(self, clearing: "asyncio.Task[None]") -> None:
        self._clearing.discard(clearing)
        if not clearing.cancelled() and (error := clearing.exception()):
            log.error("request_not_cleared_away", exc_info=error)

    def _wake(self) -> None:
        for number in self._scheduler.due():
            turn = self._turns[number]
            if not turn.done():
                turn.set_result(None)

    # ---- One answer

    async def _run(self, generation: Generation, trace: RequestTrace) -> str:
        """From waiting to the last reply; "stop" or "length"."""
        await self._turn(generation)
        trace.admitted(monotonic())
        run = self._begun[generation.number] = self._run_of(generation, trace)
        generation.begin()
        await self._places.ready(run.begins)
        if generation.asked.request.embeds:
            return await self._embed(run)
        if not generation.is_over:  # all of it may have been told but the end
            await self._ring.learn_step_limits()
            run.leaving = await self._prefill(run)
            while not generation.is_over:
                run.leaving = await (self._shift(run) if generation.has_moved else self._step(run, run.leaving))
        return generation.finish(_done(generation, trace))

    def _run_of(self, generation: Generation, trace: RequestTrace) -> "_Run":
        tokens = () if generation.asked.request.embeds else generation.tokens
        begins = self._places.enter(generation.number, generation.key[0], tokens)
        trace.reused(begins.tokens)
        return _Run(generation, trace, begins, Guesser(_most_wanted(generation, self._limits)))

    def _busy(self, tokens_per_s: float) -> ring_pb2.Busy:
        """What is done here, for all members."""
        asked = [one for one in self._requests.unfinished if one.number in self._turns]
        waits = {one.number: not self._turns[one.number].done() for one in asked}
        return ring_pb2.Busy(
            tokens_per_s=tokens_per_s,
            waiting=sum(waits.values()),
            asking=[
                ring_pb2.Asking(
                    member=one.key[0] or self._proposal.head,
                    prompt_tokens=len(one.asked.prompt),
                    answer_tokens=len(one.answer),
                    waits=waits[one.number],
                )
                for one in asked[:MOST_TOLD]
            ],
        )

    async def _turn(self, generation: Generation) -> None:
        try:
            async with asyncio.timeout(self._limits.wait_deadline_s):
                await self._turns[generation.number]
        except TimeoutError:
            waited = f"no sequence came free within {self._limits.wait_deadline_s:.0f} s: try again later"
            raise (Interrupted if generation.answer else TimedOut)(waited) from None

    async def _prefill(self, run: "_Run") -> "_Leaving":
        """All tokens that the stages lack through the ring, and the one that follows them."""
        began, state, before = await self._last_state(run)
        return await self._pick(run, state, began=began, before=before, is_prompt=True)

    async def _embed(self, run: "_Run") -> str:
        """All tokens through the ring, and what came of them as a whole."""
        began, state, before = await self._last_state(run)
        with _resumable():
            back = await self._ring.go_round(run.sequence, state, is_prompt=True)
        embedding, spent = await self._work.embed(LastState(run.sequence, back.state))
        ended = monotonic()
        run.trace.token(_circuit(state, back, [before, spent], ended - began), ended, 0)
        return run.generation.finish_embedding(embedding, _done(run.generation, run.trace))

    async def _last_state(self, run: "_Run") -> tuple[float, HiddenState, Spent]:
        """All tokens that the stages lack through the ring in chunks, but for the last one, which goes by itself, as in
        mlx-lm, and so is the same bits where many at once round otherwise; it alone is to come back. When it was begun,
        in seconds on this clock, its state after the head's blocks, and what that took."""
        number, known = run.sequence, run.begins.tokens
        left = list(run.generation.tokens[known:])
        run.guesser.saw(run.generation.tokens[:known])
        while True:
            began, size = monotonic(), self._pace.tokens(among=self._work.running)
            chunk, left = _divided(left, size)
            state, spent = await self._work.chunk(number, chunk)
            self._pace.ran_chunk(len(chunk), spent.compute_s)
            run.guesser.saw(chunk)
            if not left:
                return began, state, spent
            with _resumable():
                await self._ring.send(number, state, wants_output=False)
            run.trace.absorbed(state.nbytes)

    async def _shift(self, run: "_Run") -> "_Leaving":
        """The context is full: what is left of the text goes through the ring anew."""
        generation = run.generation
        run.begins = await self._places.restart(run.begins, self._requests.number(), keep=generation.keep)
        run.guesser = Guesser(_most_wanted(generation, self._limits))
        return await self._prefill(run)

    async def _step(self, run: "_Run", leaving: "_Leaving") -> "_Leaving":
        """One circuit more: of the state that is there already, or of the last token with guesses of what follows."""
        began = monotonic()
        if leaving.state is not None:
            return await self._pick(run, leaving.state, began=began)
        most = self._most_guesses(run, run.generation.left) if leaving.may_guess else 0
        guesses = run.guesser.guesses(run.guesser.paying(most, self._cost))
        step = GuessStep(run.sequence, run.generation.length - 1, [run.generation.answer[-1], *guesses])
        state, spent = await self._work.step(step)
        if not guesses:
            return await self._pick(run, state, began=began, before=spent)
        return await self._check(run, state, guesses, began=began, before=spent)

    async def _pick(
        self,
        run: "_Run",
        state: HiddenState,
        *,
        began: float,
        before: Spent | None = None,
        is_prompt: bool = False,
    ) -> "_Leaving":
        """A token's state once round the ring, and the token that follows it. began: seconds on this clock. before:
        what the head took to make the state, where no circuit has counted it yet."""
        generation, asked = run.generation, run.generation.asked
        if self._ring.has_others and asked.held is None:
            coming = Pick(run.sequence, state, asked.sampler, self._goes_on(run), top=asked.top)
            asyncio.get_running_loop().call_soon(self._work.expect, coming)  # once the state is on its way
        going = self._ring.go_round(run.sequence, state, is_prompt=is_prompt)
        with _resumable():
            if asked.held is None:
                back, allowed = await going, None
            else:
                back, allowed = await asyncio.gather(going, generation.allowed())
        pick = Pick(run.sequence, back.state, asked.sampler, self._goes_on(run), allowed, asked.top)
        picked, spent = await self._work.pick(pick)
        if not is_prompt:
            self._pace.ran_step(spent.compute_s)
        circuit = _circuit(state, back, [spent] if before is None else [before, spent], monotonic() - began)
        self._took(run, [picked.token], circuit, is_prompt=is_prompt, score=picked.score)
        return _Leaving(picked.state)

    async def _check(
        self, run: "_Run", state: HiddenState, guesses: Sequence[int], *, began: float, before: Spent
    ) -> "_Leaving":
        """A token's state and its guesses' once round the ring, and the tokens that follow as far as that is known."""
        with _resumable():
            back = await self._ring.go_round(run.sequence, state, is_prompt=False, has_guesses=True)
        is_exact = state.tokens <= self._ring.step_limits.exact
        lead = 0.0 if is_exact else F32_LEAD
        checked, spent = await self._work.check(
            Guessed(run.sequence, back.state, run.generation.asked.sampler, guesses, lead)
        )
        right = run.guesser.judge(guesses, checked.tokens, is_undecided=checked.is_undecided)
        circuit = _circuit(state, back, [before, spent], monotonic() - began)
        self._took(run, checked.tokens, replace(circuit, guesses=len(guesses), right=right))
        return _Leaving(None, may_guess=not checked.is_undecided)

    def _took(
        self,
        run: "_Run",
        tokens: Sequence[int],
        circuit: Circuit,
        *,
        is_prompt: bool = False,
        score: TokenScore | None = None,
    ) -> None:
        """A circuit has ended in these tokens."""
        ended = monotonic()
        run.guesser.saw(tokens)
        taken = run.generation.take_all(tokens, score)
        self._pulse.beat(taken)
        run.trace.token(circuit, ended, taken)
        if is_prompt:
            return
        if not circuit.guesses:
            run.guesser.went_without()
        if self._work.running == 1:
            self._circuit_s.took(1 + circuit.guesses, circuit.circuit_s)
        if max(circuit.rows) == 1:
            self._busiest_s.took(1 + circuit.guesses, max(circuit.compute_s))

    def _goes_on(self, run: "_Run") -> bool:
        """Whether the next token's state goes round by itself: it is not the last, and no guesses come with it."""
        generation = run.generation
        guesses_next = run.guesser.paying(self._most_guesses(run, generation.left - 1), self._cost) > 0
        return not generation.is_last and not generation.moves_next and not guesses_next

    def _most_guesses(self, run: "_Run", left: int) -> int:
        """In a step, of a request whose answer may get so many tokens yet."""
        running = max(1, self._work.running)
        return most_guesses(
            self._ring.step_limits,
            is_greedy=run.generation.asked.sampler.is_greedy,
            running=running,
            rows=self._rows(running),
            wanted_tokens=left,
            token_bytes=self._ring.token_bytes,
        )

    def _cost(self, tokens: int) -> float:
        """Of a step with so many: the wait of one user, or what all users wait for."""
        return (self._circuit_s if self._work.running == 1 else self._busiest_s).of(tokens)


@dataclass(frozen=True, slots=True)
class _Leaving:
    """What goes round next: the state of the last token, or with None that token and guesses that may follow it."""

    state: HiddenState | None
    may_guess: bool = True


@dataclass(slots=True)
class _Run:
    """One run of a request, with what it needs on its way."""

    generation: Generation
    trace: RequestTrace
    begins: Beginning
    guesser: Guesser
    leaving: _Leaving | None = None  # None: its prompt is not through the ring yet

    @property
    def sequence(self) -> int:
        return self.begins.sequence


def _most_wanted(generation: Generation, limits: EngineLimits) -> int:
    """Guesses a step: as many as the request says, or the session."""
    wanted = generation.asked.guesses if generation.takes_guesses else 0
    return limits.guesses if wanted is None else min(wanted, limits.guesses)


def _divided(tokens: list[int], size: int) -> tuple[list[int], list[int]]:
    """The next chunk of at most so many, and what is left then: the last token, if nothing else."""
    size = max(1, min(size, len(tokens) - 1))
    return tokens[:size], tokens[size:]


def _circuit(sent: HiddenState, back: Returned, spent: Sequence[Spent], circuit_s: float) -> Circuit:
    return Circuit(
        compute_s=(sum(part.compute_s for part in spent), *(stage.compute_s for stage in back.stages)),
        residence_s=(sum(part.stay_s for part in spent), *(stage.residence_s for stage in back.stages)),
        rows=(spent[-1].rows, *(stage.rows for stage in back.stages)),
        circuit_s=circuit_s,
        sent_bytes=sent.nbytes,
        received_bytes=back.state.nbytes,
    )


@contextmanager
def _resumable() -> Iterator[None]:
    """A ring that brings nothing back is as good as one that broke: the answer may go on when it turns again."""
    try:
        yield
    except TimedOut as error:
        raise Interrupted(str(error)) from None


def _how(run: "asyncio.Task[str]", error: BaseException | None) -> str:
    """How a run ended, for its trace."""
    match error:
        case None:
            return "cancelled" if run.cancelled() else run.result()
        case Interrupted():
            return INTERRUPTED
        case _:
            return error.code if isinstance(error, KafilaError) else KafilaError.code


def _done(generation: Generation, trace: RequestTrace) -> pb.GenerateReply:
    prompt_s, output_s = trace.spent_s
    return pb.GenerateReply(
        prompt_tokens=len(generation.asked.prompt),
        prompt_s=prompt_s,
        output_tokens=len(generation.answer),
        output_s=output_s,
    )
