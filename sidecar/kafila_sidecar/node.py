"""Everything this machine does for Kafila: its sessions, its one UDP socket, its one MLX thread."""

import asyncio
import importlib.metadata
import logging
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import Self

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.config import Config
from kafila_sidecar.doctoring import examine
from kafila_sidecar.embedded import EmbeddedRendezvous
from kafila_sidecar.errors import KafilaError, NotFound, Refused
from kafila_sidecar.lack import own_folder
from kafila_sidecar.measuring import Measuring
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.nat.monitor import NetworkMonitor
from kafila_sidecar.net.nat.stun_servers import parse_servers
from kafila_sidecar.net.portmap.codec import Transport
from kafila_sidecar.net.portmap.driver import keep_mapped
from kafila_sidecar.participation import Participation
from kafila_sidecar.pending import PendingJoin, PendingJoins
from kafila_sidecar.reaching import Reaching
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.families import family_of
from kafila_sidecar.serving import plans
from kafila_sidecar.session import join as joining
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.lookup import find_session
from kafila_sidecar.session.rendezvous.address import parse_address
from kafila_sidecar.session.rendezvous.code import Code, parse_code
from kafila_sidecar.session.terms import check_terms, make_terms, planning_terms
from kafila_sidecar.weights.checkpoint import Checkpoint, open_checkpoint

log = logging.getLogger(__name__)

LARGEST_SESSION = 64  # members; the planner's limit
KEPT_CLOSED = 16  # sessions that are over and can still say why


class Node:
    """Use as an async context manager; leaving it leaves every session."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._mlx = MlxThread(openblas=config.openblas)
        self._sessions: dict[str, Participation] = {}
        self._offers = PendingJoins()
        self._stack = AsyncExitStack()
        self._checkpoints: dict[tuple[str, str], Checkpoint] = {}
        self._version = importlib.metadata.version("kafila")
        self._mlx_lm_version = importlib.metadata.version("mlx-lm")

    async def __aenter__(self) -> Self:
        try:
            own_folder(self._config.data)
        except Refused as error:
            log.warning("%s; until then this machine opens and joins no sessions", error)
        self._further = parse_servers(self._config.stun)
        self._stack.callback(self._mlx.close)
        self._endpoint = Endpoint.open()
        self._stack.push_async_callback(self._endpoint.close)
        map_port = partial(keep_mapped, Transport.UDP) if self._config.port_mapping else None
        self._monitor = NetworkMonitor(self._endpoint, map_port=map_port)
        outlives_sessions = await self._stack.enter_async_context(AsyncExitStack())  # they say goodbye through it
        self._embedded = EmbeddedRendezvous(
            folder=self._config.data / "rendezvous",
            stack=outlives_sessions,
            map_port=keep_mapped if self._config.port_mapping else None,
        )
        self._measuring = Measuring(
            mlx=self._mlx, folder=self._config.data / "measurements", reserved=self._promised_bytes
        )
        self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._looking = self._tasks.create_task(self._monitor.run(), name="surroundings")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave_all()
        self._looking.cancel()
        self._stack.push_async_callback(self._offers.close)
        await self._stack.aclose()

    # ---- Sessions

    def leave_all(self) -> None:
        """Begins to leave every session; leaving the node waits until that is done."""
        for session in self._sessions.values():
            session.driver.leave()

    async def hello(self) -> pb.HelloReply:
        """What is here; where no model can run, the device says why."""
        try:
            device, usable = await self._measuring.device()
        except KafilaError as error:
            log.warning("no_device reason=%s", error)
            device, usable = f"none: {error}", 0
        return pb.HelloReply(version=self._version, pid=os.getpid(), device=device, usable_memory_bytes=usable)

    async def create(self, request: pb.CreateSessionRequest) -> pb.Session:
        """Opens a session as its host.

        Raises:
            KafilaError: the model is unknown or not offered, the rendezvous can't be reached, the terms make no sense.
        """
        check_terms(request, LARGEST_SESSION)
        own_folder(self._config.data)
        checkpoint = await self._checkpoint(request.model)
        rendezvous = request.rendezvous or self._config.rendezvous
        address, note = (parse_address(rendezvous), "") if rendezvous else await self._embedded.start()
        terms = make_terms(request, checkpoint, rendezvous_at_host=not rendezvous)
        holder: list[Participation] = []
        channel = await joining.found(
            rendezvous=address,
            terms=terms,
            name=request.name or self._config.name,
            local=self._local(holder, terms.members_wanted),
        )
        holder.append(self._participation(channel, checkpoint, request.memory_bytes, note=note))
        return self._take_part(holder[0])

    async def open(self, request: pb.OpenSessionRequest) -> pb.Offer:
        """Proves a code and says what joining would mean.

        Raises:
            KafilaError: the code is malformed, wrong, or of no session; the session is full; nobody answers.
        """
        code = parse_code(request.code)
        own_folder(self._config.data)
        spoken = str(code)  # as it is written, however it was typed
        rendezvous = request.rendezvous or self._config.rendezvous
        if rendezvous:
            code = code.at(parse_address(rendezvous))
        joined = next((s for s in self._sessions.values() if s.is_open and s.is_opened_by(code)), None)
        if joined is not None:
            return pb.Offer(session=joined.id, joined=True, model=joined.channel.terms.model, host=joined.channel.host)
        approach = await joining.approach(code=code, name=request.name or self._config.name)
        try:
            checkpoint = await self._checkpoint(approach.terms.model, approach.terms.revision)
            lend = await self._lend(request.memory_bytes)
        except BaseException:
            await approach.abandon()
            raise
        await self._offers.keep(PendingJoin(approach, checkpoint, request.memory_bytes, spoken))
        whole = list(checkpoint.manifest.tensors)
        return pb.Offer(
            session=approach.session.hex(),
            model=approach.terms.model,
            host=approach.host,
            members_present=approach.members_present,
            members_wanted=approach.terms.members_wanted,
            lend_memory_bytes=lend,
            download_bytes=min(checkpoint.download_bytes(whole), lend),
            free_disk_bytes=shutil.disk_usage(self._config.data).free,
            folder=str(checkpoint.folder),
            offer_ttl_s=PendingJoins.TTL_S,
        )

    async def join(self, request: pb.JoinSessionRequest) -> pb.Session:
        """Takes up an offer.

        Raises:
            KafilaError: there is no such offer, or the host does not admit this machine any more.
        """
        offer = self._offers.take(request.session)
        holder: list[Participation] = []
        channel = await offer.approach.enrol(self._local(holder, offer.approach.terms.members_wanted))
        holder.append(self._participation(channel, offer.checkpoint, offer.memory_bytes, typed=offer.code))
        return self._take_part(holder[0])

    async def start(self, request: pb.SessionRequest) -> pb.Session:
        """Goes on with those who are present.

        Raises:
            KafilaError: no such session, or this machine is not its host.
        """
        session = self._hosted(request.session, "start this session")
        session.driver.start()
        return session.snapshot()

    async def new_code(self, request: pb.SessionRequest) -> pb.Session:
        """Replaces a session's code; joining goes on if it was paused.

        Raises:
            KafilaError: no such session, or this machine is not its host.
        """
        session = self._hosted(request.session, "give this session a new code")
        session.channel.new_code()
        return session.told()

    async def lock(self, request: pb.LockRequest) -> pb.Session:
        """Takes nobody from now on, or takes members again.

        Raises:
            KafilaError: no such session, or this machine is not its host.
        """
        session = self._hosted(request.session, "lock this session")
        session.channel.lock(request.locked)
        return session.told()

    async def kick(self, request: pb.KickRequest) -> pb.Session:
        """Removes a member for good.

        Raises:
            KafilaError: no such session or member, or this machine is not its host.
        """
        session = self._hosted(request.session, "remove members")
        if request.member == session.channel.self_name:
            raise Refused("the host can't remove itself: leave the session instead")
        if request.member not in {member.name for member in session.channel.members}:
            raise NotFound(f"{request.member[:40]!r} is not a member of this session")
        session.channel.kick(request.member)
        return session.told()

    async def leave(self, request: pb.SessionRequest) -> pb.LeaveSessionReply:
        """Leaves and waits until it is done."""
        session = self._find(request.session)
        session.driver.leave()
        async with aclosing(session.watch()) as snapshots:
            async for _ in snapshots:
                pass
        return pb.LeaveSessionReply()

    async def list_sessions(self) -> pb.ListSessionsReply:
        return pb.ListSessionsReply(sessions=[session.snapshot() for session in self._sessions.values()])

    async def watch(self, request: pb.SessionRequest) -> AsyncGenerator[pb.Session, None]:
        """Snapshots of one session, see `Participation.watch`."""
        async with aclosing(self._find(request.session).watch()) as snapshots:
            async for snapshot in snapshots:
                yield snapshot

    async def plan(self, request: pb.PlanRequest) -> pb.PlanReply:
        """The plan of a session, or for a model on this machine alone, with the alternatives beside it.

        Raises:
            KafilaError: no such session or model, or nothing to plan with yet.
        """
        if request.session:
            session = self._find(request.session)
            own_name = session.channel.self_name
            return await plans.of_session(session.driver.follower.proposal, session.checkpoint, own_name)
        checkpoint = await self._checkpoint(request.model)
        entry, _ = await self._measuring.member(checkpoint, lend_bytes=0)
        return await plans.of_model(checkpoint, {**entry, "name": self._config.name}, request)

    async def doctor(self, request: pb.DoctorRequest) -> pb.DoctorReply:
        """What this machine's network does, see `doctoring.examine`."""
        return await examine(rendezvous=request.rendezvous or self._config.rendezvous, stun=self._config.stun)

    async def generate(self, request: pb.GenerateRequest) -> AsyncGenerator[pb.GenerateReply, None]:
        """One completion, see `Stage.generate`."""
        session = self._find(request.session)
        session.check_open()
        async with aclosing(session.stage.generate(request)) as replies:
            async for reply in replies:
                yield reply

    # ---- Private

    def _find(self, wanted: str) -> Participation:
        return find_session(wanted, list(self._sessions.values()))

    def _hosted(self, wanted: str, what: str) -> Participation:
        """An open session that this machine hosts."""
        session = self._find(wanted)
        session.check_open()
        if not session.channel.is_admitter:
            raise Refused(f"only the host, {session.channel.host}, can {what}")
        return session

    def _local(self, holder: list[Participation], members_wanted: int) -> joining.Local:
        """What this machine brings to a session; the holder gets the participation once there is one."""
        return joining.Local(
            folder=self._fresh_folder(),
            version=self._version,
            mlx_lm_version=self._mlx_lm_version,
            may_admit=lambda: _may_admit(holder, members_wanted),
        )

    async def _checkpoint(self, model: str, revision: str | None = None) -> Checkpoint:
        """Opened once; its architecture and quantisation are checked before anything else happens."""
        known = self._checkpoints.get((model, revision or ""))
        if known is not None and revision:
            return known
        checkpoint = await open_checkpoint(
            model,
            hub=self._config.hub.hub(),
            cache=self._config.data / "models",
            revision=revision or None,
            hub_cache=self._config.hub.cache,
        )
        family_of(checkpoint.config)
        return self._checkpoints.setdefault((model, checkpoint.revision), checkpoint)

    async def _lend(self, most_bytes: int) -> int:
        """What this machine lends to one more session: what is usable, less what its sessions hold or wait for."""
        usable: int
        _, usable = await self._measuring.device()
        return min(usable, most_bytes) if most_bytes else usable

    def _promised_bytes(self) -> int:
        """What the plans of open sessions gave to this machine and is not in memory yet; what is, counts as taken."""
        return sum(session.promised_bytes for session in self._sessions.values() if session.is_open)

    def _participation(
        self,
        channel: Channel,
        checkpoint: Checkpoint,
        memory_bytes: int,
        *,
        typed: str = "",
        note: str = "",
    ) -> Participation:
        return Participation(
            channel=channel,
            checkpoint=checkpoint,
            reaching=Reaching(channel=channel, endpoint=self._endpoint, monitor=self._monitor, further=self._further),
            mlx=self._mlx,
            terms=planning_terms(channel.terms, checkpoint),
            measure=lambda: self._measuring.member(checkpoint, lend_bytes=memory_bytes),
            traces=self._config.data / "traces",
            typed=typed,
            spoken=self._spoken,
            note=note,
        )

    def _take_part(self, session: Participation) -> pb.Session:
        self._sessions[session.id] = session
        closed = [key for key, other in self._sessions.items() if not other.is_open]
        for key in closed[: max(0, len(closed) - KEPT_CLOSED)]:
            del self._sessions[key]
        self._tasks.create_task(session.run(), name=f"session {session.id}")
        return session.snapshot()

    def _spoken(self, code: Code) -> str:
        """The code as it is passed on: without the address where everybody is configured with it."""
        configured = bool(self._config.rendezvous) and parse_address(self._config.rendezvous) == code.address
        return code.short if configured else str(code)

    def _fresh_folder(self) -> Path:
        folder = self._config.data / "sessions" / os.urandom(8).hex()
        folder.mkdir(mode=0o700, parents=True)
        return folder


def _may_admit(holder: list[Participation], wanted: int) -> KafilaError | None:
    """Why a newcomer can't join now."""
    if not holder or not holder[0].is_open:
        return Refused("this session is closed: ask for a new code")
    present = len(holder[0].channel.members)
    if present >= (wanted or LARGEST_SESSION):
        return Refused(f"this session is full: all {present} members are in")
    return None
