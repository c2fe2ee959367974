"""Who comes back goes from room to room: how often is bounded whatever it finds and whatever is said, and where it can
be useful it is soon."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafila_proto import rendezvous_pb2, ring_pb2
from kafila_rendezvous.config import RendezvousLimits
from kafila_sidecar.errors import Exhausted, NotFound, Refused, Unavailable
from kafila_sidecar.session import comeback
from kafila_sidecar.session.admission.doorstep import Doorstep, ProvedMember
from kafila_sidecar.session.calling.caller import KnownRoom
from kafila_sidecar.session.comeback import COMPANY_S, LEAST_STAY_S, Seeking
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.keeping.kept import KeptPlace, KeptSession
from kafila_sidecar.session.membership.entries import admit, found_log
from kafila_sidecar.session.membership.identity import Identity, make_identity
from kafila_sidecar.session.membership.log import Log, replay
from kafila_sidecar.session.opening import Local
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.mailbox import MailboxPlace
from kafila_sidecar.session.stay import Outside
from kafila_sidecar.session.turnstile import AT_ONCE, EVERY_S, Turnstile
from tests.sidecar.session.channel_world import TERMS, VERSIONS
from tests.sidecar.session.trust_world import SESSION
from tests.support.virtual_time import simulate

MINUTE_S = 60.0
MOST_A_MINUTE = 2 * (AT_ONCE + MINUTE_S / EVERY_S)  # at one rendezvous: kept rooms, and those that others name
HOUSEHOLD = 3
DIAL_S = 5.0
HAL, ADA = make_identity(), make_identity()
HELD_BY = ("directs", "to itself")  # somebody who may take back whoever comes
KINDS = ("away", "mute", "full", "over the limit", "closed", "breaks", "empty", "another's", *HELD_BY)


def log_of(founder: Identity, other: Identity) -> Log:
    log = found_log(founder, session=SESSION, terms=TERMS, name="hal", mailbox=1)
    admit(log, founder, name="ada", certificate=other.der, agreement=other.agreement, mailbox=2)
    return log


LOG = log_of(HAL, ADA)


@dataclass(frozen=True, slots=True)
class ScenedRoom:
    """`kind`: what becomes of whoever enters it."""

    rendezvous: int
    number: int
    kind: str

    @property
    def known(self) -> KnownRoom:
        return KnownRoom(RendezvousAddress("127.0.0.1", 7000 + self.rendezvous, insecure=True), self.number)

    @property
    def place(self) -> KeptPlace:
        return KeptPlace(self.known.address, MailboxPlace(self.number, 2, host=1, secret=bytes(32)))


class ScenedMailbox:
    """A mailbox in such a room."""

    def __init__(self, room: ScenedRoom, leads_to: KnownRoom) -> None:
        self.address, self.place = room.known.address, MailboxPlace(room.number, 7, host=1, secret=bytes(32))
        self.attending = {9} if room.kind in ("another's", *HELD_BY) else set[int]()
        self._room = room
        self._leads_to = room.known if room.kind == "to itself" else leads_to
        self._mail = asyncio.Queue[rendezvous_pb2.Event]()
        self._doorstep = Doorstep(
            log=lambda: LOG, name="hal", identity=HAL, versions=VERSIONS, entropy=random.Random(1).randbytes
        )

    async def next_until(self, when: float) -> rendezvous_pb2.Event | None:
        if self._room.kind == "breaks":
            raise Unavailable("the rendezvous was lost")
        try:
            async with asyncio.timeout_at(when):
                return await self._mail.get()
        except TimeoutError:
            return None

    async def post(self, to: Iterable[int], body: bytes) -> None:
        """The host of before answers, where it is here."""
        if self._room.kind not in HELD_BY:
            return
        admission = ring_pb2.Parcel.FromString(body).admission
        answer = self._doorstep.receive(7, admission, asyncio.get_running_loop().time())
        if isinstance(answer, ProvedMember):
            there = ring_pb2.SessionRoom(address=str(self._leads_to.address), room=self._leads_to.number)
            answer = self._doorstep.direct(answer, there)
        if answer is not None:
            parcel = ring_pb2.Parcel(admission=answer.admission).SerializeToString()
            self._mail.put_nowait(rendezvous_pb2.Event(mail=rendezvous_pb2.Mail(sender=9, body=parcel)))

    async def leave(self) -> None: ...
    async def aclose(self) -> None: ...


@dataclass
class NamedRooms:
    """As `Calling`, by whose news rooms are named when a scene says so."""

    news: asyncio.Event = field(default_factory=asyncio.Event)
    rooms: list[KnownRoom] = field(default_factory=list)
    attended: KnownRoom | None = None
    before: list[KnownRoom] = field(default_factory=list)

    @property
    def learnt(self) -> tuple[KnownRoom, ...]:
        rooms = [room for room in self.rooms if room != self.attended]
        return tuple(sorted(rooms, key=lambda room: self.before.index(room) if room in self.before else -1))

    def directed(self, room: KnownRoom) -> None:
        self.rooms = [room, *(one for one in self.rooms if one != room)]
        self.news.set()

    def tried(self, room: KnownRoom) -> None:
        self.rooms = [one for one in self.rooms if one != room]
        self.before = [*(one for one in self.before if one != room), room]

    def stays(self, mailbox: ScenedMailbox | None) -> None:
        self.attended = None if mailbox is None else KnownRoom(mailbox.address, mailbox.place.room)
        if self.attended is not None:
            self.tried(self.attended)


class Errand:
    """One member that comes back among such rooms; it ends in the first one of the kind "useful"."""

    def __init__(self, kept: Sequence[ScenedRoom], further: Sequence[ScenedRoom]) -> None:
        self.entries: list[tuple[float, ScenedRoom]] = []
        self.callers = NamedRooms()
        self.moved = asyncio.Event()
        self._kept, self._all = kept, {room.known: room for room in (*kept, *further)}
        self._leads_to = [room.known for room in further] or [kept[0].known]

    async def run(self, until_s: float) -> None:
        """With virtual time at 0."""
        places = tuple(room.place for room in self._kept)
        kept = KeptSession(ADA, "ada", replay(SESSION, LOG.entries), bytes(32), places)
        keeper, local = Keeper(Path("nowhere"), kept), Local(Path("nowhere"), VERSIONS)
        seeking = Seeking(keeper, local, lambda _: None, self.moved, Turnstile(), cast(Any, self.callers))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(comeback, "enter_room", self._enter)
            patch.setattr(comeback, "enter_again", self._enter_again)
            try:
                async with asyncio.timeout_at(until_s):
                    await seeking.run()
            except (TimeoutError, Outside):
                return

    def entered(self, kind: str) -> list[float]:
        return [at for at, room in self.entries if room.kind == kind]

    async def _enter(self, address: RendezvousAddress, number: int) -> ScenedMailbox:
        room = self._all[KnownRoom(address, number)]
        self.entries.append((asyncio.get_running_loop().time(), room))
        match room.kind:
            case "useful":
                raise Outside("here it is")
            case "mute":
                await asyncio.sleep(DIAL_S)
                raise Unavailable("no answer")
            case "away":
                raise Unavailable("refused")
            case "full":
                raise Refused("all places are taken")
            case "over the limit":
                raise Exhausted("too many joins")
            case "closed":
                raise NotFound("no such room")
        return ScenedMailbox(room, random.Random(len(self.entries)).choice(self._leads_to))

    async def _enter_again(self, address: RendezvousAddress, place: MailboxPlace) -> ScenedMailbox:
        raise NotFound("no such mailbox")


def played(
    kept: Sequence[ScenedRoom],
    news: Sequence[tuple[float, ScenedRoom]] = (),
    *,
    moves: Sequence[float] = (),
    lasts_s: float = 300.0,
) -> Errand:
    """`news`: seconds since what was said before, and the room named then; `moves`: when the network changed."""

    async def scene() -> Errand:
        loop = asyncio.get_running_loop()
        errand, at = Errand(kept, [room for _, room in news]), loop.time()
        for move_s in moves:
            loop.call_at(at + move_s, errand.moved.set)
        end_s = at + lasts_s
        for gap_s, room in news:
            at += gap_s
            loop.call_at(at, errand.callers.directed, room.known)
        await errand.run(end_s)
        return errand

    return simulate(scene)


def most_in_a_minute(at: Sequence[float]) -> int:
    return max((sum(one <= other < one + MINUTE_S for other in at) for one in at), default=0)


def rooms(kinds: Iterable[str], rendezvous: Callable[[int], int] = lambda _: 1, first: int = 1) -> list[ScenedRoom]:
    return [ScenedRoom(rendezvous(number), number, kind) for number, kind in enumerate(kinds, first)]


KEPT = st.lists(st.sampled_from(KINDS), min_size=1, max_size=5).map(rooms)
NEWS = st.lists(st.tuples(st.sampled_from([0.0, 0.01, 0.5, 3.0, 20.0]), st.sampled_from(KINDS)), max_size=60)


@settings(max_examples=12, deadline=None)
@given(KEPT, NEWS, st.lists(st.floats(0, 150), max_size=10))
@example(rooms(["empty"]), [(0.5, "closed")] * 60, [])
@example(rooms(["closed"]), [], [0.5 * number for number in range(100)])
def test_entries_when_rooms_fail_and_news_come_in_any_order_then_a_minute_has_a_bounded_number(
    kept: list[ScenedRoom], said: list[tuple[float, str]], moves: list[float]
) -> None:
    named = rooms((kind for _, kind in said), first=100)
    news = list(zip((gap_s for gap_s, _ in said), named, strict=True))
    errand = played(kept, news, moves=moves, lasts_s=150.0)
    assert most_in_a_minute([at for at, _ in errand.entries]) <= MOST_A_MINUTE
    assert errand.entries


def test_entries_when_a_whole_household_comes_back_then_its_rendezvous_allows_twice_as_many() -> None:
    assert RendezvousLimits().joins_per_address_and_minute >= 2 * HOUSEHOLD * MOST_A_MINUTE


@pytest.mark.parametrize(
    ("kind", "different"), [(kind, n) for kind in KINDS for n in (2, 40) if (kind, n) != ("directs", 40)]
)
def test_room_when_it_is_named_after_useless_ones_without_end_then_it_is_entered_soon(
    kind: str, different: int
) -> None:
    """Those are always the same two, or each is another one. Hosts that all lie could name new ones for ever."""
    storm = [(3.0, room) for _ in range(40 // different) for room in rooms([kind] * different, first=100)]
    errand = played(rooms(["empty"]), [*storm, *[(3.0, ScenedRoom(1, 99, "useful"))] * 15])
    said_at, stays_s = 1000.0 + 3.0 * 41, COMPANY_S if kind in HELD_BY else LEAST_STAY_S
    assert [at for at in errand.entered("useful") if at <= said_at + stays_s + EVERY_S + DIAL_S]


def test_room_when_it_is_new_and_nothing_was_said_before_then_it_is_entered_at_once_where_this_one_had_its_time() -> (
    None
):
    errand = played(rooms(["empty"]), [(60.0, ScenedRoom(2, 99, "useful"))])
    assert errand.entered("useful") == [pytest.approx(1060.0, abs=0.01)]


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"empty", *HELD_BY}))
def test_kept_room_when_those_before_it_lead_nowhere_then_it_is_entered_in_the_first_round(kind: str) -> None:
    errand = played(rooms([kind] * 3 + ["useful"], rendezvous=lambda number: number))
    assert len(errand.entries) == 4
    assert errand.entries[-1][0] - errand.entries[0][0] <= 3 * 34.0


def test_kept_rooms_when_news_break_each_round_then_all_have_their_turn() -> None:
    storm = [(5.0, room) for room in rooms(["closed"] * 12, first=100)]
    errand = played(rooms(["empty", "empty", "empty", "useful"]), storm)
    assert errand.entered("useful")


def test_pauses_when_nobody_is_there_then_ever_longer_and_as_at_first_when_the_network_is_another() -> None:
    errand = played(rooms(["away"]), moves=[3000.0], lasts_s=3600.0)
    at = errand.entered("away")
    assert len([one for one in at if one < 1020.0]) >= 4
    assert max(later - one for one, later in pairwise(at)) <= 60.1
    assert most_in_a_minute([one for one in at if 1600.0 < one < 4000.0]) <= 3
    assert len([one for one in at if 4000.0 <= one < 4010.0]) >= 3


def test_pauses_when_a_stay_ends_as_soon_as_it_began_then_they_grow_all_the_same() -> None:
    errand = played(rooms(["breaks"]), lasts_s=1800.0)
    assert most_in_a_minute([one for one in errand.entered("breaks") if one > 1600.0]) <= 3


def test_host_when_it_names_the_room_where_both_are_then_who_comes_back_stays() -> None:
    errand = played(rooms(["to itself"]), lasts_s=60.0)
    assert len(errand.entries) == 1
