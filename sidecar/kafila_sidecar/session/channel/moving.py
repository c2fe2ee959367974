"""Moving a session's room: the host opens one elsewhere when the rendezvous is gone, and the others follow it there.

The host settles in the new room when another member has come there, which shows that it can be reached. Others enter it
as anybody does who knows a room's number, and tell their new mailbox.
"""

import asyncio
import logging
from contextlib import aclosing
from typing import Any, Protocol

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput, KafilaError
from kafila_sidecar.session.channel.whereabouts import MOVES_PER_HOST, Whereabouts
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.rendezvous.address import RendezvousAddress, parse_address
from kafila_sidecar.session.rendezvous.code import LARGEST_ROOM
from kafila_sidecar.session.rendezvous.elsewhere import Elsewhere, OfferedRendezvous
from kafila_sidecar.session.rendezvous.mailbox import Mailbox, enter_room, open_room

logger = logging.getLogger(__name__)

SERVER_PATIENCE_S = 60.0  # for a rendezvous that may be started again: for so long it knows its mailboxes then
TRIAL_S = 15.0  # for the first other member to come
PAUSE_S = 30.0  # after all places have failed
FIRST_RETRY_S, LARGEST_RETRY_S = 0.5, 10.0  # of a member that can't enter the new room


class Dwelling(Protocol):
    """What moves: the channel, as far as this needs it."""

    @property
    def is_host(self) -> bool: ...
    @property
    def me(self) -> Member: ...
    @property
    def others(self) -> tuple[Member, ...]: ...
    @property
    def takeovers(self) -> int: ...
    @property
    def log_length(self) -> int: ...
    @property
    def mailbox(self) -> Mailbox: ...
    def say(self, control: ring_pb2.Control) -> None: ...
    def settle(self, mailbox: Mailbox, move: ring_pb2.Moved, note: str) -> None: ...


class Mover:
    """One member's. `run` is its one task."""

    def __init__(self, dwelling: Dwelling, whereabouts: Whereabouts, elsewhere: Elsewhere, trial_s: float) -> None:
        self._dwelling = dwelling
        self._where = whereabouts
        self._elsewhere = elsewhere
        self._trial_s = trial_s
        self._loop = asyncio.get_running_loop()
        self._lost_at: float | None = None  # when the rendezvous was lost that does not answer
        self._is_forgotten = False  # by the rendezvous: nothing is to be waited for
        self._news = asyncio.Event()
        self._arrived = asyncio.Event()
        self._trial = 0  # the number of the move that is tried now, as the host
        self._following: asyncio.Task[None] | None = None
        self._leading: asyncio.Task[Any] | None = None

    # ---- What happens

    def lost(self, *, forgotten: bool = False) -> None:
        """The rendezvous does not answer, or has forgotten the room."""
        self._lost_at = self._loop.time() if self._lost_at is None else self._lost_at
        self._is_forgotten = self._is_forgotten or forgotten
        self._news.set()

    def found(self) -> None:
        """The rendezvous answers."""
        self._lost_at, self._is_forgotten = None, False
        self._news.set()

    def look_again(self) -> None:
        """Members or host are others than before."""
        self._news.set()

    def told(self, move: ring_pb2.Moved, host: Member, group: asyncio.TaskGroup) -> None:
        """The host says where the room is. Raises InvalidInput where nobody could be."""
        address = _checked(move, (self._dwelling.takeovers + 1) * MOVES_PER_HOST)
        self._where.heard_of(move)
        if self._dwelling.is_host or move.number <= self._where.number:
            return
        here = self._dwelling.mailbox
        if here.place.room == move.room and here.address.is_same(address):
            self._where.moved(move, host.name)
            return
        self._stop_following()
        self._following = group.create_task(self._follow(move, address), name="follow the room")

    def came(self, member: Member, word: ring_pb2.MovedIn) -> None:
        """A member says that it is in the new room."""
        self._where.came(member.index, word.number, word.mailbox)
        if word.number == self._trial:
            self._arrived.set()

    def tell(self) -> None:
        """The host says where the room is, to a newcomer above all."""
        if self._where.number and self._dwelling.is_host:
            self._dwelling.say(ring_pb2.Control(moved=self._move_here()))

    def stop(self) -> None:
        """This member leaves, and moves nowhere any more."""
        self._stop_following()
        if self._leading is not None:
            self._leading.cancel()

    async def run(self) -> None:
        """Until stopped."""
        self._leading = asyncio.current_task()
        while True:
            await self._until_due()
            if not await self._move():
                await self._wait(PAUSE_S)

    def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()

    # ---- The host's part

    async def _until_due(self) -> None:
        while True:
            self._news.clear()
            wait_s = self._wait_s()
            if wait_s is not None and wait_s <= 0:
                return
            await self._wait(wait_s)

    def _wait_s(self) -> float | None:
        """Until this member has to open another room, as things are; None: nothing calls for it."""
        if self._lost_at is None or not self._dwelling.is_host:
            return None
        if self._is_forgotten or self._keeper_is_gone:
            return 0.0
        return self._lost_at + SERVER_PATIENCE_S - self._loop.time() if self._dwelling.others else None

    @property
    def _keeper_is_gone(self) -> bool:
        """Whoever embedded the rendezvous is no member any more."""
        here = {member.name for member in (self._dwelling.me, *self._dwelling.others)}
        return bool(self._where.keeper) and self._where.keeper not in here

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    async def _move(self) -> bool:
        """Whether the room is elsewhere now, or is not wanted elsewhere any more."""
        try:
            async with aclosing(self._elsewhere()) as places:
                async for offered in places:
                    if self._wait_s() is None or await self._try(offered):
                        return True
        except KafilaError as error:
            logger.info("no_other_rendezvous code=%s", error.code)
        return False

    async def _try(self, offered: OfferedRendezvous) -> bool:
        """Opens a room, and stays there if another member comes."""
        if offered.address == self._dwelling.mailbox.address and not self._is_forgotten:
            return False
        try:
            mailbox = await open_room(offered.address)
        except KafilaError as error:
            logger.info("room_not_opened code=%s", error.code)
            return False
        try:
            return await self._try_room(mailbox, offered)
        except asyncio.CancelledError:
            await mailbox.aclose()
            raise

    async def _try_room(self, mailbox: Mailbox, offered: OfferedRendezvous) -> bool:
        move = ring_pb2.Moved(
            number=self._where.next_number(self._dwelling.takeovers),
            address=str(offered.address),
            room=mailbox.place.room,
            since=self._dwelling.log_length,
            at_host=offered.at_host,
            residents=[ring_pb2.Resident(member=self._dwelling.me.index, mailbox=mailbox.place.mailbox)],
        )
        self._where.heard_of(move)
        if not await self._somebody_comes(move) or self._lost_at is None:
            await mailbox.aclose()
            return self._lost_at is None
        self._dwelling.settle(mailbox, move, offered.note)
        return True

    async def _somebody_comes(self, move: ring_pb2.Moved) -> bool:
        """Asks the others to come; with nobody else in the session the room is good for newcomers at once."""
        if not self._dwelling.others:
            return True
        self._trial = move.number
        self._arrived.clear()
        self._dwelling.say(ring_pb2.Control(moved=move))
        try:
            async with asyncio.timeout(self._trial_s):
                await self._arrived.wait()
        except TimeoutError:
            logger.info("nobody_came move=%d", move.number)
            return False
        finally:
            self._trial = 0
        return True

    def _move_here(self) -> ring_pb2.Moved:
        dwelling, where = self._dwelling, self._where
        return ring_pb2.Moved(
            number=where.number,
            address=str(dwelling.mailbox.address),
            room=dwelling.mailbox.place.room,
            since=where.since,
            at_host=where.keeper == dwelling.me.name,
            residents=where.residents((dwelling.me, *dwelling.others)),
        )

    # ---- The others' part

    async def _follow(self, move: ring_pb2.Moved, address: RendezvousAddress) -> None:
        """Tries for as long as the session lives, or until it is told of another place."""
        pause_s = FIRST_RETRY_S
        while True:
            try:
                mailbox = await enter_room(address, move.room)
            except KafilaError as error:
                logger.info("not_moved move=%d code=%s", move.number, error.code)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LARGEST_RETRY_S)
            else:
                break
        self._dwelling.settle(mailbox, move, "")
        self._dwelling.say(
            ring_pb2.Control(moved_in=ring_pb2.MovedIn(number=move.number, mailbox=mailbox.place.mailbox))
        )


def _checked(move: ring_pb2.Moved, most_moves: int) -> RendezvousAddress:
    if not 1 <= move.number <= most_moves or not 1 <= move.room <= LARGEST_ROOM:
        raise InvalidInput(
            f"the host moved the session to room {move.room} for the {move.number}th time: there is none"
        )
    return parse_address(move.address)
