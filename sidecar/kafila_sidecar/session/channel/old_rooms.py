"""Rooms that the session has left: as long as their rendezvous is there, the host tells those who come back to one of
them where the session is now."""

import asyncio
import logging
import os
import random
from collections.abc import Callable, Sequence

from google.protobuf.message import DecodeError

from kafila_proto import rendezvous_pb2, ring_pb2
from kafila_sidecar.errors import Denied, KafilaError, NotFound
from kafila_sidecar.session.admission.doorstep import STEPS, Doorstep, ProvedMember, never_back
from kafila_sidecar.session.admission.host import AdmissionAnswer
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.keeping.kept import KeptPlace
from kafila_sidecar.session.rendezvous.mailbox import Mailbox, enter_again, enter_room

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0  # before a rendezvous that did not answer is tried again


class OldRooms:
    """One member's, who does this while it is the host."""

    def __init__(self, *, replica: Replica, versions: Versions, places: Callable[[], Sequence[KeptPlace]]) -> None:
        """`places`: where the room is, and where it was."""
        self._replica = replica
        self._versions = versions
        self._places = places
        self._attending: dict[KeptPlace, asyncio.Task[None]] = {}

    def look(self, group: asyncio.TaskGroup) -> None:
        """The host or the room may be another one."""
        wanted = dict.fromkeys(self._places()[1:] if self._replica.is_host else ())
        for place in [one for one in self._attending if one not in wanted]:
            self._attending.pop(place).cancel()
        for place in [one for one in wanted if one not in self._attending]:
            self._attending[place] = group.create_task(self._attend(place), name="attend a room of before")

    def stop(self) -> None:
        for task in self._attending.values():
            task.cancel()

    async def _attend(self, place: KeptPlace) -> None:
        """Whether it is let in or not, it asks ever more rarely, unless it stayed for a while."""
        pause_s = FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._stay(place)
            except KafilaError as error:
                logger.debug("old_room_away code=%s", error.code)
            if loop.time() - began > LONGEST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _stay(self, place: KeptPlace) -> None:
        """Raises KafilaError when it can't be entered, or is lost."""
        mailbox = await _entered(place)
        try:
            await self._answer_all(mailbox)
        finally:
            await mailbox.aclose()

    async def _answer_all(self, mailbox: Mailbox) -> None:
        """Until the rendezvous is lost, which raises Unavailable or NotFound."""
        doorstep = Doorstep(
            log=lambda: self._replica.log,
            name=self._replica.self_name,
            identity=self._replica.identity,
            versions=self._versions,
            entropy=os.urandom,
        )
        while True:
            event = await mailbox.next()
            if event.HasField("departed"):
                doorstep.departed(event.departed)
            elif event.HasField("mail") and (answer := self._answer(doorstep, event.mail)) is not None:
                await mailbox.post([answer.mailbox], ring_pb2.Parcel(admission=answer.admission).SerializeToString())

    def _answer(self, doorstep: Doorstep, mail: rendezvous_pb2.Mail) -> AdmissionAnswer | None:
        try:
            admission = ring_pb2.Parcel.FromString(mail.body).admission
        except DecodeError:
            return None
        if admission.WhichOneof("step") not in STEPS:
            return None
        outcome = doorstep.receive(mail.sender, admission, asyncio.get_running_loop().time())
        if not isinstance(outcome, ProvedMember):
            return outcome
        if not self._replica.log.may_return(outcome.member):
            return doorstep.refuse(outcome, never_back(self._replica.log, outcome.member))
        here = self._places()[0]
        return doorstep.direct(outcome, ring_pb2.SessionRoom(address=str(here.address), room=here.mailbox.room))


async def _entered(place: KeptPlace) -> Mailbox:
    """By this member's own mailbox, which opens a room that rests; as anybody, where that is gone.

    Raises KafilaError.
    """
    try:
        return await enter_again(place.address, place.mailbox)
    except (NotFound, Denied):
        return await enter_room(place.address, place.mailbox.room)
