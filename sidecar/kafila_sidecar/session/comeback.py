"""Coming back to a session: from what is kept of it to a `Channel`, however long that takes."""

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, KafilaError, NotFound, Unavailable
from kafila_sidecar.session.admission.gathering import Homecoming, Lead, Output
from kafila_sidecar.session.admission.host import AdmissionAnswer
from kafila_sidecar.session.admission.knocker import TurnedAway, Welcomed
from kafila_sidecar.session.calling.caller import KnownRoom
from kafila_sidecar.session.calling.calling import Calling
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.keeping.kept import KeptPlace
from kafila_sidecar.session.membership import entries, rekey
from kafila_sidecar.session.membership.log import replay
from kafila_sidecar.session.membership.seal import KEY_BYTES
from kafila_sidecar.session.opening import Local, open_channel
from kafila_sidecar.session.rendezvous.mailbox import Mailbox, enter_again, enter_room

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # between tries to reach a rendezvous
LEAST_STAY_S = 4.0  # so long whoever is in a room has to answer a knock, before another room is looked at
DESERTED_S = 30.0  # a room where nobody of the session was met so long is left again

Told = Callable[[str], None]
"""What is waited for, in a sentence without its full stop."""


class Outside(Denied):
    """This machine is no member any more, says the host, or the session is over: there is no way back."""


class Deserted(Unavailable):
    """Nobody of this session was met in the room, which may be another one's by now."""


@dataclass(frozen=True, slots=True)
class CameBack:
    """`leads`: this machine is the host, and the others come back to it."""

    channel: Channel
    leads: bool


Entering = Callable[[], Awaitable[Mailbox]]
"""One way into a room; raises KafilaError."""


async def come_back(
    *,
    keeper: Keeper,
    local: Local,
    told: Told,
    moved: asyncio.Event,
    calling: Calling | None = None,
    ways_in: Callable[[Keeper], Iterator[Entering]] | None = None,
) -> CameBack:
    """Tries until this machine is in the session again; `moved` is set when its network is another. `calling` asks the
    others where they are meanwhile. `ways_in`: the rooms that others named and those that are kept, unless given.

    Raises Outside when it can't ever be.
    """
    seeking = Seeking(keeper, local, told, moved, calling)
    ways_in = ways_in or seeking.ways_in
    if calling is None:
        return await seeking.run(ways_in)
    with calling.away():
        asking = asyncio.create_task(calling.run(), name=f"call the members of {keeper.kept.id}")
        try:
            return await seeking.run(ways_in)
        finally:
            asking.cancel()


class Seeking:
    """All rooms in turn, those that others name now before those that are kept."""

    def __init__(self, keeper: Keeper, local: Local, told: Told, moved: asyncio.Event, calling: Calling | None) -> None:
        self._keeper = keeper
        self._local = local
        self._told = told
        self._moved = moved
        self._calling = calling
        self._news = calling.news if calling is not None else asyncio.Event()
        self._pause_s = FIRST_PAUSE_S
        self._loop = asyncio.get_running_loop()

    async def run(self, ways_in: Callable[[Keeper], Iterator[Entering]]) -> CameBack:
        """Raises Outside."""
        while True:
            self._news.clear()
            for enter in ways_in(self._keeper):
                self._moved.clear()
                if (back := await self._try(enter)) is not None:
                    return back
                if self._news.is_set():
                    break
            else:
                await self._pause()

    def ways_in(self, keeper: Keeper) -> Iterator["Enter | EnterNamed"]:
        if self._calling is not None:
            for room in self._calling.learnt:
                yield EnterNamed(room, self._calling)
        for place in keeper.kept.places:
            yield Enter(place, again=False)
            yield Enter(place, again=True)

    async def _try(self, enter: Entering) -> CameBack | None:
        try:
            mailbox = await enter()
            self._pause_s = FIRST_PAUSE_S
            if self._calling is not None:
                self._calling.stays(mailbox)
            return await self._stay(Stay(mailbox, self._keeper, self._local, self._told))
        except Outside:
            raise
        except NotFound:
            self._told("waits for the others: the session's room at the rendezvous is not open at present")
        except KafilaError as error:
            log.info("not_back_yet session=%s code=%s reason=%s", self._keeper.kept.id, error.code, error)
            self._told(str(error))
        finally:
            if self._calling is not None:
                self._calling.stays(None)
        return None

    async def _stay(self, stay: "Stay") -> CameBack:
        """Raises as `Stay.run` does, and Deserted when nobody is here and others name another room."""
        staying = asyncio.create_task(stay.run(), name="stay in a room")
        earliest = self._loop.time() + LEAST_STAY_S
        try:
            while not await self._until_news(staying, earliest):
                if stay.meets_nobody and self._calling is not None and self._calling.learnt:
                    self._news.set()
                    raise Deserted("the others are in another room")
            return staying.result()
        finally:
            staying.cancel()
            await asyncio.wait([staying])

    async def _until_news(self, staying: asyncio.Task[CameBack], earliest: float) -> bool:
        """Whether the stay is over; else somebody has said where the session is, and this room has had its time."""
        self._news.clear()
        hearing = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait([staying, hearing], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([staying], timeout=max(0.0, earliest - self._loop.time()))
        finally:
            hearing.cancel()
        return staying.done()

    async def _pause(self) -> None:
        waits = [asyncio.create_task(event.wait()) for event in (self._moved, self._news)]
        pause_s = self._pause_s * random.uniform(0.5, 1.0)
        try:
            await asyncio.wait(waits, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)


class EnterNamed:
    """The way into a room that somebody named; it is forgotten where it leads nowhere."""

    def __init__(self, room: KnownRoom, calling: Calling) -> None:
        self._room = room
        self._calling = calling

    async def __call__(self) -> Mailbox:
        self._calling.tried(self._room)  # who is there says so again
        return await enter_room(self._room.address, self._room.number)


class Enter:
    """One way into a room: as anybody, or to the mailbox that was this member's, by which a room that rests is found
    again."""

    def __init__(self, place: KeptPlace, *, again: bool) -> None:
        self._place = place
        self._again = again

    async def __call__(self) -> Mailbox:
        if self._again:
            return await enter_again(self._place.address, self._place.mailbox)
        return await enter_room(self._place.address, self._place.mailbox.room)


class Stay:
    """One stay in a room, as long as its rendezvous answers."""

    def __init__(self, mailbox: Mailbox, keeper: Keeper, local: Local, told: Told) -> None:
        self._mailbox = mailbox
        self._keeper = keeper
        self._local = local
        self._told = told
        self._loop = asyncio.get_running_loop()
        kept = keeper.kept
        self._gathering = Homecoming(
            log=replay(kept.log.session, kept.log.entries),
            name=kept.name,
            identity=kept.identity,
            versions=local.versions,
            entropy=os.urandom,
            pace=local.deadlines.gathering,
            now=self._loop.time(),
        )
        self._deserted_at = self._loop.time() + DESERTED_S

    @property
    def meets_nobody(self) -> bool:
        """Nobody of the session has spoken here yet."""
        return self._gathering.meets_nobody

    async def run(self) -> CameBack:
        """Raises Outside, Deserted, or Unavailable when the rendezvous is lost."""
        channel = None
        try:
            self._tell()
            back = await self._until_back()
            channel = back.channel
            return back
        finally:
            if channel is None:
                await self._mailbox.aclose()

    async def _until_back(self) -> CameBack:
        outputs = self._gathering.attending(self._mailbox.attending, self._now)
        while True:
            for output in outputs:
                if (back := await self._follow(output)) is not None:
                    return back
            self._tell()
            outputs = await self._next()

    async def _next(self) -> list[Output]:
        event = await self._mailbox.next_until(self._gathering.next_timer())
        if event is None:
            self._check_company()
            return self._gathering.handle_timer(self._now)
        if event.WhichOneof("event") != "mail":
            return self._gathering.attending(self._mailbox.attending, self._now)
        try:
            parcel = ring_pb2.Parcel.FromString(event.mail.body)
        except DecodeError:
            return []
        if not parcel.HasField("admission"):
            self._mailbox.put_off(event)
            return []
        return self._gathering.receive(event.mail.sender, parcel.admission, self._now)

    async def _follow(self, output: Output) -> CameBack | None:
        match output:
            case AdmissionAnswer(mailbox, admission):
                await self._mailbox.post([mailbox], ring_pb2.Parcel(admission=admission).SerializeToString())
            case Welcomed():
                return CameBack(await self._welcomed(output), leads=False)
            case Lead():
                return CameBack(await self._lead(output), leads=True)
            case TurnedAway(error) if isinstance(error, Denied | NotFound):
                raise Outside(str(error))
        return None

    async def _welcomed(self, welcomed: Welcomed) -> Channel:
        kept = self._keeper.kept
        await self._give_up_old()
        replica = Replica(
            identity=kept.identity, self_name=welcomed.name, log=welcomed.log, key=welcomed.key, entropy=os.urandom
        )
        return open_channel(self._mailbox, replica, self._local, self._keeper)

    async def _lead(self, lead: Lead) -> Channel:
        kept, membership = self._keeper.kept, lead.log
        await self._give_up_old()
        key = kept.key
        if lead.proof is not None:
            key = os.urandom(KEY_BYTES)
            readers = [one for one in membership.now.heirs if one.name != kept.name]
            number = membership.now.key_number + 1
            new_key = rekey.wrap(key, session=membership.session, number=number, readers=readers, entropy=os.urandom)
            entries.take_over(membership, kept.identity, proof=lead.proof, new_key=new_key)
        me = membership.now.members[kept.name]
        entries.take_back(membership, kept.identity, admitted=me.first_index, mailbox=self._mailbox.place.mailbox)
        replica = Replica(identity=kept.identity, self_name=kept.name, log=membership, key=key, entropy=os.urandom)
        channel = open_channel(self._mailbox, replica, self._local, self._keeper)
        for proved in lead.back:
            channel.take_back(proved)
        return channel

    async def _give_up_old(self) -> None:
        """The mailbox that this member had before, where nobody reads any more."""
        for place in self._keeper.kept.places:
            if place.address == self._mailbox.address and place.mailbox != self._mailbox.place:
                with contextlib.suppress(KafilaError):
                    await self._mailbox.give_up(place.mailbox)

    def _tell(self) -> None:
        missing = self._gathering.missing
        if self._gathering.refusal:
            self._told(self._gathering.refusal)
        else:
            self._told(f"waits for {', '.join(missing)}" if missing else "waits for the others to go on")

    def _check_company(self) -> None:
        """Raises Deserted in a room where nobody speaks for this session, though somebody is there."""
        if self._gathering.is_alone or self._now < self._deserted_at:
            return
        raise Deserted(f"{self._keeper.kept.name} met nobody of its session in its room at the rendezvous")

    @property
    def _now(self) -> float:
        return self._loop.time()
