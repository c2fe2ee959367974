"""This machine's part in a session, one epoch after another."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError, TimedOut, Unavailable
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.activity import Activity, NotedThread
from kafila_sidecar.runtime.footprint import PREFILL_CHUNK_TOKENS
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.still import LOOK_S
from kafila_sidecar.serving import asking, remote
from kafila_sidecar.serving import epoch as epochs
from kafila_sidecar.serving.asking import AnswerPatience
from kafila_sidecar.serving.drafting.drafts import Drafts
from kafila_sidecar.serving.engine import EngineLimits
from kafila_sidecar.serving.epoch import Epoch
from kafila_sidecar.serving.frames.wire import RulesBroken
from kafila_sidecar.serving.holding import Holding, LoadShard, Part
from kafila_sidecar.serving.intake.intake import Intake, SessionText
from kafila_sidecar.serving.intake.limits import refuse_unsupported
from kafila_sidecar.serving.intake.question import Question, Replies
from kafila_sidecar.serving.intake.requests import RequestTable
from kafila_sidecar.serving.intake.shares import HeadShares
from kafila_sidecar.serving.loading import PartLoader, StageWeights
from kafila_sidecar.serving.ring import Interrupted
from kafila_sidecar.serving.standstill import FLOOR_S, WatchedThread
from kafila_sidecar.serving.succession import Succession
from kafila_sidecar.serving.trace import Circuit, RequestTrace
from kafila_sidecar.session.coordination.effects import Fault, Proposal
from kafila_sidecar.session.driving.jobs import Progress

SERVE_DEADLINE_S = 15.0  # between a neighbour's start of serving and ours
CLEAR_DEADLINE_S = 10.0  # for what an epoch leaves behind; what takes longer is cleared away while others go on

Counted = Callable[[Mapping[str, Any], Sequence[Circuit]], None]


def _uncounted(record: Mapping[str, Any], decoded: Sequence[Circuit]) -> None:
    """Nobody wants numbers."""


class LinkTable(Protocol):
    """The session's links by peer name; session/driving/links.py."""

    @property
    def up(self) -> Mapping[str, Link]: ...
    def to(self, peer: str) -> Link: ...


@dataclass(frozen=True, slots=True)
class StageLimits:
    """How long a stage waits for others, and what its engine takes on."""

    serve_deadline_s: float = SERVE_DEADLINE_S
    clear_deadline_s: float = CLEAR_DEADLINE_S
    step_floor_s: float = FLOOR_S
    load_look_s: float = LOOK_S
    patience: AnswerPatience = field(default_factory=AnswerPatience)
    engine: EngineLimits = field(default_factory=EngineLimits)


class Stage:
    """Loads, serves and stops as the session asks; answers requests meanwhile.

    What it holds, and the table of requests on a member that is or was the head, outlive the epochs.
    """

    def __init__(
        self,
        *,
        name: str,
        weights: StageWeights,
        bits: int = 0,
        mlx: MlxThread,
        text: Callable[[Path], SessionText],
        links: Callable[[], LinkTable],
        traced: Callable[[dict[str, Any]], None],
        counted: Counted = _uncounted,
        busy: Callable[[ring_pb2.Busy], None],
        broken: Callable[[str, str], None],
        misled: Callable[[str, str], None],
        limits: StageLimits | None = None,
        load_shard: LoadShard = Shard.load,
        activity: Activity | None = None,
        drafts: Drafts | None = None,
    ) -> None:
        """`text`: for the checkpoint whose small files lie in a folder. `counted`: hears of every run that had its
        turn, its record and its circuits after the first token. `activity`: of this machine, all sessions. `drafts`: of
        the session's draft model, if it has one."""
        self._name = name
        self._weights = weights
        self._mlx = mlx
        self._make_text = text
        self._links = links
        self._traced = traced
        self._counted = counted
        self._busy = busy
        self._broken = broken
        self._misled = misled
        self._limits = limits or StageLimits()
        self._activity = activity or Activity()
        self._drafts = drafts
        self._holding = Holding(mlx, bits=bits, load=load_shard, look_s=self._limits.load_look_s)
        self._loader = PartLoader(weights, self._holding)
        self._text: SessionText | None = None
        self._requests: RequestTable | None = None
        self._shares = HeadShares()
        self._one_ended = asyncio.Event()  # of the answers to what was asked here
        self._concurrency = 1  # of the latest plan
        self._receiving: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # a request, by who asks
        self._epochs = Succession()
        self._clearing: set[asyncio.Task[None]] = set()  # what epochs that are over left behind

    # ---- What the session asks for

    async def load(self, proposal: Proposal, progress: Progress) -> None:
        """Fetches what is missing of this member's tensors, and loads those that it does not hold yet.

        Raises:
            KafilaError: they can't be had, or don't fit.
        """
        with self._activity.at_work():
            await self._load(proposal, progress)

    async def read_text(self) -> None:
        """Starts the session's text here, which only the head needs: whoever would be the next one has it then.

        Raises:
            KafilaError: it can't be started, or nothing is served here.
        """
        self._epochs.check()
        await self._started_text().vocabulary()

    def serve(self, proposal: Proposal) -> None:
        """Every stage is loaded."""
        self._concurrency = proposal.problem.concurrency
        stands_by = proposal.stage_of(self._name) is None
        if stands_by:
            self._holding.free_soon()
        mlx = self._watched(proposal)
        epoch = epochs.begin(
            name=self._name,
            proposal=proposal,
            shard=None if stands_by else self._holding.shard,
            requests=self._requests,
            mlx=mlx,
            link_to=lambda peer: self._links().to(peer),
            ended=lambda trace, reason: self._request_ended(proposal, trace, reason),
            busy=self._busy,
            limits=self._limits.engine,
            draft=self._drafts.begin(mlx) if self._drafts is not None and proposal.head == self._name else None,
        )
        self._epochs.begin(epoch)

    async def stop(self, fault: Fault) -> None:
        """Ends the epoch: answers break off and wait for the next one, their caches are freed. What is loaded stays."""
        await self._clear(self._epochs.end(fault), fault)

    async def close(self, fault: Fault) -> None:
        """Ends the last epoch, and every answer of this member with `fault`; frees what is loaded."""
        await self._clear(self._epochs.close(fault), fault)
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        text, self._text = self._text, None
        if text is not None:
            await text.close()
        if self._drafts is not None:
            await self._within(self._drafts.free(), "free the draft model")
        await self._within(self._holding.close(), "free what was loaded")

    # ---- What links bring

    async def take_frames(self, stream: Stream) -> None:
        """Frames from the stage before this one. What can't be served ends the session's epoch, or the session: no
        stage can be left out.

        Raises:
            Denied: the peer is not the stage before this one.
            KafilaError: the stream broke.
        """
        epoch = await self._until_serving()
        taker = epoch.taker_for(stream.peer)
        try:
            with epoch.holding(stream):
                await taker.take_frames(stream)
        except Unavailable:
            raise
        except RulesBroken as error:
            if epoch is self._epochs.epoch:
                self._misled(error.by, str(error))
            raise
        except Exception as error:
            if epoch is self._epochs.epoch:
                self._broken(_code(error), f"{self._name} can't serve what {stream.peer} sent: {error}")
            raise

    async def answer(self, stream: Stream) -> None:
        """A request of another member, on a stream of its own; its reset cancels.

        Raises:
            KafilaError: the stream broke.
        """
        await remote.answer(stream, self._asked_as_head, receiving=self._receiving[stream.peer])

    # ---- Requests

    def generate(self, request: pb.GenerateRequest) -> AsyncGenerator[pb.GenerateReply, None]:
        """One answer, from here or from the head, through all epochs; the last reply has `done`. Closing the iterator
        cancels.

        Raises:
            KafilaError: see `asking.answer`.
        """
        return self.go_on(Question(request))

    async def go_on(self, question: Question) -> AsyncGenerator[pb.GenerateReply, None]:
        """The same, from where the answer stands that was begun while this machine took part before."""
        refuse_unsupported(question.request)
        try:
            with self._shares.held(self._name, question.request.ByteSize(), concurrency=self._concurrency):
                async with aclosing(asking.answer(question, self._epochs, self._limits.patience)) as replies:
                    async for reply in replies:
                        yield reply
        finally:
            self._one_ended.set()
            self._one_ended = asyncio.Event()

    @property
    def active_sequences(self) -> int:
        """Sequences that this stage holds a cache for, but for those that are only kept. Read from the event loop; a
        count, no promise."""
        return max(0, self.held_sequences - self._resting)

    @property
    def held_sequences(self) -> int:
        """Sequences that this stage holds a cache for."""
        shard = self._holding.shard
        return shard.active if shard is not None else 0

    async def kv_bytes(self) -> int:
        """What those caches take. Asked of the model's own thread, so it may wait for a step."""
        shard = self._holding.shard
        return await self._mlx.run(lambda: shard.kv_bytes) if shard is not None and shard.active else 0

    @property
    def _resting(self) -> int:
        epoch = self._epochs.epoch
        return epoch.resting if epoch is not None else 0

    @property
    def answers_here(self) -> int:
        """Answers to what was asked on this machine that are under way."""
        return self._shares.of(self._name)

    async def answered(self) -> None:
        """Returns when there is none."""
        while self.answers_here:
            await self._one_ended.wait()

    @property
    def part(self) -> Part:
        """What is in memory; no blocks when nothing is."""
        return self._holding.keeps(Part(0, sys.maxsize, True))

    @property
    def weight_bytes(self) -> int:
        shard = self._holding.shard
        return shard.weight_bytes if shard is not None else 0

    # ---- Private

    async def _load(self, proposal: Proposal, progress: Progress) -> None:
        stage = proposal.stage_of(self._name)
        if self._drafts is not None and proposal.head != self._name:
            await self._holding.unless_still(self._drafts.free(), "freeing the draft model")
        if stage is None:
            return
        part = Part(stage.start, stage.end, proposal.head == self._name)
        if part.head and self._requests is None:
            self._requests = await self._load_beside_text(part, progress, proposal.problem.context_tokens)
        else:
            await self._loader.load(part, progress)

    async def _load_beside_text(self, part: Part, progress: Progress, context_tokens: int) -> RequestTable:
        """Loads what the head needs, and starts its text meanwhile. Raises KafilaError as either does."""
        text = self._started_text()
        reading = asyncio.create_task(text.vocabulary(), name="read the vocabulary")
        try:
            await self._loader.load(part, progress)
            vocabulary = await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        intake = Intake(text=text, vocabulary=vocabulary, context_tokens=context_tokens)
        return RequestTable(intake)

    def _started_text(self) -> SessionText:
        self._text = self._text or self._make_text(self._weights.small_files)
        return self._text

    async def _clear(self, epoch: Epoch | None, fault: Fault) -> None:
        if epoch is not None:
            await self._within(epoch.close(Interrupted(fault.sentence)), "clear an epoch away")

    async def _within(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Waits for it a while only: the MLX thread may stand still, and keeps its order if it goes on."""
        task = asyncio.create_task(work, name=name)
        self._clearing.add(task)
        task.add_done_callback(self._clearing.discard)
        done, _ = await asyncio.wait((task,), timeout=self._limits.clear_deadline_s)
        for one in done:
            one.result()

    @asynccontextmanager
    async def _asked_as_head(self, question: Question, number: int) -> AsyncIterator[Replies]:
        size_bytes = question.request.ByteSize() + question.replay.ByteSize()
        with self._shares.held(question.asker, size_bytes, concurrency=self._concurrency):
            epoch = await self._epochs.serving(number, self._limits.serve_deadline_s)
            if epoch is None or epoch.engine is None or epoch.proposal.epoch != number:
                raise Interrupted(f"{self._name} is not the head that was asked for: the session is planned again")
            async with epoch.engine.asked(question) as replies:
                yield replies

    async def _until_serving(self) -> Epoch:
        epoch = await self._epochs.serving(0, self._limits.serve_deadline_s)
        if epoch is None:
            raise Unavailable(f"{self._name} does not serve this session yet")
        return epoch

    def _watched(self, proposal: Proposal) -> WatchedThread:
        """The MLX thread for one epoch; a step that stands still ends this member's part, so that others go on."""

        def stalled(still_s: float) -> None:
            sentence = f"{self._name}'s model has not moved for {still_s:.0f} s: its machine is out of memory, or hangs"
            self._broken(TimedOut.code, sentence)

        stage = proposal.stage_of(self._name)
        chunk_s = 2 * PREFILL_CHUNK_TOKENS * ((stage.cost_s if stage else None) or 0.0)
        mlx = NotedThread(self._mlx, self._activity)
        return WatchedThread(mlx, stalled=stalled, floor_s=max(self._limits.step_floor_s, chunk_s))

    def _request_ended(self, proposal: Proposal, trace: RequestTrace, reason: str) -> None:
        rtt_s = {frozenset(edge.between): edge.rtt_s for edge in proposal.problem.edges if edge.rtt_s}
        rtt_s |= {frozenset((self._name, peer)): link.rtt_s for peer, link in self._links().up.items() if link.rtt_s}
        record = trace.record(reason=reason, link_rtt_s=rtt_s)
        self._counted(record, trace.decoded)
        self._traced(record)


def _code(error: Exception) -> str:
    return error.code if isinstance(error, KafilaError) else KafilaError.code
