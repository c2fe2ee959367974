"""This machine's part in a session, one epoch after another: its shard, and what serves on it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from typing import Any, Protocol

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Denied, KafilaError, Unavailable, from_code
from kafila_sidecar.net.errors import LinkLost, PeerReset
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from kafila_sidecar.serving import remote
from kafila_sidecar.serving.engine import Engine
from kafila_sidecar.serving.hop import HopSender
from kafila_sidecar.serving.ring import Interrupted, Ring
from kafila_sidecar.serving.trace import RequestTrace
from kafila_sidecar.serving.worker import Bounds, Worker
from kafila_sidecar.session.coordination.effects import Fault, Proposal
from kafila_sidecar.weights.checkpoint import Checkpoint

VERDICT_S = 3.0  # a death is noticed after about 2 s (session/machine.py)
SERVE_DEADLINE_S = 15.0  # between a neighbour's start of serving and ours

SEQUENCES_IN_CHANGE = 2  # times the concurrency: a sequence may begin at a stage before the last one's release is there

Progress = Callable[[str, int, int], None]


class LinkTable(Protocol):
    """The session's links by peer name; session/links.py."""

    @property
    def up(self) -> Mapping[str, Link]: ...
    def to(self, peer: str) -> Link: ...


class Stage:
    """Loads, serves and stops as the session asks; answers requests meanwhile."""

    def __init__(
        self,
        *,
        name: str,
        checkpoint: Checkpoint,
        mlx: MlxThread,
        links: Callable[[], LinkTable],
        traced: Callable[[dict[str, Any]], None],
        broken: Callable[[str, str], None],
        verdict_s: float = VERDICT_S,
    ) -> None:
        self._name = name
        self._checkpoint = checkpoint
        self._mlx = mlx
        self._links = links
        self._traced = traced
        self._broken = broken
        self._verdict_s = verdict_s
        self._holds = False  # a shard, or has asked the MLX thread to load one
        self._shard: Shard | None = None
        self._tokenizer: Tokenizer | None = None
        self._proposal: Proposal | None = None
        self._engine: Engine | None = None
        self._ring: Ring | None = None
        self._worker: Worker | None = None
        self._serving = asyncio.Event()
        self._stopped = asyncio.Event()
        self._fault = Fault("", "UNAVAILABLE", "the session is not ready yet")
        self._streams: set[Stream] = set()  # that live no longer than the epoch

    # ---- What the session asks for (session/seat.py)

    async def load(self, proposal: Proposal, progress: Progress) -> None:
        """Fetches what is missing of this member's tensors, and loads them.

        Raises:
            KafilaError: they can't be had, or don't fit.
        """
        stage = proposal.stage_of(self._name)
        if stage is None:
            return
        is_head = proposal.head == self._name
        start, end = int(stage["start"]), int(stage["end"])
        names = self._checkpoint.shard(start=start, end=end, head=is_head)
        await self._checkpoint.fetch(names, progress=lambda here, wanted: progress("fetching", here, wanted))
        progress("loading", 0, 0)
        files = self._checkpoint.files_for(names)
        self._holds = True
        await self._mlx.run(self._hold, files=files, start=start, end=end, head=is_head)
        if is_head and self._tokenizer is None:
            self._tokenizer = await self._mlx.run(Tokenizer.load, self._checkpoint.small_files)

    def serve(self, proposal: Proposal) -> None:
        """Every stage is loaded."""
        self._proposal = proposal
        if self._shard is not None:
            if proposal.head == self._name:
                self._serve_as_head(proposal, self._shard)
            else:
                self._worker = self._make_worker(proposal, self._shard)
        self._serving.set()
        self._stopped.clear()

    async def stop(self, fault: Fault) -> None:
        """Ends the epoch: running requests fail with `fault`, the shard is freed."""
        self._fault = fault
        self._serving.clear()
        self._stopped.set()
        error = from_code(fault.code, fault.sentence)
        if self._ring is not None:
            self._ring.fail(error)
        if self._engine is not None:
            await self._engine.close()
        if self._worker is not None:
            self._worker.close()
        for stream in list(self._streams):
            stream.reset()
        self._engine = self._ring = self._worker = None
        if self._holds:
            await self._mlx.run(self._free)
            self._holds = False

    # ---- What links bring

    async def take_frames(self, stream: Stream) -> None:
        """Frames from the stage before this one. What can't be served ends the session's epoch, or the session: no
        stage can be left out.

        Raises:
            Denied: the peer is not the stage before this one.
            KafilaError: the stream broke.
        """
        taker = await self._taker(stream.peer)
        try:
            with self._until_stopped(stream):
                await taker.take_frames(stream)
        except Unavailable:
            raise
        except Exception as error:
            if taker in (self._ring, self._worker):
                self._broken(_code(error), f"{self._name} can't serve what {stream.peer} sent: {error}")
            raise

    async def answer(self, stream: Stream) -> None:
        """A request of another member, on a stream of its own; its reset cancels.

        Raises:
            KafilaError: the stream broke.
        """
        await remote.answer(stream, self._answer_as_head)

    # ---- Requests

    async def generate(self, request: pb.GenerateRequest) -> AsyncGenerator[pb.GenerateReply, None]:
        """One answer, from here or from the head.

        Raises:
            KafilaError: see `Engine.generate`; Unavailable names the member that was lost.
        """
        if not self._serving.is_set() or self._proposal is None:
            raise self._why_not()
        source = self._engine.generate(request) if self._engine is not None else self._ask_head(request, self._proposal)
        async with aclosing(self._told_why(source)) as replies:
            async for reply in replies:
                yield reply

    @property
    def active_sequences(self) -> int:
        """Sequences that this stage holds a cache for. Read from the event loop; a count, no promise."""
        return self._shard.active if self._shard is not None else 0

    @property
    def weight_bytes(self) -> int:
        return self._shard.weight_bytes if self._shard is not None else 0

    async def _ask_head(
        self, request: pb.GenerateRequest, proposal: Proposal
    ) -> AsyncGenerator[pb.GenerateReply, None]:
        stream = await remote.ask(self._links().to(proposal.head), request, proposal.epoch)
        try:
            with self._until_stopped(stream):
                async with aclosing(remote.replies(stream)) as replies:
                    async for reply in replies:
                        yield reply
        finally:
            stream.reset()

    async def _told_why(self, source: AsyncGenerator[pb.GenerateReply, None]) -> AsyncGenerator[pb.GenerateReply, None]:
        """The same answer. Its streams break at once when a member is lost; who it was is known, and told, a moment
        later."""
        try:
            async with aclosing(source) as replies:
                async for reply in replies:
                    yield reply
        except (Interrupted, LinkLost, PeerReset):
            with suppress(TimeoutError):
                async with asyncio.timeout(self._verdict_s):
                    await self._stopped.wait()
                    raise self._why_not() from None
            raise

    async def _answer_as_head(self, request: pb.GenerateRequest, epoch: int) -> AsyncGenerator[pb.GenerateReply, None]:
        await self._until_serving()
        if self._engine is None or self._proposal is None or self._proposal.epoch != epoch:
            raise Unavailable(
                f"{self._name} is not the head that was asked for: the session is planned again, try again"
            )
        async with aclosing(self._told_why(self._engine.generate(request))) as replies:
            async for reply in replies:
                yield reply

    # ---- The shard, on the MLX thread: a load that was cancelled while it ran is freed by the `stop` after it

    def _hold(self, **part: Any) -> None:
        headers = self._checkpoint.manifest.tensors
        self._shard = Shard.load(folder=self._checkpoint.small_files, headers=headers, **part)

    def _free(self) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.close()

    # ---- Private

    def _serve_as_head(self, proposal: Proposal, shard: Shard) -> None:
        assert self._tokenizer is not None
        alone = len(proposal.stages) == 1
        self._ring = Ring(epoch=proposal.epoch, hop=None if alone else self._hop(proposal))
        self._engine = Engine(
            shard=shard,
            tokenizer=self._tokenizer,
            mlx=self._mlx,
            ring=self._ring,
            proposal=proposal,
            ended=self._request_ended,
        )

    def _make_worker(self, proposal: Proposal, shard: Shard) -> Worker:
        hop, problem = self._hop(proposal), proposal.problem
        most = SEQUENCES_IN_CHANGE * int(problem["concurrency"])
        return Worker(
            epoch=proposal.epoch,
            shard=shard,
            mlx=self._mlx,
            hop=hop,
            is_last=hop.peer == proposal.head,
            bounds=Bounds(sequences=most, tokens=int(problem["context_tokens"])),
        )

    def _hop(self, proposal: Proposal) -> HopSender:
        peer = proposal.next_after(self._name)
        return HopSender(peer=peer, open_stream=lambda: self._links().to(peer).open(StreamKind.ACTIVATIONS))

    async def _taker(self, peer: str) -> Ring | Worker:
        await self._until_serving()
        taker = self._ring or self._worker
        if taker is None or self._proposal is None or self._proposal.before(self._name) != peer:
            raise Denied(f"{peer} is not the stage before {self._name}")
        return taker

    async def _until_serving(self) -> None:
        try:
            async with asyncio.timeout(SERVE_DEADLINE_S):
                await self._serving.wait()
        except TimeoutError:
            raise Unavailable(f"{self._name} does not serve this session yet") from None

    @contextmanager
    def _until_stopped(self, stream: Stream) -> Iterator[None]:
        """`stop` ends the stream."""
        self._streams.add(stream)
        try:
            yield
        finally:
            self._streams.discard(stream)

    def _why_not(self) -> KafilaError:
        return from_code(self._fault.code, self._fault.sentence)

    def _request_ended(self, trace: RequestTrace, reason: str) -> None:
        assert self._proposal is not None
        rtt_s = {frozenset((self._name, peer)): link.rtt_s for peer, link in self._links().up.items()}
        rtt_s |= {frozenset(edge["between"]): float(edge["rtt_s"]) for edge in self._proposal.problem["edges"]}
        self._traced(trace.record(reason=reason, link_rtt_s=rtt_s))


def _code(error: Exception) -> str:
    return error.code if isinstance(error, KafilaError) else KafilaError.code
