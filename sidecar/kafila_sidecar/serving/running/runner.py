"""One run of a request: embed and run the head's blocks → ring → norm, unembed, sample, until the answer is over.

A run begins with all tokens that there are, be it a prompt or an answer that was broken off, less what the stages kept.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from time import monotonic

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import TimedOut
from kafila_sidecar.runtime.shard.finite import NotFinite
from kafila_sidecar.runtime.shard.following import Follow
from kafila_sidecar.runtime.shard.limits import F32_LEAD
from kafila_sidecar.runtime.shard.picking import Guessed, Pick, TokenScore
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.guessing.draft import Draft
from kafila_sidecar.serving.guessing.guesser import Guesser, GuessSource, Paying
from kafila_sidecar.serving.intake.requests import Generation
from kafila_sidecar.serving.keeping.kept import Beginning
from kafila_sidecar.serving.ring import Interrupted, Returned, Ring
from kafila_sidecar.serving.running.flights import Flights, Guess
from kafila_sidecar.serving.running.guessroom import GuessRoom
from kafila_sidecar.serving.running.headwork import GuessStep, HeadWork, LastState, Spent
from kafila_sidecar.serving.running.places import SequencePlaces
from kafila_sidecar.serving.scheduler import ChunkPace
from kafila_sidecar.serving.trace import Circuit, RequestTrace


@dataclass(frozen=True, slots=True)
class Leaves:
    """What goes round next: the state of the last token. None: that is on its way already, or is to be made, of that
    token and guesses that may follow it."""

    state: HiddenState | None
    may_guess: bool = True


@dataclass(slots=True)
class RequestRun:
    """One run of a request, with what it needs on its way."""

    generation: Generation
    trace: RequestTrace
    begins: Beginning
    guesser: Guesser
    flights: Flights
    leaving: Leaves | None = None  # None: its prompt is not through the ring yet
    again: int = 0  # tokens that stages run once more with the next ones, where they could not just forget guesses

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
        pace: ChunkPace,
        guesses: int,
        draft: Draft | None = None,
    ) -> None:
        self._work = work
        self._ring = ring
        self._places = places
        self._number = number
        self._taken = taken
        self._guesses = guesses
        self._draft = draft
        self._pace = pace
        self._room = GuessRoom(ring=ring, work=work, rows=rows)

    def run_of(self, generation: Generation, trace: RequestTrace) -> RequestRun:
        tokens = () if generation.asked.request.embeds else generation.tokens
        begins = self._places.enter(generation.number, generation.key[0], tokens)
        trace.reused(begins.tokens)
        return RequestRun(generation, trace, begins, self._guesser(generation), self._flights(begins.sequence))

    async def finish(self, run: RequestRun) -> str:
        """To the last reply; "stop" or "length"."""
        generation = run.generation
        await self._places.ready(run.begins)
        if generation.asked.request.embeds:
            return await self._embed(run)
        if not generation.is_over:  # all of it may have been told but the end
            await self._ring.learn_step_limits()
            try:
                run.leaving = await self._prefill(run)
                while not generation.is_over:
                    run.leaving = await (self._shift(run) if generation.has_moved else self._step(run, run.leaving))
            except asyncio.CancelledError:
                run.flights.leave()
                raise
            finally:
                run.flights.give_up()
                run.guesser.end()
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
        new, whole = len(left), known + len(left)
        run.generation.read(known, whole)
        run.guesser.saw(run.generation.tokens[:known])
        while True:
            began, size = monotonic(), self._pace.tokens(new, among=self._work.running)
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
        run.flights.give_up()
        run.begins = await self._places.restart(run.begins, self._number(), keep=generation.keep)
        run.flights = self._flights(run.sequence)
        run.guesser = self._guesser(generation)
        return await self._prefill(run)

    async def _step(self, run: RequestRun, leaving: Leaves) -> Leaves:
        """One circuit more: of the state that is there already, or of the last token with guesses of what follows."""
        began = monotonic()
        state = run.flights.first.state if run.flights.first else leaving.state
        if state is not None:
            return await self._pick(run, state, began=began)
        source, guesses = await self._together(run) if leaving.may_guess else (GuessSource.TEXT, ())
        if not guesses and self._follows(run):
            return await self._follow(run, began=began)
        if guesses:
            with suppress(NotFinite):  # which a wrong guess may have made: the token by itself tells
                state, spent = await self._last_token(run, guesses)
                return await self._check(run, state, source, guesses, began=began, before=spent)
            self._ring.void(run.sequence)
        state, spent = await self._last_token(run)
        return await self._pick(run, state, began=began, before=spent)

    async def _last_token(self, run: RequestRun, guesses: Sequence[int] = ()) -> tuple[HiddenState, Spent]:
        """The state of the answer's last token, and of guesses behind it, after the head's blocks."""
        generation = run.generation
        return await self._work.step(GuessStep(run.sequence, generation.length - 1, [generation.answer[-1], *guesses]))

    async def _together(self, run: RequestRun) -> tuple[GuessSource, Sequence[int]]:
        """Guesses for the next step, and whose; none where others pay more, or none are known."""
        for one in self._paying(run, run.generation.left):
            if one.guesses.ahead:
                break
            if guesses := await run.guesser.guesses(one.source, one.guesses.together):
                return one.source, guesses
        return GuessSource.TEXT, ()

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
        if is_prompt:
            going = self._ring.go_round(run.sequence, state, is_prompt=True)
        else:
            going = self._fly(run, state, began, before)
        if self._ring.has_others and asked.held is None and (is_prompt or not self._may_follow(run)):
            coming = Pick(run.sequence, state, asked.sampler, self._goes_on(run), top=asked.top)
            asyncio.get_running_loop().call_soon(self._work.expect, coming)  # once the state is on its way
        with _resumable():
            if asked.held is None:
                back, allowed = await going, None
            else:
                back, allowed = await asyncio.gather(going, generation.allowed())
        pick = Pick(run.sequence, back.state, asked.sampler, self._goes_on(run), allowed, asked.top)
        picked, spent = await self._work.pick(pick)
        run.again = 0
        if is_prompt:
            circuit = _circuit(state, back, _both(before, spent), monotonic() - began)
        else:
            self._pace.ran_step(spent.compute_s)
            circuit = self._landed(run, back, spent, picked.token)
        self._took(run, [picked.token], circuit, is_prompt=is_prompt, score=picked.score)
        return Leaves(picked.state)

    async def _fly(self, run: RequestRun, state: HiddenState, began: float, before: Spent | None) -> Returned:
        """The certain token's state round the ring, and guesses behind it while it is on its way."""
        flights = run.flights
        if flights.first is None:
            await flights.set_out(state, began=began, before=before)
        with suppress(NotFinite):  # as above
            while not flights.is_back and (guess := await self._following(run)):
                await flights.follow(guess, began=monotonic())
            return await flights.back()
        flights.give_up()
        state, before = await self._last_token(run)
        await flights.set_out(state, began=began, before=before)
        return await flights.back()

    async def _following(self, run: RequestRun) -> Guess | None:
        """The guess that is due to run ahead, if any is."""
        ahead = run.flights.guesses
        for one in self._paying(run, run.generation.left):
            if len(ahead) < one.guesses.ahead:
                for token in await run.guesser.guesses(one.source, 1, ahead):
                    return Guess(token, one.source)
        return None

    def _may_follow(self, run: RequestRun) -> bool:
        """Whether guesses are on their way behind the certain token, or may soon be."""
        return bool(run.flights.guesses) or any(one.guesses.ahead for one in self._paying(run, run.generation.left))

    def _landed(self, run: RequestRun, back: Returned, spent: Spent, token: int) -> Circuit:
        """The first one's circuit, which ended in this token."""
        flight = run.flights.first
        assert flight is not None
        circuit = _circuit(flight.state, back, _both(flight.before, spent), monotonic() - flight.began)
        guessed = run.flights.first_guess
        guesses, right = run.flights.settle(token)
        if guessed is not None:
            run.guesser.judge_ahead(guessed.source, is_right=bool(right))
        drafted = sum(1 for one in guesses if one.source is GuessSource.DRAFT)
        return replace(
            circuit, guesses=len(guesses), right=right, drafted=drafted, apart=True, was_behind=flight.was_behind
        )

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
        self,
        run: RequestRun,
        state: HiddenState,
        source: GuessSource,
        guesses: Sequence[int],
        *,
        began: float,
        before: Spent,
    ) -> Leaves:
        """A token's state and its guesses' once round the ring, and the tokens that follow as far as that is known."""
        with _resumable():
            back = await self._ring.go_round(run.sequence, state, is_prompt=False, has_guesses=True)
        is_exact = state.tokens <= self._ring.step_limits.exact
        lead = 0.0 if is_exact else F32_LEAD
        checked, spent = await self._work.check(
            Guessed(run.sequence, back.state, run.generation.asked.sampler, guesses, lead)
        )
        run.again = self._again(run, checked.tokens, guesses)
        right = run.guesser.judge(source, guesses, checked.tokens, is_undecided=checked.is_undecided)
        circuit = _circuit(state, back, [before, spent], monotonic() - began)
        drafted = len(guesses) if source is GuessSource.DRAFT else 0
        self._took(run, checked.tokens, replace(circuit, guesses=len(guesses), right=right, drafted=drafted))
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
        self._room.took(circuit)

    def _goes_on(self, run: RequestRun) -> bool:
        """Whether the next token's state goes round by itself: it is not the last, no guesses come with it, and it does
        not stay on the head."""
        generation = run.generation
        if run.flights.guesses or generation.is_last or generation.moves_next:
            return False
        return not (self._guesses_next(run) or self._follows(run))

    def _guesses_next(self, run: RequestRun) -> bool:
        """Whether guesses may come with the token after the next one."""
        return any(one.guesses.together for one in self._paying(run, run.generation.left - 1)[:1])

    def _follows(self, run: RequestRun) -> bool:
        """Whether its tokens follow one another on the head alone; what a format allows is known too late for that."""
        return self._work.follows and run.generation.asked.held is None

    def _paying(self, run: RequestRun, left: int) -> Sequence[Paying]:
        """Guesses that may come next and pay, of a request whose answer may get so many tokens yet."""
        is_greedy = run.generation.asked.sampler.is_greedy
        return run.guesser.paying(self._room.now(is_greedy=is_greedy, wanted_tokens=left, again=run.again))

    def _again(self, run: RequestRun, kept: Sequence[int], guesses: Sequence[int]) -> int:
        """Where caches can't forget: tokens before the next ones that are certain, and run in one step with them; none
        where there is nothing to forget."""
        if self._work.model_rewinds or len(kept) > len(guesses):
            return 0
        return run.again + len(kept)

    def _guesser(self, generation: Generation) -> Guesser:
        return Guesser(self._most_wanted(generation), draft=self._draft, request=generation.number)

    def _flights(self, sequence: int) -> Flights:
        return Flights(sequence, ring=self._ring, work=self._work)

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


def _both(before: Spent | None, spent: Spent) -> Sequence[Spent]:
    return [spent] if before is None else [before, spent]


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
