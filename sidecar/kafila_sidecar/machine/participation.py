"""This machine in one session, from joining until it is closed; kept afterwards to say why it closed."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError, from_code
from kafila_sidecar.lack import as_typed
from kafila_sidecar.machine.watching import Changes
from kafila_sidecar.serving.stage import Stage
from kafila_sidecar.session import snapshot
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.coordination.edges import FormedLink
from kafila_sidecar.session.coordination.effects import Fault
from kafila_sidecar.session.coordination.states import Ending, State
from kafila_sidecar.session.driving.changes import Change
from kafila_sidecar.session.driving.driver import SessionDriver
from kafila_sidecar.session.membership.rivals import Forked, Orphaned
from kafila_sidecar.session.rendezvous.code import Code
from kafila_sidecar.sharing.session import SessionWeights

log = logging.getLogger(__name__)

END_DEADLINE_S = 10.0  # for the driver, once the channel has ended


class ShownBeside(Protocol):
    """Runs beside a session and adds to what people see of it; `outlook.Outlook`."""

    async def run(self) -> None: ...
    def show(self, session: pb.Session) -> None: ...


class Participation:
    """Runs channel and driver together, and shows the session. `taking_part` builds it."""

    def __init__(
        self,
        *,
        channel: Channel,
        weights: SessionWeights,
        stage: Stage,
        driver: SessionDriver,
        outlook: ShownBeside,
        changes: Changes,
        typed: str,
        note: str,
        spoken: Callable[[Code], str],
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`typed`: the code by which this machine joined, empty on the founder. `note`: a sentence on who can reach the
        rendezvous. `spoken`: a code as people pass it on here. `ended`: nothing of it runs on this machine any more."""
        self.id = channel.session.hex()
        self.channel = channel
        self.weights = weights
        self.stage = stage
        self.driver = driver
        self._outlook = outlook
        self._changes = changes
        self._typed = typed
        self._typed_for = self._what_codes_are_for
        self._note = note
        self._spoken = spoken
        self._has_ended = ended
        self._lasting = snapshot.Lasting(channel)

    # ---- Life

    async def run(self) -> None:
        """Until the session is closed; raises nothing but cancellation, since the snapshot says what went wrong, and
        the node has other sessions."""
        try:
            with self.weights.in_use():
                await self._run()
        except Exception as error:  # noqa: BLE001  # a bug ends this session only
            self._close_by(error)
        finally:
            self._has_ended()
        self._changes.note(Change.STATE)

    async def _run(self) -> None:
        running = asyncio.create_task(self.channel.run(), name=f"channel {self.id}")
        driving = asyncio.create_task(self.driver.run(), name=f"driver {self.id}")
        outlooking = asyncio.create_task(self._outlook.run(), name=f"outlook {self.id}")
        try:
            await asyncio.wait((running, driving), return_when=asyncio.FIRST_COMPLETED)
            self._close_by((running if running.done() else driving).exception())
            await asyncio.wait((driving,), timeout=END_DEADLINE_S)
            await self._end_channel()
        finally:
            running.cancel()
            driving.cancel()
            outlooking.cancel()
            await asyncio.wait((running, driving, outlooking))

    async def _end_channel(self) -> None:
        """Who comes back says no goodbye."""
        if self.driver.follower.ending is Ending.LOST:
            await self.channel.aclose()
        else:
            await self.channel.leave()

    def _close_by(self, error: BaseException | None) -> None:
        """Closes the session by what ended it, if that was no ordinary end of the driver."""
        if error is None:
            return
        code, sentence = KafilaError.code, f"a bug at {self.channel.self_name} ended the session, its log says more"
        if typed := as_typed(error):
            code, sentence = typed.code, str(typed)
        else:
            log.error("session_failed id=%s", self.id, exc_info=error)
        has_others = isinstance(error, Forked) and not isinstance(error, Orphaned)  # with another history
        ending = Ending.LOST if has_others else Ending.OVER
        self.driver.abort(Fault(self.channel.self_name, code, sentence), ending)

    @property
    def code(self) -> str:
        """By which newcomers join, where this machine admits them; else the one that was typed here."""
        return self._spoken(self.channel.code) if self.channel.code else self._typed

    @property
    def whole_code(self) -> str:
        """`code` with its address, where it goes without; else empty."""
        whole = str(self.channel.code or "")
        return whole if whole != self.code else ""

    @property
    def _what_codes_are_for(self) -> tuple[str, int]:
        """Whose they are, and for which room: a code dies with either. A host that comes back has the one it had."""
        return self.channel.host, self.channel.moves

    @property
    def _living_code(self) -> str:
        """As `code`, but none that is known to be dead."""
        is_alive = self.channel.has_room and self._typed_for == self._what_codes_are_for
        return self.code if self.channel.code or is_alive else ""

    @property
    def _living_note(self) -> str:
        """Of the rendezvous where the session is now."""
        return self._note if self.channel.note is None else self.channel.note

    @property
    def is_open(self) -> bool:
        return self.driver.follower.state is not State.CLOSED

    @property
    def ended(self) -> str:
        """Why it is closed, in words; empty while it is not."""
        follower = self.driver.follower
        if self.is_open:
            return ""
        return follower.fault.sentence if follower.fault else "this machine left it"

    @property
    def links(self) -> Mapping[str, FormedLink]:
        """Those of this machine that stand, by the member at the other end."""
        me, edges = self.channel.self_name, self.driver.roster.edges
        return {peer: edge for pair, edge in edges.items() if me in pair for peer in pair - {me}}

    async def kv_bytes(self) -> int:
        """See `Stage.kv_bytes`."""
        return await self.stage.kv_bytes()

    @property
    def promised_bytes(self) -> int:
        """What the plan reckons with here beyond the weights that are loaded: caches, and weights to come."""
        proposal = self.driver.follower.proposal
        stage = proposal.stage_of(self.channel.self_name) if proposal else None
        return max(0, stage.resident_bytes - self.stage.weight_bytes) if stage else 0

    @property
    def answers(self) -> bool:
        """Whether what is asked here gets to the head of the plan now."""
        follower, me = self.driver.follower, self.channel.self_name
        if follower.state is not State.READY or follower.proposal is None:
            return False
        return follower.proposal.head == me or self.driver.roster.is_linked(me, follower.proposal.head)

    def check_open(self) -> None:
        """Raises the fault that closed the session, as a KafilaError."""
        fault = self.driver.follower.fault
        if not self.is_open and fault is not None:
            raise from_code(fault.code, fault.sentence)

    # ---- For people

    @property
    def stub_model(self) -> pb.StubModel | None:
        """How the session's model is registered here; None while this machine does not know the checkpoint."""
        checkpoint = self.weights.checkpoint
        return None if checkpoint is None else self._lasting.stub_model(checkpoint)

    def snapshot(self) -> pb.Session:
        """The session as it is now."""
        session = snapshot.session_view(
            channel=self.channel,
            follower=self.driver.follower,
            roster=self.driver.roster,
            coordinator=self.driver.coordinator,
            checkpoint=self.weights.checkpoint,
            lasting=self._lasting,
        )
        session.code, session.rendezvous_note = self._living_code, self._living_note
        session.whole_code = self.whole_code
        session.better_plan, session.replanning = self.driver.better_plan, self.channel.replanning
        if self.driver.leaving.has_begun:
            session.doing = "leaving: answers run, and the others take over this machine's part first"
        session.active_sequences = max(self.stage.active_sequences, self.stage.answers_here)
        session.reserved_memory_bytes = self.stage.weight_bytes
        self._outlook.show(session)
        return session

    def told(self) -> pb.Session:
        """The session after a change that was made from here; those who watch hear of it."""
        self.driver.look()
        return self.snapshot()
