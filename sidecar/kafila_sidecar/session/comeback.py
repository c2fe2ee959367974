"""Coming back to a session: from what is kept of it to a `Channel`, however long that takes."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterator

from kafila_sidecar.errors import KafilaError, NotFound
from kafila_sidecar.session.calling.caller import KnownRoom
from kafila_sidecar.session.calling.calling import Calling
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.keeping.kept import KeptPlace
from kafila_sidecar.session.opening import Local
from kafila_sidecar.session.rendezvous.mailbox import Mailbox, enter_again, enter_room
from kafila_sidecar.session.stay import CameBack, Deserted, Directed, Outside, Stay, Told

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # between tries to reach a rendezvous
OVER_LIMIT_S = 2.0  # for each try that came too soon for a rendezvous
COMPANY_S = 30.0  # so long who is met in a room may take this member back, if others say that the session is elsewhere
LEAST_STAY_S = 4.0  # so long whoever is in a room has to answer a knock, before another room is looked at
GOODBYE_S = 4.0  # for a goodbye to be heard

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


async def take_leave(
    *, keeper: Keeper, local: Local, ways_in: Callable[[Keeper], Iterator[Entering]] | None = None
) -> None:
    """Tells the host that this machine does not come back, if it is heard within a few seconds."""
    ways_in = ways_in or Seeking(keeper, local, _ignore, asyncio.Event(), None).ways_in
    with contextlib.suppress(TimeoutError, Outside):
        async with asyncio.timeout(GOODBYE_S):
            for enter in ways_in(keeper):
                try:
                    await Stay(await enter(), keeper, local, _ignore, leaves=True).run()
                except Outside:
                    raise
                except KafilaError as error:
                    log.info("goodbye_not_said code=%s", error.code)


def _ignore(waits: str) -> None:
    """Nobody waits for anything here."""


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
        self._named: KnownRoom | None = None  # by the host, in a room of before
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
        named, self._named = self._named, None
        if named is not None:
            yield EnterNamed(named, self._calling)
        for room in self._calling.learnt if self._calling is not None else ():
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
        except Directed as error:
            self._named = error.room
            self._news.set()
        except NotFound:
            self._told("waits for the others: the session's room at the rendezvous is not open at present")
        except KafilaError as error:
            log.info("not_back_yet session=%s code=%s reason=%s", self._keeper.kept.id, error.code, error)
            self._told(str(error))
            if error.code == "RESOURCE_EXHAUSTED":  # who goes on at this pace stays over what is allowed
                await asyncio.sleep(OVER_LIMIT_S)
        finally:
            if self._calling is not None:
                self._calling.stays(None)
        return None

    async def _stay(self, stay: "Stay") -> CameBack:
        """Raises as `Stay.run` does, and Deserted when nobody is here and others name another room, or when whoever is
        here has had enough time meanwhile: it may be somebody whom the session has put out, unknown to this machine."""
        staying = asyncio.create_task(stay.run(), name="stay in a room")
        began = self._loop.time()
        try:
            while not await self._until_news(staying, began + LEAST_STAY_S):
                is_over = stay.meets_nobody or self._loop.time() >= began + COMPANY_S
                if is_over and self._calling is not None and self._calling.learnt:
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

    def __init__(self, room: KnownRoom, calling: Calling | None) -> None:
        self._room = room
        self._calling = calling

    async def __call__(self) -> Mailbox:
        if self._calling is not None:
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
