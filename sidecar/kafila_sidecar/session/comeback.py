"""Coming back to a session: from what is kept of it to a `Channel`, however long that takes."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator

from kafila_sidecar.errors import Denied, KafilaError, NotFound, Unavailable
from kafila_sidecar.session.calling.caller import KnownRoom
from kafila_sidecar.session.calling.calling import Calling
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.keeping.kept import KeptPlace
from kafila_sidecar.session.opening import Local
from kafila_sidecar.session.rendezvous.mailbox import Mailbox, enter_again, enter_room
from kafila_sidecar.session.stay import CameBack, Deserted, Directed, Outside, Stay, Told
from kafila_sidecar.session.turnstile import Allowance, Turnstile

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # after all rooms have been tried
LASTING_S = 30.0  # after a stay so long, or one that met somebody, pauses begin anew
COMPANY_S = 30.0  # so long who is met in a room may take this member back, if others say that the session is elsewhere
LEAST_STAY_S = 4.0  # so long whoever is in a room has to answer a knock, before another room is looked at
GOODBYE_S = 4.0  # for a goodbye to be heard


async def come_back(
    *, keeper: Keeper, local: Local, told: Told, moved: asyncio.Event, turnstile: Turnstile, calling: Calling
) -> CameBack:
    """Tries until this machine is in the session again; `moved` is set when its network is another. `calling` asks the
    others where they are meanwhile.

    Raises Outside when it can't ever be.
    """
    seeking = Seeking(keeper, local, told, moved, turnstile, calling)
    with calling.away():
        asking = asyncio.create_task(calling.run(), name=f"call the members of {keeper.kept.id}")
        try:
            return await seeking.run()
        finally:
            asking.cancel()


async def take_leave(*, keeper: Keeper, local: Local) -> None:
    """Tells the host that this machine does not come back, if it is heard within a few seconds."""
    with contextlib.suppress(TimeoutError, Outside):
        async with asyncio.timeout(GOODBYE_S):
            for place in keeper.kept.places:
                try:
                    await Stay(await EnterKept(place)(), keeper, local, _ignore, leaves=True).run()
                except Outside:
                    raise
                except KafilaError as error:
                    log.info("goodbye_not_said code=%s", error.code)


def _ignore(waits: str) -> None:
    """Nobody waits for anything here."""


class Seeking:
    """All rooms in turn, those that others name now before those that are kept; of these, those first that were tried
    least lately, since what others name breaks a round off."""

    def __init__(
        self, keeper: Keeper, local: Local, told: Told, moved: asyncio.Event, turnstile: Turnstile, calling: Calling
    ) -> None:
        self._keeper = keeper
        self._local = local
        self._told = told
        self._moved = moved
        self._turnstile = turnstile
        self._calling = calling
        self._news = calling.news
        self._pause_s = FIRST_PAUSE_S
        self._tried_at: dict[KeptPlace, float] = {}
        self._loop = asyncio.get_running_loop()

    async def run(self) -> CameBack:
        """Raises Outside."""
        while True:
            self._news.clear()
            self._moved.clear()
            held_until = list[float]()  # for rooms that are not to be entered yet
            for enter in self._ways_in():
                allowance = self._allowance(enter)
                if not allowance.take(self._loop.time()):
                    held_until.append(allowance.opens_at())
                elif (back := await self._try(enter)) is not None:
                    return back
                elif self._news.is_set():
                    break
            else:
                await self._pause(min(held_until, default=None))

    def _ways_in(self) -> Iterator["EnterKept | EnterNamed"]:
        for room in self._calling.learnt:
            yield EnterNamed(room, self._calling)
        for place in sorted(self._keeper.kept.places, key=lambda one: self._tried_at.get(one, 0.0)):
            yield EnterKept(place)

    def _allowance(self, enter: "EnterKept | EnterNamed") -> Allowance:
        if isinstance(enter, EnterNamed):
            return self._turnstile.named
        return self._turnstile.kept(enter.place.address, self._loop.time())

    async def _try(self, enter: "EnterKept | EnterNamed") -> CameBack | None:
        if isinstance(enter, EnterKept):
            self._tried_at[enter.place] = self._loop.time()
        try:
            mailbox = await enter()
            self._calling.stays(mailbox)
            return await self._stay(Stay(mailbox, self._keeper, self._local, self._told))
        except Outside:
            raise
        except Directed as error:
            self._calling.directed(error.room)
        except NotFound:
            self._told("waits for the others: the session's room at the rendezvous is not open at present")
        except KafilaError as error:
            log.info("not_back_yet session=%s code=%s reason=%s", self._keeper.kept.id, error.code, error)
            self._told(str(error))
        finally:
            self._calling.stays(None)
        return None

    async def _stay(self, stay: "Stay") -> CameBack:
        """Raises as `Stay.run` does, and Deserted when nobody is here and others name another room, or when whoever is
        here has had enough time meanwhile: it may be somebody whom the session has put out, unknown to this machine."""
        staying = asyncio.create_task(stay.run(), name="stay in a room")
        began = self._loop.time()
        try:
            while not await self._until_news(staying, began):
                is_over = stay.meets_nobody or self._loop.time() >= began + COMPANY_S
                if is_over and self._calling.learnt:
                    self._news.set()
                    raise Deserted("the others are in another room")
            return staying.result()
        finally:
            if not stay.meets_nobody or self._loop.time() >= began + LASTING_S:
                self._pause_s = FIRST_PAUSE_S
            staying.cancel()
            await asyncio.wait([staying])

    async def _until_news(self, staying: asyncio.Task[CameBack], began: float) -> bool:
        """Whether the stay is over; else somebody has said where the session is, where this machine may go, and this
        room has had its time."""
        self._news.clear()
        hearing = asyncio.create_task(self._news.wait())
        try:
            await asyncio.wait([staying, hearing], return_when=asyncio.FIRST_COMPLETED)
            earliest = max(began + LEAST_STAY_S, self._turnstile.named.opens_at())
            await asyncio.wait([staying], timeout=max(0.0, earliest - self._loop.time()))
        finally:
            hearing.cancel()
        return staying.done()

    async def _pause(self, held_until: float | None) -> None:
        """Until the next round, or until a room that was held back may be entered; what happens cuts it short, and a
        network that is another one is worth trying as at first."""
        pause_s = self._pause_s * random.uniform(0.5, 1.0)
        if held_until is not None:
            pause_s = held_until - self._loop.time()
        if await self._until_something(pause_s):
            self._pause_s = FIRST_PAUSE_S if self._moved.is_set() else self._pause_s
        elif held_until is None:
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    async def _until_something(self, most_s: float) -> bool:
        """Whether something happened before so long had passed."""
        waits = [asyncio.create_task(event.wait()) for event in (self._moved, self._news)]
        try:
            done, _ = await asyncio.wait(waits, timeout=max(0.0, most_s), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        return bool(done)


class EnterNamed:
    """The way into a room that somebody named; it is forgotten where it leads nowhere."""

    def __init__(self, room: KnownRoom, calling: Calling) -> None:
        self.room = room
        self._calling = calling

    async def __call__(self) -> Mailbox:
        """Raises KafilaError."""
        self._calling.tried(self.room)  # who is there says so again
        return await enter_room(self.room.address, self.room.number)


class EnterKept:
    """The way into a room that is kept: as anybody, or where that is refused to the mailbox that was this member's, by
    which a room that rests is found again."""

    def __init__(self, place: KeptPlace) -> None:
        self.place = place

    async def __call__(self) -> Mailbox:
        """Raises KafilaError."""
        place = self.place
        try:
            return await enter_room(place.address, place.mailbox.room)
        except Unavailable:
            raise
        except KafilaError as refused:
            try:
                return await enter_again(place.address, place.mailbox)
            except (NotFound, Denied):
                raise refused from None
