"""What one plan makes of this member until the next plan or the end: made as a whole, and closed as a whole."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Denied, KafilaError
from kafila_sidecar.net.errors import LinkLost, PeerReset
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.runtime.footprint import PREFILL_CHUNK_TOKENS
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.serving import remote
from kafila_sidecar.serving.engine import Ended, Engine, EngineLimits
from kafila_sidecar.serving.hop import HopSender
from kafila_sidecar.serving.requests import Replies, RequestTable
from kafila_sidecar.serving.ring import Interrupted, Ring
from kafila_sidecar.serving.worker import Bounds, Worker
from kafila_sidecar.session.coordination.effects import Proposal

SEQUENCES_IN_CHANGE = 2  # times the concurrency: a sequence may begin at a stage before the last one's release is there
VERDICT_S = 3.0  # a death is noticed after about 2 s (session/coordination)


class EpochEnd:
    """How an epoch ended, once it has."""

    def __init__(self, wait_s: float = VERDICT_S) -> None:
        self._wait_s = wait_s
        self._given = asyncio.Event()
        self.fault: KafilaError | None = None

    def give(self, fault: KafilaError) -> None:
        self.fault = fault
        self._given.set()

    async def explain(self, error: Exception) -> Exception:
        """What to tell of an error. Streams break at once when a member is lost; who it was is known, and told, a
        moment later."""
        if not isinstance(error, Interrupted | LinkLost | PeerReset):
            return error
        try:
            async with asyncio.timeout(self._wait_s):
                await self._given.wait()
        except TimeoutError:
            return error
        return self.fault or error


@dataclass(frozen=True, slots=True)
class Epoch:
    """One member's part in one plan. `engine` and `ring` on the head, `worker` on the other stages; neither on a member
    that stands by and only passes requests on."""

    name: str
    proposal: Proposal
    link_to: Callable[[str], Link]
    end: EpochEnd
    engine: Engine | None = None
    ring: Ring | None = None
    worker: Worker | None = None
    streams: set[Stream] = field(default_factory=set)  # that live no longer

    @asynccontextmanager
    async def asked(self, request: pb.GenerateRequest) -> AsyncIterator[Replies]:
        """An answer to a request of this member, from here or from the head; leaving the block gives it up.

        Raises:
            KafilaError: see `Engine.asked`; Unavailable names the member that was lost.
        """
        if self.engine is not None:
            async with self.engine.asked(request) as replies:
                yield replies
            return
        try:
            async with self._head_asked(request) as replies:
                yield replies
        except (LinkLost, PeerReset) as error:
            raise await self.end.explain(error) from None

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
        self.streams.add(stream)
        try:
            if self.end.fault is not None:
                stream.reset()
            yield
        finally:
            self.streams.discard(stream)

    async def close(self, fault: KafilaError) -> None:
        """Running answers end with `fault`; returns when no sequence is left here."""
        self.end.give(fault)
        if self.ring is not None:
            self.ring.fail(fault)
        if self.worker is not None:
            self.worker.close()
        for stream in list(self.streams):
            stream.reset()
        if self.engine is not None:
            await self.engine.close(fault)
        if self.worker is not None:
            await self.worker.forgotten()

    @asynccontextmanager
    async def _head_asked(self, request: pb.GenerateRequest) -> AsyncIterator[Replies]:
        stream = await remote.ask(self.link_to(self.proposal.head), request, self.proposal.epoch)
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
    mlx: MlxThread,
    link_to: Callable[[str], Link],
    end: EpochEnd,
    ended: Ended,
    limits: EngineLimits,
) -> Epoch:
    """The epoch of a member that holds `shard`, or none; the head has `requests` too. Every stage is loaded."""
    if shard is None:
        return Epoch(name, proposal, link_to, end)
    peer, problem = proposal.next_after(name), proposal.problem
    chunk_tokens = min(PREFILL_CHUNK_TOKENS, problem.context_tokens)
    hop = HopSender(peer=peer, open_stream=lambda: link_to(peer).open(StreamKind.ACTIVATIONS))
    if proposal.head == name and requests is not None:
        ring = Ring(
            epoch=proposal.epoch,
            hop=None if peer == name else hop,
            order=proposal.plan.order,
            last=shard.last,
            chunk_tokens=chunk_tokens,
        )
        engine = Engine(
            shard=shard,
            mlx=mlx,
            ring=ring,
            proposal=proposal,
            requests=requests,
            explain=end.explain,
            ended=ended,
            limits=limits,
        )
        return Epoch(name, proposal, link_to, end, engine=engine, ring=ring)
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
    )
    return Epoch(name, proposal, link_to, end, worker=worker)
