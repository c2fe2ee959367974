"""This machine's seat in one session: away, back, left for good, or waited for by what is asked meanwhile."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError, Unavailable
from kafila_sidecar.machine import seat
from kafila_sidecar.machine.participation import Participation
from kafila_sidecar.machine.seat import Seat
from kafila_sidecar.machine.watching import Changes
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.serving.intake.question import Question
from kafila_sidecar.session.calling.calling import Calling
from kafila_sidecar.session.coordination.effects import Fault
from kafila_sidecar.session.coordination.knowledge import Knowledge
from kafila_sidecar.session.coordination.leaving import Leaving
from kafila_sidecar.session.coordination.states import Ending, State
from kafila_sidecar.session.driving.changes import Change
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.keeping.kept import KEPT_FOR_S
from kafila_sidecar.session.rendezvous.code import parse_code
from kafila_sidecar.session.stay import CameBack, Outside, Told
from tests.sidecar.session.keeping.test_keeping import kept


class PlayedPart:
    """A part in a session that ends as the test says."""

    def __init__(self, changes: Changes) -> None:
        self.changes = changes
        self.is_open, self.answers = True, False
        self.ending: Ending | None = None
        self.fault: Fault | None = None
        self.started = 0
        self.told_begun = 0
        self.asked: list[Question] = []
        self.stub_model: Any = None
        members = kept().log.members
        self.channel = SimpleNamespace(self_name="hal", joining="open", members=members, away=())
        self.knowledge = Knowledge()
        self.driver = self
        self.follower = self
        self.proposal = None
        self.stage = self
        self.code = "7-ocean-velvet-lamp"
        self.leaving = Leaving()
        self.answers_run = False
        self.stands_alone = False
        self.rests_s = 0.0
        self.state = State.FORMING
        self._ended = asyncio.Event()

    async def run(self) -> None:
        await self._ended.wait()

    def end(self, ending: Ending) -> None:
        self.is_open, self.ending = False, ending
        self._ended.set()

    def leave(self, *, at_once: bool = False) -> None:
        if self.answers_run and not at_once:
            self.leaving.begin(0.0)
        else:
            self.end(Ending.LEFT)

    def abort(self, fault: Fault, ending: Ending) -> None:
        self.fault = fault
        self.end(ending)

    def start(self) -> None:
        self.started += 1

    def tell_begun(self) -> None:
        self.told_begun += 1

    def serve(self) -> None:
        self.answers = True
        self.changes.note(Change.STATE)

    def check_open(self) -> None:
        return

    def snapshot(self) -> pb.Session:
        return pb.Session(state="ready" if self.is_open else "closed")

    async def go_on(self, question: Question) -> AsyncIterator[pb.GenerateReply]:
        """Says one word, and nothing more until this part is over."""
        self.asked.append(question)
        yield pb.GenerateReply(text=question.request.prompt)
        await self._ended.wait()
        raise Unavailable("this machine has no part in the session any more")


class Chair:
    """A seat with a way back that the test opens."""

    def __init__(self, folder: Path, *, present: bool, calling: Calling | None = None) -> None:
        self.changes = Changes()
        self.keeper = Keeper(folder / "one", kept())
        self.keeper.note()
        self.parts: list[PlayedPart] = []
        self.way: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.tried = 0
        self.closed = 0
        self.goodbyes = 0
        self.leads = False
        self.seat = Seat(
            keeper=self.keeper,
            changes=self.changes,
            calling=calling or Calling(self.keeper, to_nobody),
            present=self._part() if present else None,
            come_back=self._come_back,
            take_part=self._take_part,
            take_leave=self._take_leave,
            spoken=str,
        )
        self.running = asyncio.create_task(self.seat.run())

    @property
    def states(self) -> str:
        return self.seat.snapshot().state

    def _part(self) -> Participation:
        self.parts.append(PlayedPart(self.changes))
        return cast(Participation, self.parts[-1])

    async def _come_back(self, keeper: Keeper, told: Told, moved: asyncio.Event) -> CameBack:
        self.tried += 1
        told("waits for ada")
        if (error := await self.way.get()) is not None:
            raise error
        return CameBack(cast(Any, self), leads=self.leads)

    async def _take_part(self, back: CameBack, keeper: Keeper, changes: Changes) -> Participation:
        return self._part()

    async def _take_leave(self, keeper: Keeper) -> None:
        self.goodbyes += 1

    async def aclose(self) -> None:
        self.closed += 1


def to_nobody(datagrams: Sequence[bytes], target: Address) -> None:
    """Nobody is called."""


class AskedOthers(Calling):
    """The others answer when they are called."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Keeper(folder / "one", kept()), to_nobody)
        self.is_asked = False

    async def until_gone_on(self) -> None:
        self.is_asked = True
        try:
            await self.gone_on.wait()
        finally:
            self.is_asked = False


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def soon() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_seat_when_lost_then_asleep_until_it_is_back_and_requests_wait(tmp_path: Path) -> None:
    chair = Chair(tmp_path, present=True)
    await soon()
    chair.parts[0].end(Ending.LOST)
    await soon()
    shown = chair.seat.snapshot()
    assert (shown.state, shown.doing) == ("sleeping", "asleep: waits for ada")
    assert chair.seat.is_open
    with pytest.raises(Unavailable, match="waits for ada"):
        _ = chair.seat.taken
    asked = asyncio.create_task(first(chair.seat))
    chair.way.put_nowait(None)
    await soon()
    assert chair.states == "ready"
    assert (chair.parts[1].told_begun, chair.parts[1].started) == (1, 0)  # only a host starts by itself
    assert not asked.done()  # the ring does not answer yet
    chair.parts[1].serve()
    assert (await asyncio.wait_for(asked, 5)).text == "hello"
    chair.seat.leave()
    await asyncio.wait_for(chair.running, 5)
    assert left(tmp_path) == []


async def test_answer_when_this_machine_is_lost_then_the_same_question_goes_on_once_it_is_back(tmp_path: Path) -> None:
    chair = Chair(tmp_path, present=True)
    chair.parts[0].serve()
    async with aclosing(chair.seat.generate(pb.GenerateRequest(prompt="hello"))) as replies:
        await anext(replies)
        chair.parts[0].end(Ending.LOST)
        chair.way.put_nowait(None)
        await soon()
        chair.parts[1].serve()
        async with asyncio.timeout(5):
            await anext(replies)
        assert chair.parts[0].asked[0] is chair.parts[1].asked[0]
        chair.parts[1].end(Ending.OVER)
        with pytest.raises(Unavailable, match="no part"):
            await asyncio.wait_for(anext(replies), 5)
    await asyncio.wait_for(chair.running, 5)


async def first(seat: Seat) -> pb.GenerateReply:
    async with aclosing(seat.generate(pb.GenerateRequest(prompt="hello"))) as replies:
        async for reply in replies:
            return reply
    raise AssertionError


@pytest.mark.parametrize("ending", [Ending.LEFT, Ending.REMOVED, Ending.OVER])
async def test_seat_when_it_ended_for_good_then_nothing_is_kept(tmp_path: Path, ending: Ending) -> None:
    chair = Chair(tmp_path, present=True)
    await soon()
    chair.parts[0].end(ending)
    await asyncio.wait_for(chair.running, 5)
    assert (chair.states, chair.tried, left(tmp_path)) == ("closed", 0, [])


@pytest.mark.parametrize("formed", [True, False])
async def test_host_when_it_is_back_then_it_goes_on_as_soon_as_all_are_and_only_where_there_was_a_plan(
    tmp_path: Path, formed: bool
) -> None:
    """Two were in the session when it was there last; for how long one who stays away is awaited: tests/sim."""
    chair = Chair(tmp_path, present=False)
    chair.leads = True
    chair.keeper.note(formed=formed)
    chair.way.put_nowait(None)
    await soon()
    (part,) = chair.parts
    for name in ("new", "hal", "ada"):  # in this order they are heard
        assert part.started == 0
        part.knowledge.capabilities[name] = {}
        chair.changes.note(Change.STATE)
        await soon()
    chair.changes.note(Change.STATE)
    await soon()
    assert part.started == int(formed)
    part.end(Ending.LEFT)
    await asyncio.wait_for(chair.running, 5)


async def test_seat_when_left_while_it_sleeps_then_it_is_over_at_once(tmp_path: Path) -> None:
    chair = Chair(tmp_path, present=False)
    await soon()
    assert chair.states == "sleeping"
    chair.seat.leave()
    await asyncio.wait_for(chair.running, 5)
    assert (chair.states, chair.seat.is_open, left(tmp_path)) == ("closed", False, [])
    assert chair.goodbyes == 1


@pytest.mark.parametrize(("goes", "why"), [(Seat.leave, "has left the session"), (Seat.stop, "service was stopped")])
async def test_answer_when_the_machine_is_lost_and_does_not_come_back_then_it_ends_and_says_why(
    tmp_path: Path, goes: Callable[[Seat], None], why: str
) -> None:
    chair = Chair(tmp_path, present=True)
    chair.parts[0].serve()
    async with aclosing(chair.seat.generate(pb.GenerateRequest(prompt="hello"))) as replies:
        await anext(replies)
        waiting = asyncio.ensure_future(anext(replies))
        chair.parts[0].end(Ending.LOST)
        await soon()
        goes(chair.seat)
        with pytest.raises(Unavailable, match=why):
            await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(chair.running, 5)


async def test_seat_when_the_service_stops_while_it_sleeps_then_nobody_hears_a_goodbye(tmp_path: Path) -> None:
    chair = Chair(tmp_path, present=False)
    await soon()
    chair.seat.stop()
    await asyncio.wait_for(chair.running, 5)
    assert chair.goodbyes == 0


@pytest.mark.parametrize("present", [True, False])
async def test_seat_when_the_service_stops_then_what_is_kept_stays(tmp_path: Path, present: bool) -> None:
    chair = Chair(tmp_path, present=present)
    await soon()
    chair.seat.stop()
    await asyncio.wait_for(chair.running, 5)
    assert left(tmp_path / "one") == ["kept"]


async def test_seat_when_there_is_no_way_back_then_closed_in_the_hosts_words(tmp_path: Path) -> None:
    chair = Chair(tmp_path, present=False)
    chair.way.put_nowait(Outside("hal was removed: ask for its code"))
    await asyncio.wait_for(chair.running, 5)
    assert chair.seat.snapshot().failure == "hal was removed: ask for its code"
    with pytest.raises(KafilaError, match="ask for its code"):
        chair.seat.check_open()
    with pytest.raises(KafilaError, match="ask for its code"):
        await first(chair.seat)


async def test_seat_when_coming_back_has_a_bug_then_only_this_session_ends(tmp_path: Path) -> None:
    chair = Chair(tmp_path, present=False)
    chair.way.put_nowait(KeyError("x"))
    await asyncio.wait_for(chair.running, 5)
    assert "bug" in chair.seat.snapshot().failure


async def test_seat_when_what_keeps_it_has_a_bug_then_the_session_ends_in_words(tmp_path: Path) -> None:
    chair = Chair(tmp_path, present=True)
    chair.parts[0].stub_model = SimpleNamespace()
    asked = asyncio.create_task(first(chair.seat))
    await asyncio.wait_for(chair.running, 5)
    fault = chair.parts[0].fault
    assert fault is not None
    assert (fault.code, "bug" in fault.sentence) == (KafilaError.code, True)
    asked.cancel()


async def test_watch_when_a_session_sleeps_and_is_back_then_it_goes_on_until_it_is_over(tmp_path: Path) -> None:
    chair = Chair(tmp_path, present=True)
    states: list[str] = []

    async def watch() -> None:
        async with aclosing(chair.seat.watch()) as snapshots:
            async for shown in snapshots:
                states.append(shown.session.state)

    watching = asyncio.create_task(watch())
    await soon()
    chair.parts[0].end(Ending.LOST)
    await soon()
    chair.way.put_nowait(None)
    await soon()
    chair.parts[1].serve()
    await soon()
    chair.seat.leave()
    await asyncio.wait_for(watching, 5)
    assert list(dict.fromkeys(states)) == ["ready", "sleeping", "closed"]
    assert states[0] == states[-2] == "ready"
    await chair.running


async def test_seat_when_the_others_cant_do_without_it_then_it_is_kept_until_it_leaves_at_once(tmp_path: Path) -> None:
    chair = Chair(tmp_path, present=True)
    await soon()
    part = chair.parts[0]
    part.answers_run = True
    chair.seat.leave()
    assert chair.seat.kept_back == ""
    part.leaving.receive_refusal("2.0 GB too little")
    assert (chair.seat.kept_back, chair.seat.is_open) == ("2.0 GB too little", True)
    chair.seat.stay()
    chair.seat.leave(at_once=True)
    await chair.running
    assert (chair.seat.is_open, chair.seat.kept_back) == (False, "")


async def test_host_when_it_hears_too_few_then_it_asks_where_the_others_are_and_returns_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafila_sidecar.machine.seat.PROOF_S", 0.0)
    others = AskedOthers(tmp_path)
    chair = Chair(tmp_path, present=True, calling=others)
    (part,) = chair.parts
    await soon()
    assert not others.is_asked
    for alone in (True, False, True):
        part.stands_alone = alone
        chair.changes.note(Change.STATE)
        await soon()
        assert others.is_asked == alone
    others.gone_on.set()
    await soon()
    assert part.ending is Ending.LOST
    assert part.fault is not None
    assert "went on with another host" in part.fault.sentence
    assert chair.tried == 1
    assert not others.is_asked
    chair.seat.stop()
    await chair.running


@pytest.mark.parametrize(("away_s", "is_given_up"), [(KEPT_FOR_S - 60.0, False), (KEPT_FOR_S + 60.0, True)])
async def test_seat_when_it_was_away_for_seven_days_then_it_is_given_up_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away_s: float, is_given_up: bool
) -> None:
    monkeypatch.setattr(seat, "TRIED_S", 0.01)
    chair = Chair(tmp_path, present=False)
    chair.keeper.note(seen_at=time.time() - away_s)
    await asyncio.wait([chair.running], timeout=10.0 if is_given_up else 0.05)
    assert chair.running.done() == is_given_up
    assert left(tmp_path) == ([] if is_given_up else ["one"])
    chair.seat.stop()
    await chair.running


async def test_code_when_it_is_another_one_or_the_room_cant_be_reached_then_it_is_asked_for(tmp_path: Path) -> None:
    """A machine that is in a session on its own says nothing of a code that it does not know."""
    chair = Chair(tmp_path, present=True)
    known, other = parse_code("7-ocean-velvet-lamp"), parse_code("7-ocean-velvet-moon")
    assert (chair.seat.knows(known), chair.seat.knows(other)) == (True, False)
    assert chair.seat.is_in_contact()
    chair.parts[0].channel.joining = "unreachable"
    assert not chair.seat.is_in_contact()
    chair.seat.stop()
    await chair.running
