"""Where this machine sits in its sessions: what it brings to them, how it takes part, and how it comes back."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial

from kafila_sidecar.config import Config
from kafila_sidecar.errors import InvalidInput, Refused
from kafila_sidecar.machine.embedding.embedded import EmbeddedRendezvous
from kafila_sidecar.machine.models import OpenedModels
from kafila_sidecar.machine.participation import Participation
from kafila_sidecar.machine.seat import Seat
from kafila_sidecar.machine.sessions import Sessions
from kafila_sidecar.machine.taking_part import Equipment, take_part
from kafila_sidecar.machine.watching import Changes
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.calling.calling import Calling
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.comeback import come_back, take_leave
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.opening import Local
from kafila_sidecar.session.rendezvous.address import parse_address
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.session.rendezvous.elsewhere import OfferedRendezvous
from kafila_sidecar.session.stay import CameBack, Told
from kafila_sidecar.session.turnstile import Turnstile
from kafila_sidecar.weights.checkpoint import Checkpoint


class Seating:
    """Gives every session that this machine is in its seat."""

    def __init__(
        self,
        config: Config,
        equipment: Equipment,
        embedded: EmbeddedRendezvous,
        models: OpenedModels,
        sessions: Sessions,
        tasks: asyncio.TaskGroup,
        versions: Versions,
    ) -> None:
        self._config = config
        self._equipment = equipment
        self._embedded = embedded
        self._models = models
        self._sessions = sessions
        self._tasks = tasks
        self._versions = versions

    def local(self) -> Local:
        """What this machine brings to a session."""
        folder = self._config.data / "sessions" / os.urandom(8).hex()
        return Local(folder, self._versions, elsewhere=self._elsewhere)

    async def sit_down(self, channel: Channel, checkpoint: Checkpoint | None) -> Seat:
        """In a session that this machine has just made or entered.

        Raises: Unavailable where too many models stand still on this machine, which is out of the session then.
        """
        changes = Changes()
        try:
            present = self._participation(channel, checkpoint, changes)
        except BaseException:
            channel.keeper.forget()
            await channel.aclose()
            raise
        return self._seat(channel.keeper, present, changes)

    def return_to(self, keeper: Keeper) -> Seat:
        """In a session that it was in before, and that it begins to come back to."""
        return self._seat(keeper, None, Changes())

    def _seat(self, keeper: Keeper, present: Participation | None, changes: Changes) -> Seat:
        calling = Calling(keeper, self._equipment.endpoint.send)
        seat = Seat(
            keeper=keeper,
            changes=changes,
            calling=calling,
            present=present,
            come_back=partial(self._come_back, calling, Turnstile()),
            take_part=self._take_part_again,
            take_leave=self._take_leave,
            spoken=self._spoken,
        )
        self._sessions.run(seat, calling, self._tasks)
        return seat

    async def _come_back(
        self, calling: Calling, turnstile: Turnstile, keeper: Keeper, told: Told, moved: asyncio.Event
    ) -> CameBack:
        kept = keeper.kept
        if any(self._embedded.is_own(place.address) for place in kept.places):
            address, note = await self._embedded.start()  # where the others look, or hear that they have to
            keeper.note(places=kept.known_as(address).places, note=note)
        return await come_back(
            keeper=keeper, local=self.local(), told=told, moved=moved, turnstile=turnstile, calling=calling
        )

    async def _take_leave(self, keeper: Keeper) -> None:
        await take_leave(keeper=keeper, local=self.local())

    async def _take_part_again(self, back: CameBack, keeper: Keeper, changes: Changes) -> Participation:
        terms, model = keeper.kept.log.terms, keeper.kept.model
        if not model:
            return self._participation(back.channel, await self._models.of_session(terms), changes)
        checkpoint = await self._models.open(model, bits=terms.quantize_bits)
        if checkpoint.revision != terms.revision:
            raise Refused(f"{model} holds another model than this session was made with")
        return self._participation(back.channel, checkpoint, changes)

    def _participation(self, channel: Channel, checkpoint: Checkpoint | None, changes: Changes) -> Participation:
        kept = channel.keeper.kept
        return take_part(
            self._equipment,
            channel=channel,
            checkpoint=checkpoint,
            models=self._models,
            lend_bytes=kept.lend_bytes,
            spare_bytes=kept.spare_bytes,
            typed=kept.typed,
            note=kept.note,
            spoken=self._spoken,
            changes=changes,
        )

    async def _elsewhere(self) -> AsyncGenerator[OfferedRendezvous, None]:
        """Where this machine would open another room for a session whose rendezvous is gone."""
        if place := self._config.meeting_place():
            yield OfferedRendezvous(parse_address(place), at_host=False)
        async with self._embedded.lent() as (address, note):
            yield OfferedRendezvous(address, at_host=True, note=note)

    def _spoken(self, code: Code) -> str:
        """The code as it is passed on: without the address where this network finds it, or everybody is configured."""
        if code.address is not None and self._embedded.is_found_by_number(code.address):
            return code.short
        with suppress(InvalidInput):  # what was kept by hand is told of when it is used
            if (place := self._config.meeting_place()) and parse_address(place) == code.address:
                return code.short
        return str(code)
