"""How this machine joins a session: its owner is told what a code would mean here, and takes the offer up or lets it
lapse.
"""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.config import Config
from kafila_sidecar.errors import NotFound
from kafila_sidecar.foreign import line
from kafila_sidecar.lack import own_folder
from kafila_sidecar.machine.measuring import Measuring
from kafila_sidecar.machine.models import OpenedModels
from kafila_sidecar.machine.nearby.approaching import approach_by
from kafila_sidecar.machine.seat import Seat
from kafila_sidecar.machine.seating import Seating
from kafila_sidecar.machine.sessions import Sessions
from kafila_sidecar.session.coordination.messages import LONGEST_DEVICE
from kafila_sidecar.session.join import Approach
from kafila_sidecar.session.rendezvous.address import parse_address
from kafila_sidecar.session.rendezvous.code import Code, parse_code
from kafila_sidecar.weights.checkpoint import Checkpoint

OFFER_TTL_S = 300.0


@dataclass(frozen=True, slots=True)
class PendingJoin:
    """A proved code, with what joining needs."""

    approach: Approach
    checkpoint: Checkpoint | None  # None: the host has to describe it first
    memory_bytes: int  # the most that its owner lends; 0: what is usable
    code: str
    spare_bytes: int | None = None  # the most that may be fetched for the loss of others, where its owner said so


class PendingJoins:
    """Offers that were made and not yet taken up, by session id; a newer one of the same session replaces the older."""

    def __init__(self, ttl_s: float = OFFER_TTL_S) -> None:
        self.ttl_s = ttl_s
        self._open: dict[str, tuple[PendingJoin, asyncio.TimerHandle]] = {}
        self._lapsing: set[asyncio.Task[None]] = set()

    async def keep(self, offer: PendingJoin) -> None:
        key = offer.approach.session.hex()
        await self._drop(key)
        timer = asyncio.get_running_loop().call_later(self.ttl_s, self._lapse, key)
        self._open[key] = (offer, timer)

    def take(self, session: str) -> PendingJoin:
        """The offer, which is nobody else's from now on.

        Raises:
            NotFound: it lapsed, or never was.
        """
        try:
            offer, timer = self._open.pop(session)
        except KeyError:
            raise NotFound("that offer has lapsed: type the code again") from None
        timer.cancel()
        return offer

    async def give_up(self, session: str) -> None:
        """Nobody needs the offer any more, if there is one."""
        await self._drop(session)

    async def close(self) -> None:
        for key in list(self._open):
            await self._drop(key)

    async def _drop(self, key: str) -> None:
        if key in self._open:
            await self.take(key).approach.abandon()

    def _lapse(self, key: str) -> None:
        task = asyncio.ensure_future(self._drop(key))
        self._lapsing.add(task)
        task.add_done_callback(self._lapsing.discard)


class Joining:
    """Goes from a code to a seat in its session."""

    def __init__(
        self,
        config: Config,
        measuring: Measuring,
        models: OpenedModels,
        sessions: Sessions,
        seating: Seating,
        pending: PendingJoins,
    ) -> None:
        self._config = config
        self._measuring = measuring
        self._models = models
        self._sessions = sessions
        self._seating = seating
        self._pending = pending
        self._one_at_a_time = asyncio.Lock()  # so that nobody becomes a member twice

    async def open(self, request: pb.OpenSessionRequest) -> pb.Offer:
        """Proves a code and says what joining would mean.

        Raises:
            KafilaError: the code is malformed, wrong, or of no session; the session is full; nobody answers.
        """
        code = parse_code(request.code)
        own_folder(self._config.data)
        spoken = str(code)  # as it is written, however it was typed
        spare_bytes = request.spare_bytes if request.HasField("spare_bytes") else None
        joined = self._sessions.opened_by(code)
        if joined is not None:
            return _already(joined)
        approach = await self._approach(code, request)
        if (seat := self._sessions.open_with_id(approach.session.hex())) is not None:
            await approach.abandon()
            seat.moved.set()  # its host is there
            return _already(seat)
        try:
            checkpoint = await self._models.of_session(approach.terms)
            folder = self._models.folder_for(approach.terms)
            lend = await self._lend(request.memory_bytes)
        except BaseException:
            await approach.abandon()
            raise
        await self._pending.keep(PendingJoin(approach, checkpoint, request.memory_bytes, spoken, spare_bytes))
        download_bytes, folder = _download(approach.terms, checkpoint, lend, folder)
        return pb.Offer(
            session=approach.session.hex(),
            model=approach.terms.model,
            host=approach.host,
            members_present=approach.members_present,
            members_wanted=approach.terms.members_wanted,
            lend_memory_bytes=lend,
            download_bytes=download_bytes,
            free_disk_bytes=shutil.disk_usage(self._config.data).free,
            folder=str(folder),
            offer_ttl_s=self._pending.ttl_s,
            spare_bytes=await asyncio.to_thread(self._models.room_for_spares(spare_bytes).left, 0),
            notices=checkpoint.anatomy.notices if checkpoint else (),
            quantization=checkpoint.quantization if checkpoint else line(approach.terms.quantization, LONGEST_DEVICE),
        )

    async def join(self, request: pb.JoinSessionRequest) -> pb.Session:
        """Takes up an offer.

        Raises:
            KafilaError: there is no such offer, or the host does not admit this machine any more.
        """
        async with self._one_at_a_time:
            if (seat := self._sessions.open_with_id(request.session)) is not None:
                await self._pending.give_up(request.session)  # it was asked for several times
                return seat.snapshot()
            offer = self._pending.take(request.session)
            channel = await offer.approach.enrol()
            channel.keeper.note(lend_bytes=offer.memory_bytes, spare_bytes=offer.spare_bytes, typed=offer.code)
            return (await self._seating.sit_down(channel, offer.checkpoint)).snapshot()

    async def _approach(self, code: Code, request: pb.OpenSessionRequest) -> Approach:
        place = request.rendezvous or self._config.meeting_place()
        return await approach_by(
            code,
            place=parse_address(place) if place else None,
            asks_network=self._config.mdns,
            name=request.name or self._config.name,
            local=self._seating.local(),
        )

    async def _lend(self, most_bytes: int) -> int:
        """What this machine lends to one more session: what is usable, less what its sessions hold or wait for."""
        usable: int
        _, usable = await self._measuring.device()
        return min(usable, most_bytes) if most_bytes else usable


def _already(seat: Seat) -> pb.Offer:
    """This machine is a member, or comes back as one."""
    return pb.Offer(session=seat.id, joined=True, model=seat.terms.model, host=seat.keeper.kept.log.host)


def _download(
    terms: ring_pb2.SessionTerms, checkpoint: Checkpoint | None, lend_bytes: int, folder: Path
) -> tuple[int, Path]:
    """The most that joining brings here, and where it goes; a folder that is here already is used in place."""
    if checkpoint is None:
        return min(terms.weight_bytes, lend_bytes) + terms.describing_bytes, folder
    missing_bytes = checkpoint.download_bytes(checkpoint.manifest.tensors)
    return min(missing_bytes, lend_bytes), checkpoint.folder
