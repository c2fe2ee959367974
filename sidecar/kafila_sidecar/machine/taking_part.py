"""Everything that one session needs on this machine, built in the order in which the parts need one another."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from kafila_planner.correction import Slowness
from kafila_proto import ring_pb2
from kafila_sidecar.machine.measuring import Measuring
from kafila_sidecar.machine.models import OpenedModels
from kafila_sidecar.machine.outlook import Outlook
from kafila_sidecar.machine.participation import Participation
from kafila_sidecar.machine.reaching import Reaching
from kafila_sidecar.machine.watching import Changes
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.net.nat.monitor import NetworkMonitor
from kafila_sidecar.numbers.happened import Happened
from kafila_sidecar.numbers.served import ServedNumbers
from kafila_sidecar.numbers.spans import Tracing
from kafila_sidecar.runtime.activity import Activity
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.model_threads import ModelThreads
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.text.apart.text_process import TextProcess
from kafila_sidecar.serving.drafting.drafts import DraftHere, LoadDraft
from kafila_sidecar.serving.drafting.fetched import fetched
from kafila_sidecar.serving.engine import EngineLimits
from kafila_sidecar.serving.stage import Stage, StageLimits
from kafila_sidecar.serving.trace import TraceFile
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.coordination.effects import Json
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.driving.changes import Change
from kafila_sidecar.session.driving.driver import SessionDriver
from kafila_sidecar.session.driving.links import StandingLinks
from kafila_sidecar.session.driving.turns import Turns
from kafila_sidecar.session.membership.seal import LARGEST_SEALED_BYTES
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.session.terms import planning_terms, with_draft
from kafila_sidecar.sharing.inventory import Inventory
from kafila_sidecar.sharing.rates import Rates
from kafila_sidecar.sharing.session import SessionWeights
from kafila_sidecar.sharing.spares import Spares
from kafila_sidecar.versions import own_versions
from kafila_sidecar.weights.checkpoint import Checkpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Equipment:
    """What all sessions of this machine share. `further` are STUN servers beside the rendezvous."""

    threads: ModelThreads
    endpoint: Endpoint
    monitor: NetworkMonitor
    further: Sequence[Address]
    measuring: Measuring
    traces: Path
    measurements: Path
    served: ServedNumbers
    tracing: Tracing
    activity: Activity


def take_part(
    equipment: Equipment,
    *,
    channel: Channel,
    checkpoint: Checkpoint | None,
    models: OpenedModels,
    lend_bytes: int,
    spare_bytes: int | None,
    typed: str = "",
    note: str = "",
    spoken: Callable[[Code], str],
    changes: Changes,
) -> Participation:
    """`checkpoint`: None for a folder that the host has to describe first. `lend_bytes`: the most that is lent, 0 for
    what is usable; `spare_bytes`: see `OpenedModels.room_for_spares`; `typed`, `note`, `spoken`: see `Participation`;
    `changes` outlive it.

    Raises: Unavailable where too many models stand still on this machine.
    """
    mlx = equipment.threads.lend()
    turns, standing = Turns(), StandingLinks()
    weights = SessionWeights(
        channel=channel,
        checkpoint=checkpoint,
        standing=standing,
        say=turns.say,
        folder=models.folder_for(channel.terms),
        rates=Rates(equipment.measurements / _rates_file(channel.terms), came=equipment.served.fetched_bytes.inc),
        opened=lambda: models.described(channel.terms),
    )
    traces = TraceTeller(session=channel.session.hex(), folder=equipment.traces, tracing=equipment.tracing, turns=turns)
    stage = Stage(
        name=channel.self_name,
        weights=weights,
        bits=channel.terms.quantize_bits,
        mlx=mlx,
        text=lambda folder: TextProcess(folder, model=channel.terms.model),
        links=lambda: standing,
        traced=traces.tell,
        counted=equipment.served.request_ended,
        busy=lambda busy: turns.say(ring_pb2.Control(busy=busy)),
        broken=turns.stage_broke,
        misled=turns.stage_misled,
        load_shard=weights.rates.loading(Shard.load),
        limits=StageLimits(engine=EngineLimits(guesses=0)) if channel.terms.no_guesses else None,
        activity=equipment.activity,
        drafts=_drafts(mlx, channel.terms, models, weights),
    )
    reaching = Reaching(
        channel=channel,
        endpoint=equipment.endpoint,
        monitor=equipment.monitor,
        further=equipment.further,
        on_stream=StreamRouter(channel, stage, weights).take,
    )

    async def measure() -> tuple[Json, str]:
        """This machine and its network, side by side."""
        measured = equipment.measuring.member(await weights.described(), lend_bytes=lend_bytes)
        (entry, device), network = await asyncio.gather(measured, reaching.entry())
        held = await Inventory(await weights.described()).entry(weights.rates)
        return {**entry, **network, **held}, device

    def slowed(slowness: Slowness) -> None:
        """The next session is planned with what this machine really does."""
        if weights.checkpoint is not None:
            equipment.measuring.served(weights.checkpoint, slowness)

    async def packings() -> Mapping[int, Json]:
        """Of what the session runs, as soon as that is known."""
        known = weights.checkpoint
        if known is None:
            return {}
        made = await models.packings(known, channel.terms.context_tokens)
        return {bits: {**one, "model": with_draft(one["model"], channel.terms)} for bits, one in made.items()}

    def terms() -> PlanningTerms | None:
        known = weights.checkpoint
        return None if known is None else planning_terms(channel.terms, known)

    happened = Happened(equipment.served)

    def changed(what: Change) -> None:
        follower = driver.follower
        gone = [name for name in driver.roster.seen if follower.liveness.is_gone(name)]
        happened.look(gone=gone, epoch=follower.proposal.epoch if follower.proposal else 0)
        changes.note(what)

    driver = SessionDriver(
        channel=channel,
        network=reaching,
        standing=standing,
        stage=stage,
        turns=turns,
        terms=terms,
        shares=weights,
        measure=measure,
        slowed=slowed,
        packings=packings,
        changed=changed,
        kafila=own_versions().kafila,
    )
    outlook = Outlook(
        driver=driver,
        stage=stage,
        weights=weights,
        terms=terms,
        spares=Spares(weights=weights, room=models.room_for_spares(spare_bytes), rest=equipment.activity),
        rest=equipment.activity,
        changes=changes,
    )
    return Participation(
        channel=channel,
        weights=weights,
        stage=stage,
        driver=driver,
        outlook=outlook,
        changes=changes,
        typed=typed,
        note=note,
        spoken=spoken,
        ended=partial(equipment.threads.give_back, mlx),
    )


def _drafts(
    mlx: MlxThread, terms: ring_pb2.SessionTerms, models: OpenedModels, weights: SessionWeights
) -> DraftHere | None:
    """Of a session that has a draft model."""
    if not terms.draft:
        return None

    def bring() -> AbstractAsyncContextManager[LoadDraft]:
        config = weights.checkpoint.config if weights.checkpoint is not None else {}
        return fetched(partial(models.open, terms.draft, terms.draft_revision), model=config)

    return DraftHere(mlx, fetched=bring)


class StreamRouter:
    """Gives each stream that a link brings to the part that it is for."""

    def __init__(self, channel: Channel, stage: Stage, weights: SessionWeights) -> None:
        self._channel = channel
        self._stage = stage
        self._weights = weights

    async def take(self, stream: Stream) -> None:
        """Until the stream ends; raises KafilaError when it broke, or the peer may not open it."""
        if stream.kind == StreamKind.ACTIVATIONS:
            await self._stage.take_frames(stream)
        elif stream.kind == StreamKind.REQUEST:
            await self._stage.answer(stream)
        elif stream.kind == StreamKind.WEIGHTS:
            await self._weights.answer(stream)
        elif stream.kind == StreamKind.CONTROL:
            while (sealed := await stream.receive(most_bytes=LARGEST_SEALED_BYTES)) is not None:
                await self._channel.receive(sealed, stream.peer)


class TraceTeller:
    """Keeps the records of the requests that were served here, and tells the members of each."""

    def __init__(self, *, session: str, folder: Path, tracing: Tracing, turns: Turns) -> None:
        self._session = session
        self._tracing = tracing
        self._file = TraceFile(folder / f"{session}.jsonl")
        self._turns = turns

    def tell(self, record: Mapping[str, Any]) -> None:
        """What can't be written down is still told."""
        ended_at = round(time(), 3)
        try:
            self._file.append({"session": self._session, "ended_at": ended_at, **record})
        except OSError as error:
            log.warning("trace_lost error=%s", error)
        self._tracing.request_ended(record, session=self._session, ended_at=ended_at)
        self._turns.say(ring_pb2.Control(measured=ring_pb2.Measured(trace_json=json.dumps(record))))


def _rates_file(terms: ring_pb2.SessionTerms) -> str:
    """For the same checkpoint in the same form the same name."""
    what = json.dumps([terms.model, terms.revision, terms.quantize_bits])
    return f"rates-{hashlib.sha256(what.encode()).hexdigest()[:24]}.json"
