"""Everything this machine does for Kafila: its sessions, its one UDP socket, the threads of its models."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial

from prometheus_client import CollectorRegistry

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.config import Config
from kafila_sidecar.errors import KafilaError, NotFound, Refused, Unavailable
from kafila_sidecar.lack import own_folder
from kafila_sidecar.machine.doctoring import examine
from kafila_sidecar.machine.embedding.embedded import EmbeddedRendezvous
from kafila_sidecar.machine.home import held
from kafila_sidecar.machine.joining import Joining, PendingJoins
from kafila_sidecar.machine.measuring import Measuring
from kafila_sidecar.machine.models import KeptModels, OpenedModels
from kafila_sidecar.machine.nearby.announcing import Announcement
from kafila_sidecar.machine.seating import Seating
from kafila_sidecar.machine.sessions import Sessions
from kafila_sidecar.machine.socket_place import open_where_it_was
from kafila_sidecar.machine.taking_part import Equipment
from kafila_sidecar.net.nat.monitor import Listener, NetworkMonitor
from kafila_sidecar.net.nat.stun_servers import parse_servers
from kafila_sidecar.net.portmap.codec import Transport
from kafila_sidecar.net.portmap.driver import keep_mapped
from kafila_sidecar.numbers.looking import look
from kafila_sidecar.numbers.records import records
from kafila_sidecar.numbers.served import ServedNumbers
from kafila_sidecar.numbers.spans import tracing
from kafila_sidecar.numbers.standing import exposition
from kafila_sidecar.runtime.activity import Activity
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.model_threads import ModelThreads, PassingCalls
from kafila_sidecar.runtime.text.apart.text_process import read_vocabulary, try_text
from kafila_sidecar.serving.drafting.known import notices_of
from kafila_sidecar.serving.drafting.pairing import check_pair
from kafila_sidecar.session import plans
from kafila_sidecar.session.card import card_of
from kafila_sidecar.session.join import found
from kafila_sidecar.session.keeping.keeper import kept_sessions
from kafila_sidecar.session.membership.members import LARGEST_SESSION
from kafila_sidecar.session.rendezvous.address import parse_address
from kafila_sidecar.session.terms import check_objective, check_replanning, check_terms, context_for, make_terms
from kafila_sidecar.versions import own_versions
from kafila_sidecar.weights.checkpoint import Checkpoint
from kafila_sidecar.weights.store.library import Library

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_node(config: Config) -> AsyncIterator["LocalNode"]:
    """A node that runs; leaving it, whatever the reason, leaves every session and waits until that is done."""
    stack = AsyncExitStack()
    try:
        yield await _build(config, stack)
    finally:
        await stack.aclose()


async def _build(config: Config, stack: AsyncExitStack) -> "LocalNode":
    """Every part before those that need it; the stack ends them the other way round."""
    try:
        own_folder(config.data)
    except Refused as error:
        log.warning("%s; until then this machine opens and joins no sessions", error)
    else:
        await stack.enter_async_context(held(config.data))
    further = parse_servers(config.stun)
    threads = ModelThreads(partial(MlxThread, openblas=config.openblas))
    stack.callback(threads.close)
    endpoint = open_where_it_was(config.data)
    stack.push_async_callback(endpoint.close)
    monitor = NetworkMonitor(endpoint, map_port=partial(keep_mapped, Transport.UDP) if config.port_mapping else None)
    told = tracing(wanted=config.spans)
    stack.callback(told.close)
    sessions, pending = Sessions(), PendingJoins()
    embedded = EmbeddedRendezvous(
        folder=config.data / "rendezvous",
        stack=await stack.enter_async_context(AsyncExitStack()),  # outlives sessions, which say goodbye through it
        map_port=keep_mapped if config.port_mapping else None,
        announcement=Announcement() if config.mdns else None,
        is_needed=sessions.may_be_at,
    )
    activity = Activity()
    measuring = Measuring(
        mlx=PassingCalls(threads),
        folder=config.data / "measurements",
        reserved=sessions.promised_bytes,
        activity=activity,
    )
    equipment = Equipment(
        threads=threads,
        endpoint=endpoint,
        monitor=monitor,
        further=further,
        measuring=measuring,
        traces=config.data / "traces",
        measurements=config.data / "measurements",
        served=ServedNumbers(counted := CollectorRegistry()),
        tracing=told,
        activity=activity,
    )
    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    stack.push_async_callback(pending.close)
    stack.callback(tasks.create_task(monitor.run(), name="network monitor").cancel)
    stack.callback(sessions.stop_all)
    monitor.listen(Listener((), embedded.moved))
    monitor.listen(Listener((), sessions.moved))
    endpoint.answer(sessions.called)
    node = LocalNode(config, equipment, embedded, sessions, pending, tasks, counted)
    await node.recall()
    return node


class LocalNode:
    """Answers what the person on this machine asks for. Made by `open_node`."""

    def __init__(
        self,
        config: Config,
        equipment: Equipment,
        embedded: EmbeddedRendezvous,
        sessions: Sessions,
        pending: PendingJoins,
        tasks: asyncio.TaskGroup,
        counted: CollectorRegistry,
    ) -> None:
        self._counted = counted
        self._config = config
        self._equipment = equipment
        self._embedded = embedded
        self._sessions = sessions
        library = Library(config.models, limit_bytes=config.weights_limit_bytes)
        self._models = OpenedModels(config, library, examine=equipment.measuring.anatomy)
        self._kept = KeptModels(config, library, self._models)
        self._versions = own_versions()
        self._seating = Seating(config, equipment, embedded, self._models, sessions, tasks, self._versions)
        self._joining = Joining(config, equipment.measuring, self._models, sessions, self._seating, pending)

    # ---- Sessions

    def stop_all(self) -> None:
        """Begins to take leave of every session; leaving the node waits until that is done."""
        self._sessions.stop_all()

    async def recall(self) -> None:
        """Begins to come back to the sessions that this machine was in when it ended."""
        for keeper in await asyncio.to_thread(lambda: list(kept_sessions(self._config.data / "sessions"))):
            log.info("session_recalled id=%s", keeper.kept.id)
            self._seating.return_to(keeper)

    async def hello(self) -> pb.HelloReply:
        """What is here; where no model can run, the device says why."""
        try:
            device, usable = await self._equipment.measuring.device()
        except KafilaError as error:
            log.warning("no_device reason=%s", error)
            device, usable = f"none: {error}", 0
        return pb.HelloReply(version=self._versions.kafila, pid=os.getpid(), device=device, usable_memory_bytes=usable)

    async def create(self, request: pb.CreateSessionRequest) -> pb.Session:
        """Opens a session as its host.

        Raises:
            KafilaError: the model is unknown or not offered, the rendezvous can't be reached, the terms make no sense.
        """
        check_terms(request, LARGEST_SESSION)
        own_folder(self._config.data)
        checkpoint = await self._models.open(request.model, bits=request.quantize_bits)
        await try_text(checkpoint.small_files, model=request.model)
        draft = await self._draft_for(checkpoint, request)
        rendezvous = request.rendezvous or self._config.meeting_place()
        async with AsyncExitStack() as stack:
            if rendezvous:
                address, note = parse_address(rendezvous), ""
            else:
                address, note = await stack.enter_async_context(self._embedded.lent())
            terms = make_terms(request, checkpoint, rendezvous_at_host=not rendezvous, draft=draft)
            name = request.name or self._config.name
            channel = await found(rendezvous=address, terms=terms, name=name, local=self._seating.local())
            model = request.model if terms.folder else ""
            spare = request.spare_bytes if request.HasField("spare_bytes") else None
            channel.keeper.note(lend_bytes=request.memory_bytes, spare_bytes=spare, note=note, model=model)
            session = (await self._seating.sit_down(channel, checkpoint)).snapshot()
            if request.choose_plan:
                self._sessions.hosted(session.id, "choose a plan").driver.ask_first()
            session.notices.extend(notices_of(request, checkpoint.model))
            return session

    async def _draft_for(self, checkpoint: Checkpoint, request: pb.CreateSessionRequest) -> Checkpoint | None:
        """The model that guesses, if one is asked for. Raises KafilaError where it can't."""
        if not request.draft:
            return None
        draft = await self._models.open(request.draft)
        model, other = [
            await read_vocabulary(one.small_files, model=named)
            for one, named in ((checkpoint, request.model), (draft, request.draft))
        ]
        check_pair(model, other, named=request.model, draft_named=request.draft)
        return draft

    async def open(self, request: pb.OpenSessionRequest) -> pb.Offer:
        """Proves a code and says what joining would mean, see `Joining.open`."""
        return await self._joining.open(request)

    async def join(self, request: pb.JoinSessionRequest) -> pb.Session:
        """Takes up an offer, see `Joining.join`."""
        return await self._joining.join(request)

    async def start(self, request: pb.SessionRequest) -> pb.Session:
        """Goes on with those who are present.

        Raises:
            KafilaError: no such session, or this machine is not its host.
        """
        session = self._sessions.hosted(request.session, "start this session")
        session.driver.start()
        return session.snapshot()

    async def new_code(self, request: pb.SessionRequest) -> pb.Session:
        """Replaces a session's code; joining goes on if it was paused.

        Raises:
            KafilaError: no such session, or this machine is not its host.
        """
        session = self._sessions.hosted(request.session, "give this session a new code")
        session.channel.new_code()
        return session.told()

    async def lock(self, request: pb.LockRequest) -> pb.Session:
        """Takes nobody from now on, or takes members again.

        Raises:
            KafilaError: no such session, or this machine is not its host.
        """
        session = self._sessions.hosted(request.session, "lock this session")
        session.channel.lock(request.locked)
        return session.told()

    async def kick(self, request: pb.KickRequest) -> pb.Session:
        """Removes a member for good.

        Raises:
            KafilaError: no such session or member, or this machine is not its host.
        """
        session = self._sessions.hosted(request.session, "remove members")
        if request.member == session.channel.self_name:
            raise Refused("the host can't remove itself: leave the session instead")
        if request.member not in {member.name for member in session.channel.members}:
            raise NotFound(f"{request.member[:40]!r} is not a member of this session")
        session.channel.remove(request.member, "removed")
        return session.told()

    async def choose(self, request: pb.ChoosePlanRequest) -> pb.Session:
        """Goes on with the plan that waits for this, or with the one that is best for another objective.

        Raises:
            KafilaError: no such session or objective, this machine is not its host, or another plan stands than shown.
        """
        check_objective(request.objective)
        session = self._sessions.hosted(request.session, "choose a plan")
        shown = tuple((stage.member, stage.start, stage.end) for stage in request.shown)
        session.driver.choose(request.objective, shown=shown)
        return session.snapshot()

    async def replan(self, request: pb.SessionRequest) -> pb.Session:
        """Takes the better plan that is advised.

        Raises:
            KafilaError: no such session or better plan, or this machine is not its host.
        """
        session = self._sessions.hosted(request.session, "plan this session again")
        if not session.driver.better_plan:
            raise Refused("no better plan is known: `ollama session status` tells of one when there is")
        session.driver.replan()
        return session.told()

    async def set_replanning(self, request: pb.ReplanningRequest) -> pb.Session:
        """Says what is done with a better plan from now on.

        Raises:
            KafilaError: no such session, this machine is not its host, or there is no such word.
        """
        replanning = check_replanning(request.replanning)
        session = self._sessions.hosted(request.session, "say when this session is planned again")
        session.channel.rule(replanning)
        session.driver.rule(replanning)
        return session.told()

    async def leave(self, request: pb.LeaveRequest) -> pb.LeaveSessionReply:
        """Leaves and waits until it is done, or until the others say why they can't go on without this machine."""
        session = self._sessions.find(request.session)
        session.leave(at_once=request.at_once)
        try:
            async with aclosing(session.watch()) as snapshots:
                async for _ in snapshots:
                    if session.kept_back:
                        session.stay()
                        return pb.LeaveSessionReply(kept_back=session.kept_back)
        except asyncio.CancelledError:  # whoever asked waits no longer
            session.leave(at_once=True)
            raise
        return pb.LeaveSessionReply()

    async def list_sessions(self) -> pb.ListSessionsReply:
        return pb.ListSessionsReply(sessions=[session.snapshot() for session in self._sessions])

    async def watch(self, request: pb.SessionRequest) -> AsyncGenerator[pb.Session, None]:
        """Snapshots of one session, see `Seat.watch`."""
        async with aclosing(self._sessions.find(request.session).watch()) as snapshots:
            async for shown in snapshots:
                yield shown.session

    async def plan(self, request: pb.PlanRequest) -> pb.PlanReply:
        """The plan of a session, or for a model on this machine alone, with the alternatives beside it.

        Raises:
            KafilaError: no such session or model, or nothing to plan with yet.
        """
        if request.session:
            session = self._sessions.find(request.session).taken
            own_name = session.channel.self_name
            return await plans.of_session(session.driver.follower.proposal, session.weights.checkpoint, own_name)
        checkpoint = await self._models.open(request.model, bits=request.quantize_bits)
        entry, _ = await self._equipment.measuring.member(checkpoint, lend_bytes=0)
        packings = partial(self._models.packings, checkpoint, context_for(checkpoint, request.context_tokens))
        return await plans.of_model(checkpoint, {**entry, "name": self._config.name}, request, packings)

    # ---- Models and weights

    async def show_model(self, request: pb.SessionRequest) -> pb.ModelCard:
        """What is known of a session's model. Raises KafilaError: no such session, it is away, or was never planned."""
        checkpoint = self._sessions.find(request.session).taken.weights.checkpoint
        if checkpoint is None:
            raise Unavailable("this session's model is not known here yet")
        return await asyncio.to_thread(card_of, checkpoint)

    async def list_models(self) -> pb.ListModelsReply:
        """The short names that `create` takes."""
        return await asyncio.to_thread(self._kept.named)

    async def list_weights(self) -> pb.ListWeightsReply:
        """The weights on this disk."""
        return await asyncio.to_thread(self._kept.kept)

    async def remove_weights(self, request: pb.RemoveWeightsRequest) -> pb.FreedReply:
        """Raises NotFound for a model that is not here, Refused for one that a session uses."""
        return await asyncio.to_thread(self._kept.remove, request)

    async def prune_weights(self, request: pb.PruneWeightsRequest) -> pb.FreedReply:
        """Removes what nobody has used for so long."""
        return await asyncio.to_thread(self._kept.prune, request)

    def names(self) -> Collection[str]:
        """By which members are called in the sessions that are known here."""
        return {
            self._config.name,
            *(member.name for seat in list(self._sessions) for member in seat.keeper.kept.log.members),
        }

    async def metrics(self) -> pb.MetricsReply:
        """The numbers of all sessions together, as Prometheus reads them."""
        relayed_bytes = self._equipment.endpoint.relayed_bytes
        now = await look(list(self._sessions), version=self._versions.kafila, relayed_bytes=relayed_bytes)
        return pb.MetricsReply(text=exposition(self._counted, now).decode())

    async def traces(self, request: pb.TracesRequest) -> pb.TracesReply:
        """The records of a session's latest requests, see `records.records`.

        Raises:
            KafilaError: no such session or request.
        """
        seat = self._sessions.find(request.session)
        heard = seat.part.driver.roster.trace if seat.part is not None else {}
        return await asyncio.to_thread(records, self._equipment.traces / f"{seat.id}.jsonl", heard, request)

    async def doctor(self, request: pb.DoctorRequest) -> pb.DoctorReply:
        """What this machine's network does, see `doctoring.examine`."""
        return await examine(rendezvous=request.rendezvous or self._config.meeting_place(), stun=self._config.stun)

    def generate(self, request: pb.GenerateRequest) -> AsyncGenerator[pb.GenerateReply, None]:
        """One completion, see `Stage.generate`. A model stands for one session, so only its whole id names it here.

        Raises:
            KafilaError: no such session, or it is over.
        """
        return self._sessions.with_id(request.session).generate(request)
