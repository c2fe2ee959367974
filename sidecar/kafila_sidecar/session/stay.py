"""One stay in a room, to come back to the session from there or to say goodbye to it."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, Exhausted, KafilaError, NotFound, Unavailable
from kafila_sidecar.session.admission.gathering import Homecoming, Lead, Output
from kafila_sidecar.session.admission.host import AdmissionAnswer
from kafila_sidecar.session.admission.knocker import MovedTo, TurnedAway, Welcomed
from kafila_sidecar.session.calling.caller import KnownRoom
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.membership import entries, rekey
from kafila_sidecar.session.membership.log import replay
from kafila_sidecar.session.membership.seal import KEY_BYTES
from kafila_sidecar.session.opening import Local, open_channel
from kafila_sidecar.session.rendezvous.address import parse_address
from kafila_sidecar.session.rendezvous.mailbox import Mailbox

DESERTED_S = 30.0  # a room where nobody of the session was met so long is left again
GIVING_UP_S = 1.0  # for the rendezvous to take a mailbox back

Told = Callable[[str], None]
"""What is waited for, in a sentence without its full stop."""


class Outside(Denied):
    """This machine is no member any more, says the host, or the session is over: there is no way back."""


class Deserted(Unavailable):
    """Nobody of this session was met in the room, which may be another one's by now."""


class Directed(Unavailable):
    """The host says in a room of before where the session is."""

    def __init__(self, room: KnownRoom) -> None:
        super().__init__(f"the session is at {room.address.target} now")
        self.room = room


@dataclass(frozen=True, slots=True)
class CameBack:
    """`leads`: this machine is the host, and the others come back to it."""

    channel: Channel
    leads: bool


class Stay:
    """One stay in a room, as long as its rendezvous answers."""

    def __init__(self, mailbox: Mailbox, keeper: Keeper, local: Local, told: Told, *, leaves: bool = False) -> None:
        """`leaves`: only to say goodbye."""
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
            leaves=leaves,
        )
        self._deserted_at = self._loop.time() + DESERTED_S

    @property
    def meets_nobody(self) -> bool:
        """Nobody of the session has spoken here yet."""
        return self._gathering.meets_nobody

    async def run(self) -> CameBack:
        """Raises Outside, Deserted, Directed, or Unavailable when the rendezvous is lost."""
        channel = None
        try:
            self._tell()
            back = await self._until_back()
            channel = back.channel
            return back
        finally:
            if channel is None:
                await self._give_up_new()
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
                with contextlib.suppress(Exhausted):  # too many are here, or strangers come and go: it is said again
                    await self._mailbox.post([mailbox], ring_pb2.Parcel(admission=admission).SerializeToString())
            case Welcomed():
                return CameBack(await self._welcomed(output), leads=False)
            case Lead():
                return CameBack(await self._lead(output), leads=True)
            case MovedTo(address, room):
                self._go_to(KnownRoom(parse_address(address), room))
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
        for name in lead.left:
            channel.remove(name, "left")
        return channel

    async def _give_up_old(self) -> None:
        """The mailbox that this member had before, where nobody reads any more."""
        for place in self._keeper.kept.places:
            if place.address == self._mailbox.address and place.mailbox != self._mailbox.place:
                with contextlib.suppress(KafilaError):
                    await self._mailbox.give_up(place.mailbox)

    async def _give_up_new(self) -> None:
        """The mailbox that it has for this stay only, which would take up a place in the room for a minute."""
        if self._mailbox.place in {place.mailbox for place in self._keeper.kept.places}:
            return
        with contextlib.suppress(KafilaError, TimeoutError):
            async with asyncio.timeout(GIVING_UP_S):
                await self._mailbox.leave()

    def _go_to(self, room: KnownRoom) -> None:
        """Raises Directed, unless that is this room: the host answers here by its own mailbox."""
        if room.number != self._mailbox.place.room or not room.address.is_same(self._mailbox.address):
            raise Directed(room)

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
