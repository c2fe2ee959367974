"""The head of one epoch: a request waits for its turn, then runs, and is cleared away.

Each run of a request is one task that reads top to bottom (`running/runner.py`); they interleave on the MLX thread and
in the ring, so that several sequences fill it. The engine knows no socket, and the ring no model.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

from kafila_planner import chunk_beside, chunking
from kafila_proto import ring_pb2
from kafila_sidecar.errors import KafilaError, TimedOut
from kafila_sidecar.runtime.footprint import PREFILL_CHUNK_TOKENS
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.serving.guessing.draft import Draft
from kafila_sidecar.serving.guessing.room import MOST_GUESSES, why_none
from kafila_sidecar.serving.intake.question import Question, Replies
from kafila_sidecar.serving.intake.requests import Generation, RequestTable
from kafila_sidecar.serving.pulse import Pulse
from kafila_sidecar.serving.ring import Interrupted, Ring
from kafila_sidecar.serving.running.headwork import HeadWork
from kafila_sidecar.serving.running.places import SequencePlaces
from kafila_sidecar.serving.running.runner import RequestRun, Runner
from kafila_sidecar.serving.scheduler import MOST_WAITING, STEPS_A_CHUNK, ChunkPace, Scheduler
from kafila_sidecar.serving.standstill import ModelThread
from kafila_sidecar.serving.trace import RequestTrace
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
        draft: Draft | None = None,
    ) -> None:
        """rows: how many sequences a run of this stage has, of so many that are there. draft: a model that guesses."""
        self._ring = ring
        self._proposal = proposal
        self._requests = requests
        self._ended = ended
        self._limits = limits
        self._work = HeadWork(shard=shard, mlx=mlx, rows=rows)
        most = proposal.problem.concurrency
        self._places = SequencePlaces(work=self._work, ring=ring, most=most, forgets=shard.all_rewind)
        self._scheduler = Scheduler(most_running=most, most_waiting=limits.most_waiting)
        self._turns: dict[int, asyncio.Future[None]] = {}  # of those who wait
        self._runs: dict[int, asyncio.Task[str]] = {}
        self._unanswered: dict[int, tuple[Generation, asyncio.Task[str]]] = {}  # with the run that is there to do it
        self._begun: dict[int, RequestRun] = {}  # those that had their turn, by request
        self._clearing: set[asyncio.Task[None]] = set()  # each waits for one run, and clears it away
        self._fault: Interrupted | None = None
        self._pulse = Pulse(tell=lambda rate: busy(self._busy(rate)), idle=lambda: not self._turns)
        self._runner = Runner(
            work=self._work,
            ring=ring,
            places=self._places,
            rows=rows,
            number=requests.number,
            taken=self._pulse.beat,
            pace=ChunkPace(
                limits.prefill_chunk_tokens,
                chunking(proposal.problem, proposal.plan),
                chunk_beside(proposal.problem, proposal.plan, STEPS_A_CHUNK),
            ),
            guesses=limits.guesses,
            draft=draft,
        )

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
        """Ends every run with `fault`, tells whoever asked, and returns when all is cleared away."""
        self._fault = fault
        for number in list(self._runs):
            self._give_up(number)
        for number in list(self._unanswered):  # nobody asks here again, and what clears away may stand still
            self._tell_asker(number)
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
        self._unanswered[number] = (generation, run)
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
                await self._put_away(begun, error, is_given_up=run.cancelled())
        finally:
            self._scheduler.remove(number)
            del self._turns[number]
            self._wake()
            self._tell_asker(number)

    def _tell_asker(self, number: int) -> None:
        """Why no answer comes, once: what went wrong with the run, or with the epoch."""
        if number in self._unanswered:
            generation, run = self._unanswered.pop(number)
            error = run.exception() if run.done() and not run.cancelled() else self._fault
            if isinstance(error, Exception):
                generation.replies.fail(error)

    async def _put_away(self, run: RequestRun, error: BaseException | None, *, is_given_up: bool) -> None:
        """The sequence of a run that is over; of one that went wrong it is not known what the stages have of it."""
        generation, asker = run.generation, run.generation.key[0]
        if is_given_up and error is None:
            tokens = () if generation.asked.request.embeds or generation.has_moved else generation.tokens
            await self._places.break_off(run.sequence, asker=asker, tokens=tokens)
            return
        tokens = generation.ran if error is None and run.leaving else ()
        last = run.leaving.state if run.leaving else None
        await self._places.leave(run.sequence, asker=asker, tokens=tokens, last=last)

    def _tell(self, trace: RequestTrace, how: str) -> None:
        if how != INTERRUPTED or trace.output_tokens:
            why = why_none(
                self._ring.told_limits,
                is_wanted=self._limits.guesses > 0,
                can_forget=self._work.model_can_forget,
                has_others=self._ring.has_others,
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
        run = self._begun[generation.number] = self._runner.run_of(generation, trace)
        generation.begin()
        return await self._runner.finish(run)

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


def _how(run: "asyncio.Task[str]", error: BaseException | None) -> str:
    """How a run ended, for its trace."""
    match error:
        case None:
            return "cancelled" if run.cancelled() else run.result()
        case Interrupted():
            return INTERRUPTED
        case _:
            return error.code if isinstance(error, KafilaError) else KafilaError.code
