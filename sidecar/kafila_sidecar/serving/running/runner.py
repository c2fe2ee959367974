"""One run of a request: embed and run the head's blocks → ring → norm, unembed, sample, until the answer is over.

A run begins with all tokens that there are, be it a prompt or an answer that was broken off, less what the stages kept.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import TimedOut
from kafila_sidecar.runtime.shard.following import Follow
from kafila_sidecar.runtime.shard.limits import F32_LEAD
from kafila_sidecar.runtime.shard.picking import Guessed, Pick, TokenScore
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.guessing.gate import StepTimes
from kafila_sidecar.serving.guessing.guesser import Guesser
from kafila_sidecar.serving.guessing.room import most_guesses
from kafila_sidecar.serving.intake.requests import Generation
from kafila_sidecar.serving.keeping.kept import Beginning
from kafila_sidecar.serving.ring import Interrupted, Returned, Ring
from kafila_sidecar.serving.running.headwork import GuessStep, HeadWork, LastState, Spent
from kafila_sidecar.serving.running.places import SequencePlaces
from kafila_sidecar.serving.scheduler import ChunkPace
from kafila_sidecar.serving.trace import Circuit, RequestTrace


@dataclass(frozen=True, slots=True)
class Leaves:
    """What goes round next: the state of the last token, or with None that token and guesses that may follow it."""

    state: HiddenState | None
    may_guess: bool = True


@dataclass(slots=True)
class RequestRun:
    """One run of a request, with what it needs on its way."""

    generation: Generation
    trace: RequestTrace
    begins: Beginning
    guesser: Guesser
    leaving: Leaves | None = None  # None: its prompt is not through the ring yet

    @property
    def sequence(self) -> int:
        return self.begins.sequence


class Runner:
    """Runs the requests of one epoch on their places. rows: how many sequences a run of this stage has, of so many that
    are there. number: a new one for a sequence. taken: hears how many tokens came. guesses: in a step of a request that
    says nothing of them."""

    def __init__(
        self,
        *,
        work: HeadWork,
        ring: Ring,
        places: SequencePlaces,
        rows: Callable[[int], int],
        number: Callable[[], int],
        taken: Callable[[int], None],
        chunk_tokens: int,
        guesses: int,
    ) -> None:
        self._work = work
        self._ring = ring
        self._places = places
        self._rows = rows
        self._number = number
        self._taken = taken
        self._guesses = guesses
        self._pace = ChunkPace(chunk_tokens)
        self._circuit_s = StepTimes()  # of a sequence that runs alone
        self._busiest_s = StepTimes()  # of the stage that takes longest, which counts when others run too

    def run_of(self, generation: Generation, trace: RequestTrace) -> RequestRun:
        tokens = () if generation.asked.request.embeds else generation.tokens
        begins = self._places.enter(generation.number, generation.key[0], tokens)
        trace.reused(begins.tokens)
        return RequestRun(generation, trace, begins, Guesser(self._most_wanted(generation)))

    async def finish(self, run: RequestRun) -> str:
        """To the last reply; "stop" or "length"."""
        generation = run.generation
        await self._places.ready(run.begins)
        if generation.asked.request.embeds:
            return await self._embed(run)
        if not generation.is_over:  # all of it may have been told but the end
            await self._ring.learn_step_limits()
            run.leaving = await self._prefill(run)
            while not generation.is_over:
                run.leaving = await (self._shift(run) if generation.has_moved else self._step(run, run.leaving))
        return generation.finish(_done(generation, run.trace))

    async def _prefill(self, run: RequestRun) -> Leaves:
        """All tokens that the stages lack through the ring, and the one that follows them."""
        began, state, before = await self._last_state(run)
        return await self._pick(run, state, began=began, before=before, is_prompt=True)

    async def _embed(self, run: RequestRun) -> str:
        """All tokens through the ring, and what came of them as a whole."""
        began, state, before = await self._last_state(run)
        with _resumable():
            back = await self._ring.go_round(run.sequence, state, is_prompt=True)
        embedding, spent = await self._work.embed(LastState(run.sequence, back.state))
        ended = monotonic()
        run.trace.token(_circuit(state, back, [before, spent], ended - began), ended, 0)
        return run.generation.finish_embedding(embedding, _done(run.generation, run.trace))

    async def _last_state(self, run: RequestRun) -> tuple[float, HiddenState, Spent]:
        """All tokens that the stages lack through the ring in chunks, but for the last one, which goes by itself, as in
        mlx-lm, and so is the same bits where many at once round otherwise; it alone is to come back. When it was begun,
        in seconds on this clock, its state after the head's blocks, and what that took."""
        number, known = run.sequence, run.begins.tokens
        left = list(run.generation.tokens[known:])
        whole = known + len(left)
        run.generation.read(known, whole)
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
            run.generation.read(whole - len(left), whole)

    async def _shift(self, run: RequestRun) -> Leaves:
        """The context is full: what is left of the text goes through the ring anew."""
        generation = run.generation
        run.begins = await self._places.restart(run.begins, self._number(), keep=generation.keep)
        run.guesser = Guesser(self._most_wanted(generation))
        return await self._prefill(run)

    async def _step(self, run: RequestRun, leaving: Leaves) -> Leaves:
        """One circuit more: of the state that is there already, or of the last token with guesses of what follows."""
        began = monotonic()
        if leaving.state is not None:
            return await self._pick(run, leaving.state, began=began)
        most = self._most_guesses(run, run.generation.left) if leaving.may_guess else 0
        guesses = run.guesser.guesses(run.guesser.paying(most, self._cost))
        if not guesses and self._follows(run):
            return await self._follow(run, began=began)
        step = GuessStep(run.sequence, run.generation.length - 1, [run.generation.answer[-1], *guesses])
        state, spent = await self._work.step(step)
        if not guesses:
            return await self._pick(run, state, began=began, before=spent)
        return await self._check(run, state, guesses, began=began, before=spent)

    async def _pick(
        self,
        run: RequestRun,
        state: HiddenState,
        *,
        began: float,
        before: Spent | None = None,
        is_prompt: bool = False,
    ) -> Leaves:
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
        return Leaves(picked.state)

    async def _follow(self, run: RequestRun, *, began: float) -> Leaves:
        """The token that follows the last one, where the head has all the blocks and does nothing else. It begins the
        steps after it before this one is told."""
        generation, asked = run.generation, run.generation.asked
        self._ring.check()
        more = 0 if self._guesses_next(run) else generation.left - 1
        row = Follow(run.sequence, generation.length - 1, generation.answer[-1], asked.sampler, more, asked.top)
        picked, spent = await self._work.follow(row)
        self._pace.ran_step(spent.compute_s)
        circuit = Circuit(
            compute_s=(spent.compute_s,),
            residence_s=(spent.stay_s,),
            rows=(spent.rows,),
            circuit_s=monotonic() - began,
            sent_bytes=0,
            received_bytes=0,
        )
        self._took(run, [picked.token], circuit, score=picked.score)
        return Leaves(None)

    async def _check(
        self, run: RequestRun, state: HiddenState, guesses: Sequence[int], *, began: float, before: Spent
    ) -> Leaves:
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
        return Leaves(None, may_guess=not checked.is_undecided)

    def _took(
        self,
        run: RequestRun,
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
        self._taken(taken)
        run.trace.token(circuit, ended, taken)
        if is_prompt:
            return
        if not circuit.guesses:
            run.guesser.went_without()
        if self._work.running == 1:
            self._circuit_s.took(1 + circuit.guesses, circuit.circuit_s)
        if max(circuit.rows) == 1:
            self._busiest_s.took(1 + circuit.guesses, max(circuit.compute_s))

    def _goes_on(self, run: RequestRun) -> bool:
        """Whether the next token's state goes round by itself: it is not the last, no guesses come with it, and it does
        not stay on the head."""
        generation = run.generation
        is_ours = self._guesses_next(run) or self._follows(run)
        return not generation.is_last and not generation.moves_next and not is_ours

    def _guesses_next(self, run: RequestRun) -> bool:
        """Whether guesses may come with the token after the next one."""
        return run.guesser.paying(self._most_guesses(run, run.generation.left - 1), self._cost) > 0

    def _follows(self, run: RequestRun) -> bool:
        """Whether its tokens follow one another on the head alone; what a format allows is known too late for that."""
        return self._work.follows and run.generation.asked.held is None

    def _most_guesses(self, run: RequestRun, left: int) -> int:
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

    def _most_wanted(self, generation: Generation) -> int:
        """Guesses a step: as many as the request says, or the session."""
        wanted = generation.asked.guesses if generation.takes_guesses else 0
        return self._guesses if wanted is None else min(wanted, self._guesses)


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


def _done(generation: Generation, trace: RequestTrace) -> pb.GenerateReply:
    prompt_s, output_s = trace.spent_s(monotonic())
    return pb.GenerateReply(
        prompt_tokens=len(generation.asked.prompt),
        prompt_s=prompt_s,
        output_tokens=len(generation.answer),
        output_s=output_s,
    )
