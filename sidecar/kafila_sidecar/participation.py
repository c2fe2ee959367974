"""This machine in one session: channel, seat and stage wired together, run, and shown as one snapshot."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError, from_code
from kafila_sidecar.lack import as_typed
from kafila_sidecar.measuring import network_entry
from kafila_sidecar.net.candidates import Candidate
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.reaching import Reaching
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.serving.stage import Stage
from kafila_sidecar.serving.trace import TraceFile
from kafila_sidecar.session import snapshot
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.coordination.coordinator import PlanningTerms
from kafila_sidecar.session.coordination.driver import SessionDriver
from kafila_sidecar.session.coordination.edges import predicted_path
from kafila_sidecar.session.coordination.effects import Fault, Json
from kafila_sidecar.session.coordination.jobs import Measure
from kafila_sidecar.session.coordination.links import OPEN_DEADLINE_S, Links
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.weights.checkpoint import Checkpoint

log = logging.getLogger(__name__)


class Participation:
    """One session on this machine, from joining until it is closed; kept afterwards to say why it closed."""

    def __init__(
        self,
        *,
        channel: Channel,
        checkpoint: Checkpoint,
        reaching: Reaching,
        mlx: MlxThread,
        terms: PlanningTerms,
        measure: Measure,
        traces: Path,
        typed: str,
        spoken: Callable[[Code], str],
        note: str,
    ) -> None:
        self.id = channel.session.hex()
        self.note = note
        self._typed = typed  # the code by which this machine joined; empty on the founder
        self._spoken = spoken
        self.checkpoint = checkpoint
        self.channel = channel
        self._reaching = reaching
        self._measure = measure
        self._traces = TraceFile(traces / f"{self.id}.jsonl")
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stage = Stage(
            name=channel.self_name,
            checkpoint=checkpoint,
            mlx=mlx,
            links=self._links,
            traced=self._traced,
            broken=lambda code, sentence: self.driver.broken(code, sentence),
        )
        self.driver = SessionDriver(
            channel=channel,
            network=self,
            stage=self.stage,
            terms=terms,
            measure=self._measure_here,
            changed=self._notify,
        )

    # ---- Life

    async def run(self) -> None:
        """Until the session is closed; raises nothing but cancellation, since the snapshot says what went wrong, and
        the node has other sessions."""
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001  # a bug ends this session only
            self._close_by(error)
        self._notify()

    async def _run(self) -> None:
        self._reaching.start(self.driver.moved)
        running = asyncio.create_task(self.channel.run(), name=f"channel {self.id}")
        seated = asyncio.create_task(self.driver.run(), name=f"seat {self.id}")
        try:
            await asyncio.wait((running, seated), return_when=asyncio.FIRST_COMPLETED)
            self._close_by((running if running.done() else seated).exception())
            await asyncio.wait((seated,), timeout=10)
            await self.channel.leave()
        finally:
            running.cancel()
            seated.cancel()
            await asyncio.wait((running, seated))
            self._reaching.stop()

    def _close_by(self, error: BaseException | None) -> None:
        """Closes the session by what ended it, if that was no ordinary end of the seat."""
        if error is None:
            return
        code, sentence = KafilaError.code, f"a bug at {self.channel.self_name} ended the session, its log says more"
        if typed := as_typed(error):
            code, sentence = typed.code, str(typed)
        else:
            log.error("session_failed id=%s", self.id, exc_info=error)
        self.driver.follower.close(Fault(self.channel.self_name, code, sentence))

    @property
    def code(self) -> str:
        """By which newcomers join, where this machine admits them; else the one that was typed here."""
        return self._spoken(self.channel.code) if self.channel.code else self._typed

    def is_opened_by(self, code: Code) -> bool:
        """Whether a code, old or new, leads to this session."""
        short = self.code.partition("@")[0]
        return self.channel.is_at(code) or (bool(short) and short == code.short)

    @property
    def is_open(self) -> bool:
        return self.driver.follower.state is not State.CLOSED

    @property
    def promised_bytes(self) -> int:
        """What the plan reckons with here beyond the weights that are loaded: caches, and weights to come."""
        proposal = self.driver.follower.proposal
        stage = proposal.stage_of(self.channel.self_name) if proposal else None
        return max(0, int(stage["resident_bytes"]) - self.stage.weight_bytes) if stage else 0

    def check_open(self) -> None:
        """Raises the fault that closed the session, as a KafilaError."""
        fault = self.driver.follower.fault
        if not self.is_open and fault is not None:
            raise from_code(fault.code, fault.sentence)

    # ---- For people

    def snapshot(self) -> pb.Session:
        """The session as it is now."""
        session = snapshot.session_view(
            channel=self.channel,
            follower=self.driver.follower,
            roster=self.driver.roster,
            coordinator=self.driver.coordinator,
            checkpoint=self.checkpoint,
        )
        session.code, session.rendezvous_note = self.code, self.note
        session.better_plan = self.driver.advice.sentence
        session.active_sequences = self.stage.active_sequences
        session.reserved_memory_bytes = self.stage.weight_bytes
        return session

    def told(self) -> pb.Session:
        """The session after a change that was made from here; those who watch hear of it."""
        self._notify()
        return self.snapshot()

    async def watch(self) -> AsyncGenerator[pb.Session, None]:
        """The snapshot now and after each change, until the session is closed.

        Raises:
            KafilaError: the fault that closed it.
        """
        last = None
        while True:
            changed = self._changed
            session = self.snapshot()
            if session != last:
                yield session
                last = session
            if not self.is_open:
                self.check_open()
                return
            await asyncio.shield(changed)

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    def _traced(self, record: dict[str, Any]) -> None:
        try:
            self._traces.append({"session": self.id, **record})
        except OSError as error:
            log.warning("trace_lost error=%s", error)
        if self.is_open:
            self.driver.tell(ring_pb2.Control(measured=ring_pb2.Measured(trace_json=json.dumps(record))))

    async def _measure_here(self) -> tuple[Json, str]:
        """This machine and its network, side by side."""
        (entry, device), network = await asyncio.gather(self._measure(), self.entry())
        return {**entry, **network}, device

    # ---- The network under the seat

    def candidates(self) -> Sequence[Candidate]:
        return self._reaching.candidates()

    def announced(self, peer: str, candidates: Sequence[Candidate]) -> None:
        self._reaching.announced(peer, candidates)

    async def entry(self) -> Json:
        return network_entry(await self._reaching.nat())

    async def dial(self, peer: str, candidates: Sequence[Candidate]) -> Link:
        link = await self._reaching.link(peer, candidates, deadline_s=OPEN_DEADLINE_S, on_stream=self._on_stream)
        self._note_formed(link)
        self._carry_control(await link.open(StreamKind.CONTROL), link)
        return link

    def _note_formed(self, link: Link) -> None:
        proposal = self.driver.follower.proposal
        log.info(
            "link_formed peer=%s predicted=%s path=%s rtt_s=%.4f punch_s=%.3f handshake_s=%.3f",
            link.peer,
            predicted_path(proposal.problem, self.channel.self_name, link.peer) if proposal else "",
            link.path,
            link.rtt_s,
            link.punch_s,
            link.handshake_s,
        )

    def _carry_control(self, stream: Stream, link: Link) -> None:
        """Control messages travel over this link too, so that a lost rendezvous stops nothing."""

        async def forward(sealed: bytes) -> None:
            await stream.send(sealed)

        self.channel.attach(forward, link.peer)
        link.closed.add_done_callback(lambda _: self.channel.detach(forward))

    async def _on_stream(self, stream: Stream) -> None:
        if stream.kind == StreamKind.ACTIVATIONS:
            await self.stage.take_frames(stream)
        elif stream.kind == StreamKind.REQUEST:
            await self.stage.answer(stream)
        elif stream.kind == StreamKind.CONTROL:
            while (sealed := await stream.receive()) is not None:
                await self.channel.receive(sealed)

    def _links(self) -> Links:
        assert self.driver.links is not None
        return self.driver.links
