"""This machine's seat in one session: taken while it takes part, kept while it is away and comes back by itself."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError, TimedOut, Unavailable, from_code
from kafila_sidecar.lack import in_words
from kafila_sidecar.machine.participation import Participation
from kafila_sidecar.machine.watching import Changes, Shown, Snapshots
from kafila_sidecar.serving.intake.question import Question
from kafila_sidecar.session import snapshot
from kafila_sidecar.session.calling.calling import Calling
from kafila_sidecar.session.coordination.effects import Fault
from kafila_sidecar.session.coordination.states import Ending, State
from kafila_sidecar.session.driving.changes import Change
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.session.stay import CameBack, Outside, Told

log = logging.getLogger(__name__)

PATIENCE_S = 300.0  # so long a request waits for a session that comes back
GATHER_S = 30.0  # so long a host that came back waits for the others, before it goes on with those who are there
PROOF_S = 10.0  # for the log of those who went on to come too: whoever is with a host that gives way believes it alone
RETRY_S = 10.0  # before a model that could not be opened is opened again
TRIED_S = 3600.0  # a wrong clock is right by then: a session that was left alone for too long is given up

ComeBack = Callable[[Keeper, Told, asyncio.Event], Awaitable[CameBack]]
TakeLeave = Callable[[Keeper], Awaitable[None]]
TakePart = Callable[[CameBack, Keeper, Changes], Awaitable[Participation]]
"""Raises KafilaError while the model can't be opened."""


class Seat:
    """From joining, or from what was kept of it, until the session is over for this machine."""

    def __init__(
        self,
        *,
        keeper: Keeper,
        changes: Changes,
        calling: Calling,
        present: Participation | None,
        come_back: ComeBack,
        take_part: TakePart,
        take_leave: TakeLeave,
        spoken: Callable[[Code], str],
    ) -> None:
        """`present`: None where it is away at first. `spoken`: a code as people pass it on here."""
        self.id = keeper.kept.id
        self.keeper = keeper
        self.moved = asyncio.Event()  # something changed that may let this machine back in
        self._changes = changes
        self._calling = calling
        self._present = present
        self._come_back = come_back
        self._take_part = take_part
        self._take_leave = take_leave
        self._spoken = spoken
        self._snapshots = Snapshots(changes, self.snapshot)
        self._waits = "comes back"
        self._serves = present is not None  # not while it is on its way back
        self._is_over = False
        self._is_stopping = False
        self._is_leaving = False
        self._fault: Fault | None = None
        self._coming: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None  # where the others went on, while it hears too few of them
        self._goes_on: asyncio.TimerHandle | None = None  # with those who are there
        self._awaited: frozenset[str] = frozenset()  # who was in the session, but a host that others missed for long

    # ---- Life

    async def run(self) -> None:
        """Until the session is over here; raises nothing but cancellation."""
        while not self._is_over:
            if self._present is not None:
                await self._stay(self._present)
            else:
                await self._return()
        if not self._is_stopping:
            self.keeper.forget()
        self._changes.note(Change.STATE)

    def leave(self, *, at_once: bool = False) -> None:
        """For good; `run` ends soon, unless the others can't do without this machine: see `kept_back`."""
        self._is_leaving = True
        if self._present is not None and self._present.is_open:
            self._present.driver.leave(at_once=at_once)
        elif self._coming is not None:
            self._coming.cancel()

    @property
    def kept_back(self) -> str:
        """Why this machine did not leave, in a sentence; empty where it does, or was not asked to."""
        return self._present.driver.leaving.kept_back if self._present is not None and self.is_open else ""

    def stay(self) -> None:
        """It is not left after all."""
        self._is_leaving = False

    def stop(self) -> None:
        """This machine's service ends: it comes back with the next start."""
        self._is_stopping = True
        if self._present is not None and self._present.is_open:
            fault = Fault(self._present.channel.self_name, "UNAVAILABLE", "this machine's service was stopped")
            self._present.driver.abort(fault, Ending.LOST)
        elif self._coming is not None:
            self._coming.cancel()

    async def _stay(self, present: Participation) -> None:
        """Takes part until that ends, and says whether this machine is to come back."""
        if self._is_leaving:  # since before it was back
            self.leave()
        elif self._is_stopping:
            self.stop()
        settling = asyncio.create_task(self._settle(present), name=f"keep session {self.id}")
        settling.add_done_callback(partial(self._not_settled, present))
        try:
            await present.run()
        finally:
            settling.cancel()
            self._look_for_others(present, is_alone=False)
            self._not_gathering()
            await asyncio.wait([settling])
        is_lost = present.driver.follower.ending is Ending.LOST
        self._is_over = self._is_stopping or self._is_leaving or not is_lost
        self._serves = False
        if is_lost:
            self._present = None
        self._waits = "was lost to the others and comes back"

    async def _settle(self, present: Participation) -> None:
        """Notes what coming back needs once it is known, and when requests need not wait any more."""
        with self._changes.watch() as watch:
            while True:
                self._note(present)
                await watch.next()

    def _not_settled(self, present: Participation, settling: asyncio.Task[None]) -> None:
        """Nobody would say any more that requests need not wait: a bug there ends this session, in words."""
        error = None if settling.cancelled() else settling.exception()
        if error is not None:
            log.error("settling_failed id=%s", self.id, exc_info=error)
            sentence = "a bug ended this machine's part in this session, the log says more"
            present.driver.abort(Fault(self.keeper.kept.name, KafilaError.code, sentence), Ending.OVER)

    def _note(self, present: Participation) -> None:
        self.keeper.seen()
        self.keeper.rests(present.driver.rests_s)
        stub, proposal = present.stub_model, present.driver.follower.proposal
        if stub is not None:
            formed = proposal is not None or self.keeper.kept.formed
            self.keeper.note(stub_model=stub.SerializeToString(deterministic=True), formed=formed)
        if present.answers and not self._serves:
            self._serves = True
            self._changes.note(Change.STATE)
        if self._goes_on is not None and not self._awaits(present):
            self._go_on(present)
        self._look_for_others(present, is_alone=present.driver.stands_alone)

    def _look_for_others(self, present: Participation, *, is_alone: bool) -> None:
        if self._looking is not None and not is_alone:
            self._looking.cancel()
            self._looking = None
        elif self._looking is None and is_alone:
            self._looking = asyncio.create_task(self._give_way(present), name=f"look for the others of {self.id}")

    async def _give_way(self, present: Participation) -> None:
        await self._calling.until_gone_on()
        await asyncio.sleep(PROOF_S)
        if present.driver.stands_alone:
            sentence = "the others went on with another host"
            present.driver.abort(Fault(self.keeper.kept.name, "UNAVAILABLE", sentence), Ending.LOST)

    async def _return(self) -> None:
        """Comes back, or gives up: the host says that there is no way, this person leaves, or too long has passed."""
        self._coming = asyncio.create_task(self._until_back(), name=f"come back to {self.id}")
        giving_up = asyncio.get_running_loop().call_later(TRIED_S, self._give_up_if_old)
        self._changes.note(Change.STATE)
        try:
            await asyncio.wait([self._coming])
            self._note_bug(self._coming)
            self._is_over = self._coming.cancelled() or self._fault is not None
            if self._is_leaving:
                with contextlib.suppress(KafilaError):
                    await self._take_leave(self.keeper)
        finally:
            giving_up.cancel()
            self._coming.cancel()

    async def _until_back(self) -> None:
        while self._present is None:
            try:
                with in_words():
                    await self._sit_down_again()
            except Outside as error:
                self._fault = Fault(self.keeper.kept.name, error.code, str(error))
                return
            except KafilaError as error:  # the model, or this machine's own rendezvous, can't be had for now
                self._tell(f"can't come back yet: {error}")
                await asyncio.sleep(RETRY_S)

    async def _sit_down_again(self) -> None:
        before = self.keeper.kept.log
        host, members = before.host, frozenset(member.name for member in before.members)
        back = await self._come_back(self.keeper, self._tell, self.moved)
        try:
            self._present = await self._take_part(back, self.keeper, self._changes)
        except BaseException:
            await back.channel.aclose()
            raise
        self._awaited = members if host == self.keeper.kept.name else members - {host}
        if self.keeper.kept.formed and back.leads:
            self._go_on_soon(self._present)
        elif self.keeper.kept.formed:
            self._present.driver.tell_begun()

    def _note_bug(self, coming: asyncio.Task[None]) -> None:
        """It ends this session only."""
        error = None if coming.cancelled() else coming.exception()
        if error is not None:
            log.error("coming_back_failed id=%s", self.id, exc_info=error)
            sentence = "a bug ended coming back to this session, the log says more"
            self._fault = Fault(self.keeper.kept.name, KafilaError.code, sentence)

    def _go_on_soon(self, present: Participation) -> None:
        """Those who don't come back for so long are not waited for."""
        self._goes_on = asyncio.get_running_loop().call_later(GATHER_S, self._go_on, present)

    def _awaits(self, present: Participation) -> bool:
        """Whether anybody who was in the session, and has not left it since, has told nothing yet of what it can do."""
        coming = {*(member.name for member in present.channel.members), *present.channel.away}
        return bool(coming & self._awaited - present.driver.knowledge.capabilities.keys())

    def _go_on(self, present: Participation) -> None:
        self._not_gathering()
        if present.driver.follower.state is State.FORMING:
            present.driver.start()

    def _not_gathering(self) -> None:
        if self._goes_on is not None:
            self._goes_on.cancel()
            self._goes_on = None

    def _give_up_if_old(self) -> None:
        if self.keeper.is_too_old and self._coming is not None:
            log.info("kept_session_too_old id=%s", self.id)
            self._coming.cancel()

    def _tell(self, waits: str) -> None:
        if waits != self._waits:
            self._waits = waits
            self._changes.note(Change.STATE)

    # ---- What it is

    @property
    def is_open(self) -> bool:
        """Whether this machine is in the session, or may be again."""
        return not self._is_over and (self._is_away or self.taken.is_open)

    @property
    def ended(self) -> str:
        """Why this machine is in the session no more, in words; empty while it is."""
        if self.is_open:
            return ""
        if self._fault is not None:
            return self._fault.sentence
        return self._present.ended if self._present else ""

    @property
    def taken(self) -> Participation:
        """This machine's part in the session; raises Unavailable while it is away."""
        if self._is_away or self._present is None:
            raise Unavailable(f"this machine is not back in its session yet: {self._waits}")
        return self._present

    @property
    def part(self) -> Participation | None:
        """As `taken`; None while it is away."""
        return None if self._is_away else self._present

    @property
    def promised_bytes(self) -> int:
        return 0 if self._is_away or self._present is None else self._present.promised_bytes

    @property
    def code(self) -> str:
        """By which newcomers join, where this machine admits them; else the one that was typed here."""
        if not self._is_away and self._present is not None:
            return self._present.code
        kept = self.keeper.kept
        place = kept.places[0]
        return self._spoken(Code(place.mailbox.room, kept.words, place.address)) if kept.words else kept.typed

    @property
    def terms(self) -> ring_pb2.SessionTerms:
        return self.keeper.kept.log.terms

    def knows(self, code: Code) -> bool:
        """Whether this is the code by which newcomers join, as far as this machine knows."""
        short = self.code.partition("@")[0]
        return bool(short) and short == code.short

    def is_in_contact(self) -> bool:
        """It takes part, or waits for nothing but the others: its code means this session, and no other one."""
        return self._is_away or self.taken.channel.joining != "unreachable"

    def check_open(self) -> None:
        """Raises what closed the session, as a KafilaError."""
        if self._fault is not None:
            raise from_code(self._fault.code, self._fault.sentence)
        if self._present is not None and not self._is_away:
            self._present.check_open()

    @property
    def _is_away(self) -> bool:
        if self._present is None:
            return not self._is_over
        return not self._is_over and not self._present.is_open and self._present.driver.follower.ending is Ending.LOST

    # ---- For programs and people

    async def generate(self, request: pb.GenerateRequest) -> AsyncGenerator[pb.GenerateReply, None]:
        """One completion; it waits while this machine is on its way back, and goes on then. Raises KafilaError."""
        self.check_open()
        question = Question(request)
        while True:
            await self._until_it_serves()
            present = self.taken
            try:
                async with aclosing(present.stage.go_on(question)) as replies:
                    async for reply in replies:
                        yield reply
                return
            except KafilaError:
                if not self._comes_back_from(present):
                    raise
            question.interrupted()

    def _comes_back_from(self, present: Participation) -> bool:
        """Whether this machine was lost to the session, and is not for good."""
        was_lost = not present.is_open and present.driver.follower.ending is Ending.LOST
        return was_lost and not self._is_over and not self._is_stopping

    async def _until_it_serves(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                with self._changes.watch() as watch:
                    while not self._serves or self._is_away:
                        self.check_open()
                        self._check_comes_back()
                        await watch.next()
        except TimeoutError as error:
            raise TimedOut(f"this machine did not come back to the session in time: {self._waits}") from error

    def _check_comes_back(self) -> None:
        if self._is_over:
            why = "its service was stopped" if self._is_stopping else "it has left the session"
            raise Unavailable(f"this machine does not answer any more: {why}")

    def snapshot(self) -> pb.Session:
        """The session as it is now."""
        if self._present is not None and not self._is_away:
            session = self._present.snapshot()
        else:
            session = snapshot.sleeping_view(self.keeper.kept, code=self.code, waits=self._waits)
            if self._fault is not None:
                session.state, session.doing = State.CLOSED, "closed"
                session.failure, session.failure_code = self._fault.sentence, self._fault.code
            elif self._is_over:
                session.state, session.doing = State.CLOSED, "closed"
        return session

    async def watch(self) -> AsyncGenerator[Shown, None]:
        """The snapshot now and after each change, with what changed, until the session is closed.

        Raises:
            KafilaError: the fault that closed it.
        """
        async with aclosing(self._snapshots.watch()) as snapshots:
            async for shown in snapshots:
                yield shown
                if shown.session.state == State.CLOSED:
                    self.check_open()
                    return
