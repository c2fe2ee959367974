"""This machine's part in a session, one epoch after another: its shard, and what serves on it."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from kafila_proto import sidecar_pb2 as pb

from sidecar.errors import KafilaError, Unavailable, from_code
from sidecar.net.link import Link
from sidecar.net.stream import Stream
from sidecar.runtime.mlx_thread import MlxThread
from sidecar.runtime.shard import Shard
from sidecar.runtime.tokenizer import Tokenizer
from sidecar.serving import remote
from sidecar.serving.engine import Engine
from sidecar.serving.hop import Hop
from sidecar.serving.kinds import ACTIVATIONS
from sidecar.serving.ring import Ring
from sidecar.serving.trace import RequestTrace
from sidecar.serving.worker import Worker
from sidecar.session.events import Fault, Proposal
from sidecar.weights.checkpoint import Checkpoint

log = logging.getLogger(__name__)

SERVE_DEADLINE_S = 15.0  # between a neighbour's start of serving and ours

Progress = Callable[[str, int, int], None]


class Links(Protocol):
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
        links: Callable[[], Links],
        traced: Callable[[dict[str, Any]], None],
        broken: Callable[[str, str], None],
    ) -> None:
        self._name = name
        self._checkpoint = checkpoint
        self._mlx = mlx
        self._links = links
        self._traced = traced
        self._broken = broken
        self._shard: Shard | None = None
        self._tokenizer: Tokenizer | None = None
        self._proposal: Proposal | None = None
        self._engine: Engine | None = None
        self._ring: Ring | None = None
        self._worker: Worker | None = None
        self._serving = asyncio.Event()
        self._fault = Fault("", "UNAVAILABLE", "the session is not ready yet")
        self._remote: set[Stream] = set()

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
        self._shard = await self._mlx.run(
            Shard.load, folder=self._checkpoint.small_files, files=files, start=start, end=end, head=is_head
        )
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

    async def stop(self, fault: Fault) -> None:
        """Ends the epoch: running requests fail with `fault`, the shard is freed."""
        self._fault = fault
        self._serving.clear()
        error = from_code(fault.code, fault.sentence)
        if self._ring is not None:
            self._ring.fail(error)
        if self._engine is not None:
            await self._engine.close()
        if self._worker is not None:
            self._worker.close()
        for stream in list(self._remote):
            stream.reset()
        shard, self._shard = self._shard, None
        self._engine = self._ring = self._worker = None
        if shard is not None:
            await self._mlx.run(shard.close)

    # ---- What links bring

    async def take_frames(self, stream: Stream) -> None:
        """Frames from the stage before this one.

        Raises:
            KafilaError: the stream broke.
        """
        await self._until_serving()
        taker = self._ring or self._worker
        if taker is None:
            raise Unavailable(f"{self._name} has no stage in this session")
        try:
            await taker.take_frames(stream)
        except Unavailable:
            raise
        except KafilaError as error:
            self._broken(error.code, f"{self._name}: {error}")
            raise

    async def answer(self, stream: Stream) -> None:
        """A request of another member, on a stream of its own; its reset cancels.

        Raises:
            KafilaError: the stream broke.
        """
        await remote.answer(stream, self.generate)

    # ---- Requests

    async def generate(self, request: pb.GenerateRequest) -> AsyncGenerator[pb.GenerateReply, None]:
        """One answer, from here or from the head.

        Raises:
            KafilaError: see `Engine.generate`; Unavailable names the member that was lost.
        """
        if not self._serving.is_set() or self._proposal is None:
            raise from_code(self._fault.code, self._fault.sentence)
        source = self._engine.generate(request) if self._engine is not None else self._ask_head(request, self._proposal)
        async with aclosing(source) as replies:
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
        self._remote.add(stream)
        try:
            async with aclosing(remote.replies(stream)) as replies:
                async for reply in replies:
                    yield reply
        except Unavailable as error:
            if not self._serving.is_set():
                raise from_code(self._fault.code, self._fault.sentence) from error
            raise
        finally:
            self._remote.discard(stream)
            stream.reset()

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
        hop = self._hop(proposal)
        return Worker(epoch=proposal.epoch, shard=shard, mlx=self._mlx, hop=hop, is_last=hop.peer == proposal.head)

    def _hop(self, proposal: Proposal) -> Hop:
        peer = proposal.next_after(self._name)
        return Hop(peer=peer, open_stream=lambda: self._links().to(peer).open(ACTIVATIONS))

    async def _until_serving(self) -> None:
        try:
            async with asyncio.timeout(SERVE_DEADLINE_S):
                await self._serving.wait()
        except TimeoutError:
            raise Unavailable(f"{self._name} does not serve this session yet") from None

    def _request_ended(self, trace: RequestTrace, reason: str) -> None:
        assert self._proposal is not None
        rtt_s = {frozenset((self._name, peer)): link.rtt_s for peer, link in self._links().up.items()}
        rtt_s |= {frozenset(edge["between"]): float(edge["rtt_s"]) for edge in self._proposal.problem["edges"]}
        self._traced(trace.record(reason=reason, link_rtt_s=rtt_s))
