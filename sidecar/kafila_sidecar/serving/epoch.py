"""What one plan makes of this member until the next plan or the end: made as a whole, and closed as a whole."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from kafila_planner import paces, rows_for
from kafila_sidecar.errors import Denied, Unavailable
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.runtime.footprint import MOST_ROWS_A_RUN, PREFILL_CHUNK_TOKENS
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.serving import remote
from kafila_sidecar.serving.engine import Ended, Engine, EngineLimits, TellBusy
from kafila_sidecar.serving.frames.hop import HopSender
from kafila_sidecar.serving.guessing.draft import Draft
from kafila_sidecar.serving.intake.question import Question, Replies
from kafila_sidecar.serving.intake.requests import RequestTable
from kafila_sidecar.serving.ring import Interrupted, Ring
from kafila_sidecar.serving.standstill import WatchedThread
from kafila_sidecar.serving.worker import Bounds, Worker
from kafila_sidecar.session.coordination.effects import Proposal

SEQUENCES_IN_CHANGE = 2  # times the concurrency: a sequence may begin at a stage before the last one's release is there


@dataclass(frozen=True, slots=True)
class Epoch:
    """One member's part in one plan. `engine` and `ring` on the head, `worker` on the other stages; neither on a member
    that stands by and only passes requests on."""

    name: str
    proposal: Proposal
    link_to: Callable[[str], Link]
    mlx: WatchedThread
    engine: Engine | None = None
    ring: Ring | None = None
    worker: Worker | None = None
    streams: dict[Stream, None] = field(default_factory=dict)  # that live no longer, in the order of opening
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def asked(self, question: Question) -> AsyncIterator[Replies]:
        """An answer to a question of this member, from here or from the head; leaving the block gives it up.

        Raises:
            Interrupted, LinkLost, PeerReset: it may be asked again, with what was told.
            KafilaError: see `Engine.asked`.
        """
        if self.engine is not None:
            async with self.engine.asked(question) as replies:
                yield replies
        else:
            async with self._head_asked(question) as replies:
                yield replies

    def taker_for(self, peer: str) -> Ring | Worker:
        """Who takes the frames that a peer sends.

        Raises:
            Denied: it is not the stage before this one.
        """
        taker = self.ring or self.worker
        if taker is None or self.proposal.before(self.name) != peer:
            raise Denied(f"{peer} is not the stage before {self.name}")
        return taker

    @contextmanager
    def holding(self, stream: Stream) -> Iterator[None]:
        """The stream ends with the epoch."""
        self.streams[stream] = None
        try:
            if self.is_over.is_set():
                stream.reset()
            yield
        finally:
            self.streams.pop(stream, None)

    @property
    def resting(self) -> int:
        """Sequences that are kept here with no answer under way."""
        taker = self.engine or self.worker
        return taker.resting if taker is not None else 0

    async def close(self, fault: Interrupted) -> None:
        """Running answers break off with `fault`; returns when no sequence is left here."""
        self.is_over.set()
        if self.ring is not None:
            self.ring.fail(fault)
        if self.worker is not None:
            self.worker.close()
        for stream in list(self.streams):
            stream.reset()
        self.mlx.close()
        if self.engine is not None:
            await self.engine.close(fault)
        if self.worker is not None:
            await self.worker.forgotten()

    @asynccontextmanager
    async def _head_asked(self, question: Question) -> AsyncIterator[Replies]:
        try:
            stream = await remote.ask(self.link_to(self.proposal.head), question, self.proposal.epoch)
        except Unavailable as error:
            raise Interrupted(str(error)) from error
        try:
            with self.holding(stream):
                yield remote.RemoteReplies(stream)
        finally:
            stream.reset()


def begin(
    *,
    name: str,
    proposal: Proposal,
    shard: Shard | None,
    requests: RequestTable | None,
    mlx: WatchedThread,
    link_to: Callable[[str], Link],
    ended: Ended,
    busy: TellBusy,
    limits: EngineLimits,
    draft: Draft | None = None,
) -> Epoch:
    """The epoch of a member that holds `shard`, or none; the head has `requests` too, and may have a draft model. Every
    stage is loaded."""
    if shard is None:
        return Epoch(name, proposal, link_to, mlx)
    peer, problem = proposal.next_after(name), proposal.problem
    chunk_tokens = min(PREFILL_CHUNK_TOKENS, problem.context_tokens)
    hop = HopSender(peer=peer, open_stream=lambda: link_to(peer).open(StreamKind.ACTIVATIONS))
    rows = _rows_of(proposal, shard)
    if proposal.head == name and requests is not None:
        ring = Ring(
            epoch=proposal.epoch,
            hop=None if peer == name else hop,
            order=proposal.plan.order,
            last=shard.last,
            chunk_tokens=chunk_tokens,
            limits=shard.step_limits,
        )
        engine = Engine(
            shard=shard,
            mlx=mlx,
            ring=ring,
            proposal=proposal,
            requests=requests,
            ended=ended,
            busy=busy,
            limits=limits,
            rows=rows,
            draft=draft,
        )
        return Epoch(name, proposal, link_to, mlx, engine=engine, ring=ring)
    worker = Worker(
        epoch=proposal.epoch,
        place=proposal.plan.order.index(name),
        shard=shard,
        mlx=mlx,
        hop=hop,
        is_last=peer == proposal.head,
        bounds=Bounds(
            sequences=SEQUENCES_IN_CHANGE * problem.concurrency,
            tokens=problem.context_tokens,
            chunk_tokens=chunk_tokens,
        ),
        rows=rows,
    )
    return Epoch(name, proposal, link_to, mlx, worker=worker)


def _rows_of(proposal: Proposal, shard: Shard) -> Callable[[int], int]:
    """How many sequences a run of this stage has, of so many that are there; every stage finds its own."""
    known = [pace for pace in paces(proposal.problem, proposal.plan) if pace.rows <= MOST_ROWS_A_RUN]
    return partial(rows_for, known=known) if shard.takes_rows else lambda _: 1
