"""A session's channel: control messages between members, and who they are. The asyncio driver of `replica` and, on the
host, of `reception`.

Messages travel through the rendezvous and over every attached way; each member tells each of them once. Members that
return get the latest ones again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Set

from google.protobuf.message import DecodeError

from kafila_proto import rendezvous_pb2, ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput, KafilaError, Refused
from kafila_sidecar.session.admission.doorstep import ProvedMember
from kafila_sidecar.session.admission.pake import GuessStore
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.delivery import Delivery
from kafila_sidecar.session.channel.events import (
    Event,
    HostChanged,
    JoiningChanged,
    MemberJoined,
    MemberRemoved,
    MessageFrom,
    Outvoted,
    RoomMoved,
)
from kafila_sidecar.session.channel.following import OLD_MAIL_S, Following
from kafila_sidecar.session.channel.gossip import Forward
from kafila_sidecar.session.channel.moving import TRIAL_S
from kafila_sidecar.session.channel.old_rooms import OldRooms
from kafila_sidecar.session.channel.presence import Presence
from kafila_sidecar.session.channel.queue import EventQueue
from kafila_sidecar.session.channel.reception import Reception
from kafila_sidecar.session.channel.replica import HostForked, Replica
from kafila_sidecar.session.channel.residence import Residence
from kafila_sidecar.session.channel.upkeep import Acts, Upkeep
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.keeping.kept import KeptPlace
from kafila_sidecar.session.membership.identity import Identity
from kafila_sidecar.session.membership.members import Member, Replanning
from kafila_sidecar.session.membership.rivals import Forked, LeftBehind
from kafila_sidecar.session.membership.seal import is_for_all
from kafila_sidecar.session.rendezvous.attendance import (
    LONGEST_PAUSE_S,
    RendezvousBack,
    RendezvousLost,
    RoomGone,
    sightings,
)
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.session.rendezvous.dial import CALL_DEADLINE_S
from kafila_sidecar.session.rendezvous.elsewhere import Elsewhere
from kafila_sidecar.session.rendezvous.mailbox import Mailbox

logger = logging.getLogger(__name__)

GOODBYE_DEADLINE_S = 2.0
LAST_WORD_DEADLINE_S = CALL_DEADLINE_S + 2.0  # of who was removed: with what was being said when it heard that
RULINGS = frozenset(Replanning)
LONGEST_ABSENCE_S = LONGEST_PAUSE_S + 3.0  # a member's next try to attend, and the call itself


class Channel:
    """Made by `join.found` and `join.Approach.enrol`; lives while `run` runs."""

    def __init__(
        self,
        *,
        mailbox: Mailbox,
        replica: Replica,
        guesses: GuessStore,
        versions: Versions,
        keeper: Keeper,
        elsewhere: Elsewhere,
        absence_s: float = LONGEST_ABSENCE_S,
        trial_s: float = TRIAL_S,
    ) -> None:
        """`guesses`, `versions` and `elsewhere` are for the host, at once or as a successor; `keeper` writes down what
        coming back needs."""
        self._replica = replica
        self._upkeep = Upkeep(replica)
        self.residence = Residence(
            replica=replica,
            mailbox=mailbox,
            elsewhere=elsewhere,
            trial_s=trial_s,
            say=lambda control: self._perform(self._upkeep.write(control)),
            arrived=self._arrived,
        )
        self._mover, self._where = self.residence.mover, self.residence.where
        self._old_rooms = OldRooms(replica=replica, versions=versions, places=lambda: self.keeper.kept.places)
        self._delivery = Delivery(mailbox, self._where)
        self._events = EventQueue()
        self._presence = Presence(absence_s)
        self._loop = asyncio.get_running_loop()
        self._runs = False
        self._group: asyncio.TaskGroup | None = None
        self._attending: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._following = Following(
            replica=replica, upkeep=self._upkeep, perform=self._perform, give_way=self._give_way
        )
        self._fault: KafilaError | None = None
        self._reception = Reception(
            replica=replica,
            upkeep=self._upkeep,
            place=Code(mailbox.place.room, keeper.kept.words if replica.is_host else (), mailbox.address),
            guesses=guesses,
            versions=versions,
            answer=self._delivery.answer,
            where=self._where,
            presence=self._presence,
        )
        self._joining = self.joining
        self.keeper = keeper
        self._kept: tuple[object, ...] = ()  # what of it changes
        self._keep()

    @property
    def session(self) -> bytes:
        return self._replica.log.session

    @property
    def self_name(self) -> str:
        return self._replica.self_name

    @property
    def host(self) -> str:
        """Who admits, plans and decides: the founder, or after it the latest successor."""
        return self._replica.log.host

    @property
    def founder(self) -> str:
        return self._replica.log.founder

    @property
    def takeovers(self) -> int:
        """How many successors there have been."""
        return self._replica.log.now.takeovers

    @property
    def replanning(self) -> Replanning:
        """What is done with a better plan: what the log said last, else the terms."""
        if ruled := self._replica.log.now.replanning:
            return ruled
        return Replanning(said) if (said := self.terms.replanning) in RULINGS else Replanning.AUTO

    @property
    def keeper_of_room(self) -> str:
        """Who embeds the rendezvous where the session is now; empty for a server."""
        return self._where.keeper

    @property
    def identity(self) -> Identity:
        return self._replica.identity

    @property
    def terms(self) -> ring_pb2.SessionTerms:
        return self._replica.log.terms

    @property
    def members(self) -> tuple[Member, ...]:
        """From the verified log, in the order of joining."""
        return self._replica.members

    @property
    def away(self) -> tuple[str, ...]:
        """Who was lost and may return, in the order of going."""
        return self._replica.log.away

    @property
    def rendezvous(self) -> Mailbox:
        """This member's mailbox there, through which it reaches the relay too."""
        return self.residence.mailbox

    @property
    def note(self) -> str | None:
        """Who can reach the rendezvous, once this member has moved the session to one."""
        return self.residence.note

    def mailbox_of(self, member: Member) -> int | None:
        """Its number in the present room; None while it is not known to be there."""
        return self._where.mailbox_of(member)

    @property
    def moves(self) -> int:
        """How often the session's room was moved; each time there is another code."""
        return self._where.number

    @property
    def has_room(self) -> bool:
        """Whether the rendezvous knows this session, as far as is known."""
        return self.residence.is_known

    def link_key(self, member: Member) -> bytes:
        """What this member and that one share, for `Endpoint.connect`; 32 bytes that nobody else knows."""
        return self._replica.keys.pair(member).link

    @property
    def is_host(self) -> bool:
        return self._replica.is_host

    @property
    def code(self) -> Code | None:
        """By which newcomers join now; the host's only, and only while the room exists."""
        return self._reception.code if self.has_room else None

    def is_at(self, code: Code) -> bool:
        """Whether a code's number and address are those of this session's room."""
        return self.residence.is_at(code)

    @property
    def joining(self) -> str:
        """ "open", "locked", "unreachable" while the rendezvous does not answer or knows the room no more, or on the
        host "paused": the code was guessed wrongly too often."""
        state = self._reception.state
        is_unreachable = not (self._presence.attended and self.has_room)
        return "unreachable" if is_unreachable and state != "locked" else state

    async def run(self) -> None:
        """Serves until `leave`, `aclose` or cancellation. Raises Forked when most others follow another history."""
        self._runs = True
        try:
            async with asyncio.TaskGroup() as self._group:
                serving = [self._group.create_task(part) for part in (self._delivery.run(), self._mover.run())]
                self._attending = self._group.create_task(self._attend())
                self._old_rooms.look(self._group)
                await self._closing.wait()
                if self._fault is not None:
                    await self._say_last()
                self._mover.stop()
                self._old_rooms.stop()
                for task in (*serving, self._attending):
                    task.cancel()
        finally:
            self._runs, self._group, self._attending = False, None, None
            self._events.end()
            await self.rendezvous.aclose()
        if self._fault:
            raise self._fault

    async def events(self) -> AsyncIterator[Event]:
        """What happens, for one listener, until the channel ends. Unread events are bounded: keep reading."""
        while (event := await self._events.next()) is not None:
            yield event

    async def send(self, control: ring_pb2.Control) -> None:
        """To all other members, by every way there is; kept for a while when none is open.

        Raises InvalidInput for a message over `seal.LARGEST_CONTROL_BYTES`.
        """
        self._delivery.spread(self._replica.write(control), self._replica.others)

    async def receive(self, sealed: bytes, peer: str = "") -> None:
        """A sealed message that came over a link from `peer`: told and passed on at first sight, else dropped."""
        if self._fault is not None:
            return
        try:
            events = self._heard(sealed, peer)
            self._tell(events)
            if acts := self._upkeep.settle(events):
                self._perform(acts)
        except LeftBehind as fault:
            self._give_way(fault)
        except (Forked, Refused) as fault:
            self._fail(fault)
        except (Denied, InvalidInput) as error:
            logger.info("message_dropped code=%s", error.code)
            self._perform(self._upkeep.settle([]))  # its sender may have to hear that it is no member
        await self._events.has_room()

    def attach(self, forward: Forward, peer: str = "") -> None:
        """From now on messages go over this way too; `forward` may raise KafilaError, and is awaited in turn.

        A peer to which the way leads gets the latest ones again while the rendezvous answers this member, or that one,
        not: what was mailed to it waits there.
        """
        way = self._delivery.ways.attach(forward, peer)
        member = self._replica.log.member(peer)
        if member is not None and not self._presence.gets_mail(peer):
            for sealed in self._replica.repeat_for(member):
                way.put(sealed)

    def detach(self, forward: Forward) -> None:
        """The way is closed."""
        self._delivery.ways.detach(forward)

    def end_admission(self) -> None:
        """The session is over here: nobody joins it through this member any more."""
        self._reception.end()

    async def leave(self) -> None:
        """Says goodbye, gives the mailbox up and closes, in a few seconds at most. Who was removed says so too: the
        host may wait to hear that it is with nobody else."""
        self._mover.stop()
        if self._runs and not self._closing.is_set():
            with contextlib.suppress(KafilaError, TimeoutError):
                is_out = not self._replica.is_member
                async with asyncio.timeout(LAST_WORD_DEADLINE_S if is_out else GOODBYE_DEADLINE_S):
                    await self._say_goodbye()
        await self.aclose()

    async def aclose(self) -> None:
        """Ends `run`. Others see a departure, not a goodbye."""
        self._closing.set()
        self._following.end()
        if not self._runs:
            self._events.end()
            await self.rendezvous.aclose()

    # ---- What the host decides; each raises Refused on any other member

    def remove(self, name: str, reason: str) -> None:
        """Removes a member, and gives the others a new key; the reason is "left", "lost" or "removed".

        Who is "removed" is out for good: there is a new code too. Raises InvalidInput for no member, or for the host.
        """
        if not self._following.may_remove:
            self._following.put_off(name, reason)
        else:
            self._perform(self._upkeep.remove(name, reason))

    def stand_still(self, is_alone: bool) -> None:
        """The host hears too few of the others, or enough again: meanwhile nobody comes in, and who is to be removed is
        when it does."""
        self._reception.stand_still(is_alone)
        self._following.stand_still(is_alone)

    def new_code(self) -> Code:
        """A new code in place of the old one; joining goes on if it was paused."""
        code = self._reception.new_code()
        self._note_joining()
        return code

    def lock(self, locked: bool) -> None:
        """Takes nobody from now on, or again."""
        if locked != self._replica.log.now.locked or not self.is_host:
            self._perform(self._upkeep.lock(locked))

    def rule(self, replanning: Replanning) -> None:
        """Says what is done with a better plan from now on."""
        if replanning is not self.replanning or not self.is_host:
            self._perform(self._upkeep.rule(replanning))

    def vote(self, successor: str) -> None:
        """Any member: the host, and who joined before this successor, are lost to this one."""
        self._perform(self._upkeep.vote(successor))

    def take_back(self, proved: ProvedMember) -> None:
        """A member that came back while this one did, which is the host now, is one again."""
        self._perform(self._reception.take_back(proved, self._loop.time()))

    # ---- Moving

    def _arrived(self, before: Mailbox) -> None:
        """In another room: this is where mail goes and comes from now on."""
        assert self._group is not None
        mailbox = self.rendezvous
        self._delivery.outbox.move(mailbox)
        self._reception.move(Code(mailbox.place.room, (), mailbox.address))
        if self._attending is not None:
            self._attending.cancel()
        self._attending = self._group.create_task(self._attend())
        self._group.create_task(before.aclose())
        self._back()
        for member in self.residence.settled():
            self._repeat_for(member)
        self._tell([RoomMoved(), RendezvousBack()])
        self._old_rooms.look(self._group)

    # ---- Out

    def _keep(self) -> None:
        """Before anybody hears of it, or a host that crashed would sign another entry for the same place."""
        log, code = self._replica.log, self._reception.code
        changing = (len(log), log.head, self.rendezvous.address, self.rendezvous.place, code)
        if changing == self._kept:
            return
        self._kept = changing
        place = KeptPlace(self.rendezvous.address, self.rendezvous.place)
        self.keeper.note(
            log=log,
            key=self._replica.keys.key,
            words=code.words if code else (),
            places=self.keeper.kept.at(place).places,
        )

    def _perform(self, acts: Acts) -> None:
        self._keep()
        for letter in acts.letters:
            self._delivery.spread(letter.sealed, letter.readers)
        self._tell(acts.events)

    async def _say_last(self) -> None:
        """Nothing is heard any more; what was to be said is, if that takes no longer than a goodbye."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_DEADLINE_S):
                await self._delivery.emptied()

    async def _say_goodbye(self) -> None:
        self._delivery.spread(self._replica.write_goodbye(), self._replica.others)
        await self._delivery.emptied()
        self._events.end()  # the end of our own stream is no event
        await self.rendezvous.leave()

    def _tell(self, events: Iterable[Event]) -> None:
        for event in events:
            self._events.tell([self._take_moves(event)])
            match event:
                case MemberJoined():
                    self._look_round()  # its stream may have ended before its admission came to us
                    self._mover.tell()
                case MemberRemoved(name, reason):
                    self._presence.forget(name)
                    if reason == "removed" and self.is_host:
                        self._reception.new_code()
                case Outvoted():
                    self._following.begin(event)
                case HostChanged():
                    self._new_host()
            if isinstance(event, MemberJoined | MemberRemoved | HostChanged):
                self._mover.look_again()
        self._note_joining()

    def _new_host(self) -> None:
        if self.is_host:
            self._reception.open()
        if self._group is not None:
            self._old_rooms.look(self._group)

    def _take_moves(self, event: Event) -> Event:
        """What is said of moves is for this channel; its listener hears that the sender is there."""
        if not isinstance(event, MessageFrom) or self._group is None:
            return event
        came = self.residence.hear(event, self._group)
        if came is None:
            return event
        for member in came:
            self._repeat_for(member)
        return MessageFrom(event.sender, ring_pb2.Control())

    def _note_joining(self) -> None:
        """Whether and how newcomers get in depends on much; it is told when it changes."""
        self._keep()
        before, self._joining = self._joining, self.joining
        if before != self._joining:
            self._events.tell([JoiningChanged()])

    def _look_round(self) -> None:
        """Tells who attends, and who does not any more."""
        if not self._closing.is_set():
            attending = self.rendezvous.attending
            self._events.tell(self._presence.look(self.residence.settled(), attending, self._loop.time()))

    def _back(self) -> None:
        """The rendezvous answers: the others come back to it in their own time."""
        self._mover.found()
        self._upkeep.listen(True)
        self._loop.call_later(OLD_MAIL_S, self._has_listened)
        self._loop.call_at(self._presence.find_rendezvous(self._loop.time()), self._look_round)

    def _has_listened(self) -> None:
        """What was written while the rendezvous was away has come."""
        self._upkeep.listen(False)
        if not self._closing.is_set():
            self._perform(self._upkeep.settle([]))

    def _give_way(self, fault: LeftBehind) -> None:
        """Who is with this member hears it before all that waits, which counts no more."""
        self._delivery.outbox.drop()
        self._perform(self._upkeep.give_way(fault))
        self._fail(fault)

    def _fail(self, fault: KafilaError) -> None:
        self._fault = fault
        self._closing.set()

    # ---- In

    def _heard(self, sealed: bytes, peer: str) -> list[Event]:
        try:
            events = self._replica.receive(sealed)
        except HostForked as forked:
            events = forked.told
        if events is not None and is_for_all(sealed):
            speakers = {event.sender for event in events if isinstance(event, MessageFrom)}
            self._delivery.ways.put(sealed, known_to=speakers | {peer})
            self._mail_on(sealed, speakers, peer)
        return events or []

    def _mail_on(self, sealed: bytes, speakers: Set[str], peer: str) -> None:
        """Whoever the rendezvous misses is heard through the host by those who are not linked with anybody who is, and
        by the host through whom it is linked with."""
        if not self._presence.attended or all(map(self._presence.gets_mail, speakers)):
            return
        unaware = [member for member in self._replica.others if member.name not in speakers]
        if self.is_host:
            self._delivery.mail(sealed, unaware)
        elif peer in speakers:
            self._delivery.mail(sealed, [member for member in unaware if member.name == self.host])

    async def _attend(self) -> None:
        self._look_round()
        async for sighting in sightings(self.rendezvous):
            match sighting:
                case rendezvous_pb2.Event():
                    await self._on_event(sighting)
                    continue
                case RendezvousLost():
                    self._delivery.outbox.hold()
                    self._presence.lose_rendezvous()
                    self._mover.lost()
                case RendezvousBack():
                    self._delivery.outbox.go_on()
                    self._back()
                    self._perform(
                        self._upkeep.write(ring_pb2.Control())
                    )  # whoever went on without this member tells it now
                case RoomGone():
                    self._delivery.outbox.go_on()
                    self._presence.lose_rendezvous()
                    self.residence.lose()
            self._tell([sighting])
            self._look_round()

    async def _on_event(self, event: rendezvous_pb2.Event) -> None:
        match event.WhichOneof("event"):
            case "arrived":
                for member in self.residence.settled():
                    if member.mailbox == event.arrived:
                        self._repeat_for(member)
                self._look_round()
            case "departed":
                self._reception.departed(event.departed)
                self._look_round()
            case "mail":
                await self._on_mail(event.mail)
        self._note_joining()

    def _repeat_for(self, member: Member) -> None:
        """By mail, what it may have missed."""
        for sealed in self._replica.repeat_for(member):
            self._delivery.mail(sealed, [member])

    async def _on_mail(self, mail: rendezvous_pb2.Mail) -> None:
        try:
            parcel = ring_pb2.Parcel.FromString(mail.body)
        except DecodeError:
            logger.info("mail_dropped bytes=%d", len(mail.body))
            return
        if parcel.HasField("envelope"):
            await self.receive(parcel.envelope.SerializeToString())
        elif (
            parcel.HasField("admission") and not self._following.is_under_way
        ):  # else whoever asks is not the others' member
            self._perform(self._reception.receive(mail.sender, parcel.admission, self._loop.time()))
