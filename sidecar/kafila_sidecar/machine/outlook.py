"""What one session expects of a loss: how it would go on without each member, said to people, and made ready for while
nothing else is done."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.lack import in_words
from kafila_sidecar.machine.watching import Changes
from kafila_sidecar.serving.stage import Stage
from kafila_sidecar.session.coordination.effects import Proposal
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.driving.changes import Change
from kafila_sidecar.session.driving.driver import SessionDriver
from kafila_sidecar.session.loss.aftermath import Aftermath, aftermath, planned
from kafila_sidecar.sharing.inventory import Inventory
from kafila_sidecar.sharing.session import SessionWeights
from kafila_sidecar.sharing.spares import Rest, Spares

log = logging.getLogger(__name__)

QUIET_S = 1.0
"""Without any work on this machine before it is thought about: planning takes a processor."""


class Outlook:
    """One session's, on one machine. Every member works it out by itself, from what all have told."""

    def __init__(
        self,
        *,
        driver: SessionDriver,
        stage: Stage,
        weights: SessionWeights,
        terms: Callable[[], PlanningTerms | None],
        spares: Spares,
        rest: Rest,
        changes: Changes,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._driver = driver
        self._stage = stage
        self._weights = weights
        self._terms = terms
        self._spares = spares
        self._rest = rest
        self._changes = changes
        self._quiet_s = quiet_s
        self._making_ready: asyncio.Task[None] | None = None
        self._inventory: Inventory | None = None
        self._aftermaths: dict[str, Aftermath] = {}
        self._seen: Any = None  # what they were worked out from

    async def run(self) -> None:
        """Until it is cancelled. A bug here ends no session."""
        try:
            with self._changes.watch() as watch:
                while True:
                    await self._look()
                    await watch.next()
        except Exception:
            log.exception("outlook_failed")
        finally:
            await self._stop_making_ready()

    def show(self, session: pb.Session) -> None:
        """Says for each member what would be if it were lost, as far as that is known."""
        for member in session.members:
            told = self._aftermaths.get(member.name)
            if told is None:
                continue
            member.if_lost, member.if_lost_missing_bytes = told.sentence, told.missing_bytes
            if told.wait_s is not None:
                member.if_lost_wait_s = told.wait_s

    # ---- Private

    async def _look(self) -> None:
        """Anew, when the plan or what anybody holds is other than before."""
        seen, proposal, terms = self._sight, self._driver.follower.proposal, self._terms()
        if seen == self._seen:
            return
        await self._stop_making_ready()
        self._seen = seen
        if seen is None or proposal is None or terms is None:
            self._say({})
            return
        await self._rest.until_quiet(self._quiet_s)
        await self._tell_holdings()
        self._say(await self._expected(proposal, terms))
        if self._sight == seen:
            self._making_ready = asyncio.create_task(self._make_ready(proposal), name="make ready for a loss")

    @property
    def _sight(self) -> Any:
        """All that it follows from; None while there is nothing to lose."""
        follower, knows = self._driver.follower, self._driver.knowledge
        if follower.state is not State.READY or follower.proposal is None or self._weights.checkpoint is None:
            return None
        return follower.proposal.epoch, follower.host, follower.members, dict(knows.capabilities)

    async def _expected(self, proposal: Proposal, terms: PlanningTerms) -> dict[str, Aftermath]:
        follower, knows = self._driver.follower, self._driver.knowledge
        members, host = follower.members, follower.host
        problems = {lost: aftermath(lost, proposal, terms, knows, members, host=host) for lost in members}
        found: dict[str, Aftermath] = {}
        for lost, one in problems.items():
            found[lost] = one if isinstance(one, Aftermath) else await asyncio.to_thread(planned, lost, one)
        return found

    def _say(self, aftermaths: dict[str, Aftermath]) -> None:
        if aftermaths != self._aftermaths:
            self._aftermaths = aftermaths
            self._changes.note(Change.PROGRESS)

    async def _tell_holdings(self) -> None:
        """Others hear it only if it is new."""
        inventory, part = self._known(), self._stage.part
        entry = await inventory.entry(self._weights.rates, in_memory=(part.start, part.end), memory_head=part.head)
        self._driver.tell(entry)

    async def _make_ready(self, proposal: Proposal) -> None:
        if self._is_next_head(proposal.head):
            await self._read_text()
        if not self._spares.is_off:
            with in_words():
                await self._fetch(proposal)

    async def _read_text(self) -> None:
        """Where it can't be had now, whoever becomes the head tries again; weights are needed all the same."""
        try:
            with in_words():
                await self._stage.read_text()
        except KafilaError as error:
            log.warning("text_not_ready_for_a_loss code=%s reason=%s", error.code, error)

    def _is_next_head(self, head: str) -> bool:
        """Whether this machine would be the head in place of that one."""
        me, then = self._driver.follower.name, self._aftermaths.get(head)
        return then is not None and then.plan is not None and then.plan.head == me

    async def _fetch(self, proposal: Proposal) -> None:
        wanted, own, everything = await asyncio.to_thread(self._lists, proposal)
        if await self._spares.fetch(wanted, own, everything):
            await self._tell_holdings()

    def _lists(self, proposal: Proposal) -> tuple[Sequence[frozenset[str]], frozenset[str], frozenset[str]]:
        """What is wanted here after any loss, block by block; what this machine's stage has; what there is."""
        inventory, me = self._known(), self._driver.follower.name
        wanted: dict[frozenset[str], None] = {}
        for lost, one in self._aftermaths.items():
            if lost != me and (then := one.part_of(me)) is not None:
                stage, is_head = then
                wanted |= dict.fromkeys(inventory.blocks[stage.start : stage.end])
                wanted |= dict.fromkeys([inventory.head] if is_head else [])
        mine = proposal.stage_of(me)
        own = list(inventory.blocks[mine.start : mine.end]) if mine else []
        own += [inventory.head] if proposal.head == me else []
        everything = frozenset().union(inventory.head, *inventory.blocks)
        return list(wanted), frozenset().union(*own), everything

    def _known(self) -> Inventory:
        checkpoint = self._weights.checkpoint
        assert checkpoint is not None  # a session that is ready has one
        if self._inventory is None:
            self._inventory = Inventory(checkpoint)
        return self._inventory

    async def _stop_making_ready(self) -> None:
        making, self._making_ready = self._making_ready, None
        if making is None:
            return
        making.cancel()
        await asyncio.wait([making])
        if not making.cancelled() and (error := making.exception()) is not None:
            log.warning("not_ready_for_a_loss", exc_info=error)
