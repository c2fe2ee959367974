"""This machine's part in a session, one epoch after another."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError, Unavailable, from_code
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from kafila_sidecar.serving import epoch as epochs
from kafila_sidecar.serving import remote
from kafila_sidecar.serving.engine import EngineLimits
from kafila_sidecar.serving.epoch import Epoch, EpochEnd
from kafila_sidecar.serving.holding import Holding, Part
from kafila_sidecar.serving.intake import Intake
from kafila_sidecar.serving.requests import Replies, RequestTable
from kafila_sidecar.serving.telling import FetchTelling
from kafila_sidecar.serving.trace import RequestTrace
from kafila_sidecar.serving.wire import RulesBroken
from kafila_sidecar.session.coordination.effects import Fault, Proposal
from kafila_sidecar.session.driving.jobs import Progress
from kafila_sidecar.weights.fetching import landing

SERVE_DEADLINE_S = 15.0  # between a neighbour's start of serving and ours


class StageWeights(Protocol):
    """A checkpoint, with or without the other members as its sources; see `weights.checkpoint.Checkpoint`."""

    @property
    def small_files(self) -> Path: ...
    def shard(self, *, start: int, end: int, head: bool) -> frozenset[str]: ...
    async def fetch(
        self, names: Iterable[str], *, progress: landing.Progress | None = None, waiting: landing.Waiting | None = None
    ) -> None: ...
    def download_bytes(self, names: Iterable[str]) -> int: ...
    def files_for(self, names: Iterable[str]) -> dict[Path, frozenset[str]]: ...


class LinkTable(Protocol):
    """The session's links by peer name; session/driving/links.py."""

    @property
    def up(self) -> Mapping[str, Link]: ...
    def to(self, peer: str) -> Link: ...


@dataclass(frozen=True, slots=True)
class StageLimits:
    """How long a stage waits for others, and what its engine takes on."""

    serve_deadline_s: float = SERVE_DEADLINE_S
    verdict_s: float = epochs.VERDICT_S
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
        links: Callable[[], LinkTable],
        traced: Callable[[dict[str, Any]], None],
        broken: Callable[[str, str], None],
        misled: Callable[[str, str], None],
        limits: StageLimits | None = None,
    ) -> None:
        self._name = name
        self._weights = weights
        self._mlx = mlx
        self._links = links
        self._traced = traced
        self._broken = broken
        self._misled = misled
        self._limits = limits or StageLimits()
        self._holding = Holding(mlx, bits=bits)
        self._requests: RequestTable | None = None
        self._epoch: Epoch | None = None
        self._serving = asyncio.Event()
        self._fault = Fault("", "UNAVAILABLE", "the session is not ready yet")  # while there is no epoch
        self._freeing: asyncio.Task[None] | None = None

    # ---- What the session asks for

    async def load(self, proposal: Proposal, progress: Progress) -> None:
        """Fetches what is missing of this member's tensors, and loads those that it does not hold yet.

        Raises:
            KafilaError: they can't be had, or don't fit.
        """
        stage = proposal.stage_of(self._name)
        if stage is None:
            return
        is_head = proposal.head == self._name
        part = Part(stage.start, stage.end, is_head)
        names = self._weights.shard(**part._asdict())
        await self._fetch(names, part, FetchTelling(progress))
        progress("loading", 0, 0)
        files = self._weights.files_for(names)
        folder = self._weights.small_files
        await self._holding.hold(folder, files, start=stage.start, end=stage.end, head=is_head)
        if is_head and self._requests is None:
            tokenizer = await self._mlx.run(Tokenizer.load, folder)
            context_tokens = proposal.problem.context_tokens
            self._requests = RequestTable(Intake(tokenizer=tokenizer, mlx=self._mlx, context_tokens=context_tokens))

    def serve(self, proposal: Proposal) -> None:
        """Every stage is loaded."""
        stands_by = proposal.stage_of(self._name) is None
        if stands_by:
            self._freeing = asyncio.create_task(self._holding.free(), name="free what another stage holds now")
        self._epoch = epochs.begin(
            name=self._name,
            proposal=proposal,
            shard=None if stands_by else self._holding.shard,
            requests=self._requests,
            mlx=self._mlx,
            link_to=lambda peer: self._links().to(peer),
            end=EpochEnd(self._limits.verdict_s),
            ended=lambda trace, reason: self._request_ended(proposal, trace, reason),
            limits=self._limits.engine,
        )
        self._serving.set()

    async def stop(self, fault: Fault) -> None:
        """Ends the epoch: running requests fail with `fault`, their caches are freed. What is loaded stays for the
        next one."""
        epoch, self._epoch, self._fault = self._epoch, None, fault
        self._serving.clear()
        if epoch is not None:
            await epoch.close(from_code(fault.code, fault.sentence))

    async def close(self) -> None:
        """After the last epoch: frees what is loaded."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._freeing is not None:
            await asyncio.wait((self._freeing,))
        await self._holding.free()

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
            if epoch is self._epoch:
                self._misled(error.by, str(error))
            raise
        except Exception as error:
            if epoch is self._epoch:
                self._broken(_code(error), f"{self._name} can't serve what {stream.peer} sent: {error}")
            raise

    async def answer(self, stream: Stream) -> None:
        """A request of another member, on a stream of its own; its reset cancels.

        Raises:
            KafilaError: the stream broke.
        """
        await remote.answer(stream, self._asked_as_head)

    # ---- Requests

    async def generate(self, request: pb.GenerateRequest) -> AsyncGenerator[pb.GenerateReply, None]:
        """One answer, from here or from the head; the last reply has `done`. Closing the iterator cancels.

        Raises:
            KafilaError: see `Engine.asked`; Unavailable names the member that was lost.
        """
        if self._epoch is None:
            raise from_code(self._fault.code, self._fault.sentence)
        async with self._epoch.asked(request) as replies:
            is_done = False
            while not is_done:
                reply = await replies.next()
                is_done = reply.done
                yield reply

    @property
    def active_sequences(self) -> int:
        """Sequences that this stage holds a cache for. Read from the event loop; a count, no promise."""
        shard = self._holding.shard
        return shard.active if shard is not None else 0

    @property
    def weight_bytes(self) -> int:
        shard = self._holding.shard
        return shard.weight_bytes if shard is not None else 0

    # ---- Private

    async def _fetch(self, names: frozenset[str], part: Part, telling: FetchTelling) -> None:
        """What is not in memory, unless that turns out to be what somebody gave wrongly."""
        if self._freeing is not None:
            await asyncio.wait((self._freeing,))
        kept = self._weights.shard(**self._holding.keeps(part)._asdict())
        await self._weights.fetch(names - kept, progress=telling.came, waiting=telling.waits)
        if self._weights.download_bytes(names):
            await self._holding.free()
            await self._weights.fetch(names, progress=telling.came, waiting=telling.waits)

    @asynccontextmanager
    async def _asked_as_head(self, request: pb.GenerateRequest, number: int) -> AsyncIterator[Replies]:
        epoch = await self._until_serving()
        if epoch.engine is None or epoch.proposal.epoch != number:
            raise Unavailable(
                f"{self._name} is not the head that was asked for: the session is planned again, try again"
            )
        async with epoch.engine.asked(request) as replies:
            yield replies

    async def _until_serving(self) -> Epoch:
        try:
            async with asyncio.timeout(self._limits.serve_deadline_s):
                while self._epoch is None:
                    await self._serving.wait()
            return self._epoch
        except TimeoutError:
            raise Unavailable(f"{self._name} does not serve this session yet") from None

    def _request_ended(self, proposal: Proposal, trace: RequestTrace, reason: str) -> None:
        rtt_s = {frozenset((self._name, peer)): link.rtt_s for peer, link in self._links().up.items()}
        rtt_s |= {frozenset(edge.between): edge.rtt_s for edge in proposal.problem.edges if edge.rtt_s}
        self._traced(trace.record(reason=reason, link_rtt_s=rtt_s))


def _code(error: Exception) -> str:
    return error.code if isinstance(error, KafilaError) else KafilaError.code
