"""The rooms and their mailboxes: who may open, join, attend and post, and when things expire. No I/O, no clock.

Each request is one method; those that depend on time take `now` in seconds. Streams to wake up are collected in
`take_woken`. A server that was started again recalls a mailbox, and its room, when its owner shows the secret.
"""

import hmac
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from kafila_rendezvous.config import PROTOCOL, RendezvousLimits
from kafila_rendezvous.errors import Full, LimitReached, Malformed, Unknown, WrongProtocol, WrongSecret
from kafila_rendezvous.places import Places
from kafila_rendezvous.rooms.budget import MailBudget, PostedMail
from kafila_rendezvous.rooms.events import Arrived, Departed, Event, Mail
from kafila_rendezvous.rooms.living import LifeChange, LivingMailbox, RestChange
from kafila_rendezvous.rooms.mailbox import RoomMailbox
from kafila_rendezvous.rooms.meter import Meter
from kafila_rendezvous.rooms.numbers import RoomNumbers
from kafila_rendezvous.rooms.secret import Secrets
from kafila_rendezvous.series import EVERY, Series

FIRST_MAILBOX = 1  # the creator's, who answers newcomers
NOBODY = ""  # who opened what was there before a restart
RUN_BITS = 20  # of a mailbox' number are below those of the run, so that nobody gets one that may yet come back


@dataclass(frozen=True, slots=True)
class Key:
    """Where a mailbox is."""

    room: int
    mailbox: int


@dataclass(frozen=True, slots=True)
class LastRest:
    """Of a room that somebody has come back to. A further one ends no later, unless it is no longer than the room was
    attended since: else whoever has been in it once could keep it for ever, by a moment's visit in each rest."""

    until: float
    woken_at: float

    def then_until(self, now: float, limits: RendezvousLimits) -> float:
        """When a rest ends that begins now."""
        attended_s = max(0.0, now - self.woken_at - limits.idle_ttl_s)
        return max(self.until, now + min(limits.rest_ttl_s, attended_s))


@dataclass(slots=True)
class Room:
    """One room; `address` is who opened it, as the limits count it. Its number is given again, `serial` is not."""

    serial: int
    address: str
    capacity: int
    numbers: Iterator[int]
    mailboxes: dict[int, RoomMailbox] = field(default_factory=dict)
    is_recalled: bool = False
    missed: set[int] = field(
        default_factory=set
    )  # mailboxes that ended without being given up, as far as it has places
    last_rest: LastRest | None = None

    def lose(self, mailbox: int) -> None:
        """Nobody attended it for too long."""
        if len(self.missed) < self.capacity:
            self.missed.add(mailbox)

    def find(self, mailbox: int) -> None:
        """Its owner is there again, or gives it up. Where too many were lost to know them all, some stay lost."""
        if len(self.missed) < self.capacity:
            self.missed.discard(mailbox)

    def attended_beside(self, mailbox: int) -> tuple[int, ...]:
        return tuple(number for number, box in self.mailboxes.items() if box.attended and number != mailbox)


@dataclass(frozen=True, slots=True)
class RestingRoom:
    """A room that nobody attends any more, and nobody has given up; nobody else gets its number before `until`."""

    room: Room
    until: float


class Rooms:
    """All rooms of one run of a server. `run`, 1 to 4095, is another one each time; `series`: which numbers they get.

    Until `recall_until` come back those who had a mailbox at the end of the run before, `living`; their rooms rest from
    then on, as those do that rested then, `resting`.
    """

    def __init__(
        self,
        limits: RendezvousLimits,
        secrets: Secrets,
        *,
        series: Series = EVERY,
        run: int = 1,
        recall_until: float = 0.0,
        living: Iterable[LivingMailbox] = (),
        resting: Iterable[RestChange] = (),
        now: float = 0.0,
    ) -> None:
        self._limits = limits
        self._secrets = secrets
        self._run = run
        self._recall_until = recall_until
        self._rooms: dict[int, Room] = {}
        self._room_places = Places(limits.rooms, limits.rooms_per_address, "rooms")
        self._mailbox_places = Places(limits.mailboxes, limits.mailboxes_per_address, "mailboxes")
        self._recallable = set(living)
        self._changes: list[LifeChange | RestChange] = [LifeChange(one, begins=True) for one in self._recallable]
        self._room_numbers = RoomNumbers(limits.cool_down_s, {one.room for one in self._recallable}, series)
        self._resting: dict[int, RestingRoom] = {}  # by number, whose rest ends first comes first
        self._resting_places = Places(limits.resting_rooms, limits.rooms_per_address, "resting rooms")
        for one in sorted(resting, key=attrgetter("for_s")):
            self._rest_since_before(one.room, one.serial, now + one.for_s)
        self._streams = itertools.count(1)
        self._idle_since: dict[Key, float] = {}  # mailboxes that nobody attends, the longest idle first
        self._woken: set[int] = set()
        self._budget = MailBudget(limits)
        self._creates = Meter(limits.rooms_per_address_and_minute, "rooms were opened from your address")
        self._joins = Meter(limits.joins_per_address_and_minute, "joins came from your address")
        self._posts = Meter(limits.posts_per_mailbox_and_minute, "messages came from this mailbox")
        self._tokens = Meter(limits.relay_tokens_per_mailbox_and_minute, "relay tokens went to this mailbox")

    def __len__(self) -> int:
        return len(self._rooms)

    @property
    def mailboxes(self) -> int:
        """How many there are in all rooms."""
        return self._mailbox_places.taken

    @property
    def queued_bytes(self) -> int:
        """What all mailboxes hold together."""
        return self._budget.held

    def create(self, *, protocol: int, address: str, capacity: int, serial: int, now: float) -> Key:
        """Opens a room with its first mailbox; `capacity` 0 means as many mailboxes as the server allows.

        serial: 64 random bits.
        """
        _check(protocol)
        self._wake_up(now)
        self._creates.count(address, now)
        self._room_places.check(address)
        self._mailbox_places.check(address)
        most = self._limits.mailboxes_per_room
        number = self._room_numbers.take(now)
        self._rooms[number] = Room(serial, address, min(capacity or most, most), itertools.count(FIRST_MAILBOX))
        self._room_places.take(address)
        return self._open_mailbox(number, address, now)

    def join(self, *, protocol: int, address: str, room: int, now: float) -> Key:
        """Opens one more mailbox in a room."""
        _check(protocol)
        self._joins.count(address, now)
        if room not in self._rooms:
            raise Unknown("there is no such room, or no longer")
        capacity = self._rooms[room].capacity
        if len(self._rooms[room].mailboxes) >= capacity:
            raise Full(f"all {capacity} places of this room are taken: try again later")
        self._mailbox_places.check(address)
        return self._open_mailbox(room, address, now)

    def secret(self, key: Key) -> bytes:
        """What proves a mailbox in every later call."""
        return self._mailbox(key).secret

    def attend(self, key: Key, secret: bytes, *, address: str, now: float) -> int:
        """A stream takes the mailbox over; returns the stream's number for `take` and `detach`. The others hear of it,
        whether or not they knew that the one before had ended: what that one was sent last may have reached nobody, and
        they say it again."""
        self._recall(key, secret, address, now)
        box = self._proved(key, secret)
        superseded, stream = box.stream, next(self._streams)
        box.attend(stream, address, self._rooms[key.room].attended_beside(key.mailbox))
        self._idle_since.pop(key, None)
        self._tell_others(key, Arrived(key.mailbox))
        if superseded is not None:
            self._woken.add(superseded)
        return stream

    def first(self, key: Key, stream: int) -> Event | None:
        """What a stream is to send next; it counts as held until `sent`.

        Raises Unknown, Superseded or LimitReached when the stream has to end.
        """
        return self._mailbox(key).first(stream)

    def sent(self, key: Key, stream: int) -> None:
        """What `first` gave was sent. A mailbox that a newer stream attends, or that is gone, is not touched."""
        room = self._rooms.get(key.room)
        if room and (box := room.mailboxes.get(key.mailbox)):
            box.sent(stream)

    def detach(self, key: Key, stream: int, now: float) -> None:
        """The stream ended. A mailbox that a newer one attends, or that is gone, is not touched."""
        room = self._rooms.get(key.room)
        box = room.mailboxes.get(key.mailbox) if room else None
        if box is None or box.stream != stream:
            return
        box.stream = None
        self._idle_since[key] = now
        self._tell_others(key, Departed(key.mailbox))

    def post(self, key: Key, secret: bytes, *, to: Iterable[int], body: bytes, now: float) -> list[int]:
        """Puts `body` into the mailboxes `to`; returns those that are gone or full."""
        box = self._proved(key, secret)
        if len(body) > self._limits.body_bytes:
            raise Malformed(f"a message of {len(body)} bytes is over {self._limits.body_bytes} bytes")
        wanted = sorted(set(to) - {key.mailbox})
        if not 1 <= len(wanted) <= self._limits.mailboxes_per_room:
            raise Malformed(f"a message goes to 1 to {self._limits.mailboxes_per_room} other mailboxes")
        self._posts.count(key, now)
        letter = PostedMail(Mail(key.mailbox, body), self._rooms[key.room].serial, box.owner)
        return [number for number in wanted if not self._put(Key(key.room, number), letter)]

    def pair(self, key: Key, secret: bytes, peer: int, *, address: str, now: float) -> int:
        """The room's serial, for a relay channel between two of its mailboxes."""
        self._recall(key, secret, address, now)
        self._proved(key, secret)
        room = self._rooms[key.room]
        may_come_back = room.is_recalled and now < self._recall_until
        if peer == key.mailbox or not (peer in room.mailboxes or may_come_back):
            raise Unknown("there is no such other mailbox in this room, or no longer")
        self._tokens.count(key, now)
        return room.serial

    def leave(self, key: Key, secret: bytes, now: float) -> None:
        """Gives the mailbox up; the room goes with its last one. Who stays longest does not decide for those who may
        come back: one that was lost is missed until it is given up too, though that raises Unknown."""
        self._give_up_lost(key, secret, now)
        self._proved(key, secret)
        self._drop(key, now)

    def _give_up_lost(self, key: Key, secret: bytes, now: float) -> None:
        resting = self._resting.get(key.room)
        room = resting.room if resting else self._rooms.get(key.room)
        if room is None or self._secrets.serial_in(secret, room=key.room, mailbox=key.mailbox) != room.serial:
            return
        room.find(key.mailbox)
        if resting and not room.missed:
            self._end_rest(key.room)
            self._room_numbers.give_back(key.room, now)

    def next_timer(self) -> float | None:
        """When `handle_timer` is due, in the time of `now`."""
        longest = next(iter(self._idle_since.values()), None)
        due = [] if longest is None else [longest + self._limits.idle_ttl_s]
        return min([*due, self._recall_until] if self._recallable else due, default=None)

    def handle_timer(self, now: float) -> None:
        """Drops the mailboxes that nobody attended for too long, and gives up those that did not come back."""
        if self._recallable and now >= self._recall_until:
            self._give_up_recalling(now)
        while (since := next(iter(self._idle_since.values()), None)) is not None:
            if since + self._limits.idle_ttl_s > now:
                return
            self._drop(next(iter(self._idle_since)), now, rests=True)

    def take_changes(self) -> list[LifeChange | RestChange]:
        """Which mailboxes began and ended, and which rooms rest, for the next run of the server to know."""
        changes, self._changes = self._changes, []
        return changes

    def take_woken(self) -> set[int]:
        """Streams that have something to take, or have to end."""
        woken, self._woken = self._woken, set()
        return woken

    def _open_mailbox(self, number: int, address: str, now: float) -> Key:
        key = Key(number, next(self._rooms[number].numbers))
        self._put_mailbox(key, address, now)
        return key

    def _put_mailbox(self, key: Key, address: str, now: float) -> None:
        room = self._rooms[key.room]
        secret = self._secrets.make(serial=room.serial, room=key.room, mailbox=key.mailbox)
        room.find(key.mailbox)
        room.mailboxes[key.mailbox] = RoomMailbox(secret, address, self._limits, self._budget)
        self._idle_since[key] = now
        self._mailbox_places.take(address)
        self._changes.append(LifeChange(LivingMailbox(key.room, room.serial, key.mailbox), begins=True))

    def _recall(self, key: Key, secret: bytes, address: str, now: float) -> None:
        """Gives back what rests, or lived when the run before ended, to who shows its secret, where there is room."""
        serial = self._secrets.serial_in(secret, room=key.room, mailbox=key.mailbox)
        if (resting := self._resting.get(key.room)) is not None:
            if serial == resting.room.serial and now < resting.until:
                self._open_again(key, resting, address, now)
            return
        if now >= self._recall_until:
            return
        if serial is None or LivingMailbox(key.room, serial, key.mailbox) not in self._recallable:
            return
        self._mailbox_places.check(address)
        if key.room not in self._rooms:
            self._recall_room(key.room, serial, address)
        room = self._rooms.get(key.room)
        if room is None or room.serial != serial or key.mailbox in room.mailboxes:
            return
        if len(room.mailboxes) < room.capacity:
            self._recallable.discard(LivingMailbox(key.room, serial, key.mailbox))
            self._put_mailbox(key, address, now)

    def _open_again(self, key: Key, resting: RestingRoom, address: str, now: float) -> None:
        room = resting.room
        self._mailbox_places.check(address)
        self._room_places.check(room.address)  # it counts as before, whoever wakes it
        self._end_rest(key.room)
        last = LastRest(resting.until, now)
        self._rooms[key.room] = Room(
            room.serial, room.address, room.capacity, room.numbers, missed=room.missed, last_rest=last
        )
        self._room_places.take(room.address)
        self._put_mailbox(key, address, now)

    def _end_rest(self, number: int) -> None:
        room = self._resting.pop(number).room
        self._resting_places.give_back(room.address)
        self._changes.append(RestChange(number, room.serial, 0.0))

    def _wake_up(self, now: float) -> None:
        """Nobody came back to these: their numbers are given again once they have cooled down."""
        while (number := next(iter(self._resting), None)) is not None and self._resting[number].until <= now:
            self._end_rest(number)
            self._room_numbers.give_back(number, now)

    def _recall_room(self, number: int, serial: int, address: str) -> None:
        self._room_places.check(address)
        if self._room_numbers.claim(number):
            self._rooms[number] = self._room_before(serial, address)
            self._room_places.take(address)

    def _room_before(self, serial: int, address: str) -> Room:
        """One of the run before."""
        numbers = itertools.count(self._run << RUN_BITS)
        return Room(serial, address, self._limits.mailboxes_per_room, numbers, is_recalled=True)

    def _rest_since_before(self, number: int, serial: int, until: float) -> None:
        """A room that nobody has come back to yet; who opened it is not known any more. The limits of all count."""
        if self._resting_places.taken >= self._limits.resting_rooms or not self._room_numbers.claim(number):
            return
        self._resting_places.take(NOBODY)
        self._resting[number] = RestingRoom(self._room_before(serial, NOBODY), until)

    def _give_up_recalling(self, now: float) -> None:
        self._changes += [LifeChange(one, begins=False) for one in self._recallable]
        for number, serial in sorted({(one.room, one.serial) for one in self._recallable}):
            if number not in self._rooms and number not in self._resting:
                self._rest_since_before(number, serial, now + self._limits.rest_ttl_s)
                if number in self._resting:
                    self._changes.append(RestChange(number, serial, self._limits.rest_ttl_s))
        self._recallable.clear()
        self._room_numbers.let_go(now)

    def _put(self, key: Key, letter: PostedMail) -> bool:
        box = self._rooms[key.room].mailboxes.get(key.mailbox)
        if box is None or not box.put_mail(letter):
            return False
        self._wake(box)
        return True

    def _tell_others(self, key: Key, event: Arrived | Departed) -> None:
        for number, box in self._rooms[key.room].mailboxes.items():
            if number != key.mailbox:
                box.put_news(event)
                self._wake(box)

    def _wake(self, box: RoomMailbox) -> None:
        if box.stream is not None:
            self._woken.add(box.stream)

    def _drop(self, key: Key, now: float, *, rests: bool = False) -> None:
        """`rests`: nobody gave it up, so that it may be missed."""
        room = self._rooms[key.room]
        if rests:
            room.lose(key.mailbox)
        box = room.mailboxes.pop(key.mailbox)
        box.close()
        self._mailbox_places.give_back(box.opener)
        self._changes.append(LifeChange(LivingMailbox(key.room, room.serial, key.mailbox), begins=False))
        self._idle_since.pop(key, None)
        self._wake(box)
        if box.attended:
            self._tell_others(key, Departed(key.mailbox))
        if not room.mailboxes:
            self._close(key.room, now)

    def _close(self, number: int, now: float) -> None:
        room = self._rooms.pop(number)
        self._room_places.give_back(room.address)
        if not (room.missed and self._lay_to_rest(number, room, now)):
            self._room_numbers.give_back(number, now)

    def _lay_to_rest(self, number: int, room: Room, now: float) -> bool:
        """False where there is no place for it, or it has rested long enough."""
        last = room.last_rest
        until = last.then_until(now, self._limits) if last else now + self._limits.rest_ttl_s
        if until <= now:
            return False
        try:
            self._resting_places.check(room.address)
        except LimitReached:
            return False
        self._resting_places.take(room.address)
        self._resting[number] = RestingRoom(room, until)
        if last:  # it may not be the one that rests longest from now on
            self._resting = dict(sorted(self._resting.items(), key=lambda item: item[1].until))
        self._changes.append(RestChange(number, room.serial, until - now))
        return True

    def _mailbox(self, key: Key) -> RoomMailbox:
        room = self._rooms.get(key.room)
        box = room.mailboxes.get(key.mailbox) if room else None
        if box is None:
            raise Unknown("there is no such mailbox, or no longer")
        return box

    def _proved(self, key: Key, secret: bytes) -> RoomMailbox:
        box = self._mailbox(key)
        if not hmac.compare_digest(box.secret, secret):
            raise WrongSecret("the secret does not belong to this mailbox")
        return box


def _check(protocol: int) -> None:
    if protocol != PROTOCOL:
        raise WrongProtocol(f"this rendezvous speaks protocol {PROTOCOL}, the caller {protocol}: use the same version")
