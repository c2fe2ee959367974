"""The asyncio driver of `caller`, over this machine's UDP socket."""

import asyncio
import contextlib
import logging
import os
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from kafila_sidecar.errors import Denied, InvalidInput
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.session.calling.caller import MOST_LEARNT, Caller, KnownRoom
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.rendezvous.mailbox import Mailbox

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 30.0  # between two rounds of calls
MOVES = 0.5  # two that wait in two rooms would else change places for ever

Send = Callable[[Sequence[bytes], Address], None]


class Calling:
    """One session's, for as long as this machine is in it or comes back. It answers all the time, and calls while `run`
    or `until_gone_on` runs."""

    def __init__(self, keeper: Keeper, send: Send) -> None:
        self.news = asyncio.Event()  # somebody said where the session is
        self.gone_on = asyncio.Event()  # to a room that this member has never been in, says one who is there
        self._keeper = keeper
        self._send = send
        self._caller = Caller(lambda: keeper.kept, os.urandom)
        self._is_away = False
        self._is_alone = False  # as a host that hears too few of the others
        self._attended: KnownRoom | None = None
        self._tried: deque[KnownRoom] = deque(maxlen=2 * MOST_LEARNT)  # the latest last

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """This machine is on its way back meanwhile, and knows no more than the others where the session is."""
        self._is_away, self._attended = True, None
        try:
            yield
        finally:
            self._is_away = False

    def stays(self, mailbox: Mailbox | None) -> None:
        """Where it waits for the others."""
        self._attended = None
        if mailbox is not None:
            self._attended = KnownRoom(mailbox.address, mailbox.place.room)
            self.tried(self._attended)

    @property
    def learnt(self) -> tuple[KnownRoom, ...]:
        """The rooms that others named and where this machine does not wait already; those first that it has tried least
        lately."""
        rooms = (room for room in self._caller.learnt if room != self._attended)
        order = list(self._tried)
        return tuple(sorted(rooms, key=lambda room: order.index(room) if room in order else -1))

    def directed(self, room: KnownRoom) -> None:
        """The host says in a room of before that the session is there."""
        self._caller.hear_of(room)
        self.news.set()

    def tried(self, room: KnownRoom) -> None:
        """It leads nowhere, unless somebody names it again."""
        self._caller.forget(room)
        if room in self._tried:
            self._tried.remove(room)
        self._tried.append(room)

    def receive(self, datagram: bytes, source: Address) -> bool:
        """Whether it came from a member of this session, or one that may be again."""
        try:
            now = asyncio.get_running_loop().time()
            is_in = not (self._is_away or self._is_alone)
            heard = self._caller.receive(datagram, self._rooms, is_in=is_in, now=now)
        except (Denied, InvalidInput) as error:
            log.debug("call_refused code=%s", error.code)
            return False
        if heard.answer:
            self._send([heard.answer], source)
        if heard.is_in and self._is_alone and not all(map(self._was_in, self._caller.in_use)):
            self.gone_on.set()
        if self._is_away and self.learnt and (heard.is_in or self._attended is None or random.random() < MOVES):
            self.news.set()
        return True

    async def until_gone_on(self) -> None:
        """For a host that hears too few of the others: calls them until one says that the session is in a room which
        some later host has opened."""
        self.gone_on.clear()
        self._is_alone = True
        asking = asyncio.create_task(self.run(), name=f"call the members of {self._keeper.kept.id}")
        try:
            await self.gone_on.wait()
        finally:
            asking.cancel()
            self._is_alone = False

    async def run(self) -> None:
        """Calls the others, ever more rarely, until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            for datagram, target in self._caller.calls(self._rooms):
                self._send([datagram], target)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _was_in(self, room: KnownRoom) -> bool:
        places = self._keeper.kept.places
        return any(one.mailbox.room == room.number and one.address.is_same(room.address) for one in places)

    @property
    def _rooms(self) -> list[KnownRoom]:
        if self._is_away:
            return [self._attended] if self._attended else []
        place = self._keeper.kept.places[0]
        return [KnownRoom(place.address, place.mailbox.room)]
