"""One member's two cores in a session, and what they ask for, carried out."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from kafila_planner import Refusal
from kafila_sidecar.errors import Refused
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.coordination import effects as ev
from kafila_sidecar.session.coordination import speech
from kafila_sidecar.session.coordination.follower import Follower
from kafila_sidecar.session.coordination.knowledge import Knowledge
from kafila_sidecar.session.coordination.messages import CHOOSING
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.coordination.states import Ending, State
from kafila_sidecar.session.driving.jobs import Jobs, StageDriver
from kafila_sidecar.session.driving.turns import Turns
from kafila_sidecar.session.hosting.coordinator import Coordinator

log = logging.getLogger(__name__)


Terms = Callable[[], PlanningTerms | None]
"""None as long as this member does not know the checkpoint."""


class WantsLinks(Protocol):
    """What makes the links; `links.Links`."""

    def want(self, peers: frozenset[str], *, epoch: int) -> None: ...
    def renew(self, peer: str) -> None: ...


class Cores:
    """The follower, which every member has, and the coordinator, which only the host has. To be used in turns."""

    def __init__(
        self,
        *,
        channel: Channel,
        links: WantsLinks,
        stage: StageDriver,
        jobs: Jobs,
        turns: Turns,
        terms: Terms,
        advise: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        """`advise` hears a sentence on a better plan, or nothing."""
        self._channel = channel
        self._links = links
        self._stage = stage
        self._jobs = jobs
        self._turns = turns
        self._terms = terms
        self._advise = advise
        self._now = now
        self.knowledge = Knowledge()
        self.follower = Follower(
            name=channel.self_name,
            host=channel.host,
            members=[member.name for member in channel.members],
            rendezvous_at=channel.keeper_of_room,
        )
        self.coordinator = self._make_coordinator() if channel.is_host else None

    @property
    def epoch(self) -> int:
        """Of the latest plan; 0 before there is one."""
        return self.follower.proposal.epoch if self.follower.proposal else 0

    @property
    def founder(self) -> str:
        """Whose start counts, whoever is the host when it comes."""
        return self._channel.founder

    async def host_changed(self) -> None:
        """This member decides from now on, if it is the successor. It can't if it does not know the checkpoint."""
        if not self._channel.is_host or self.coordinator is not None:
            return
        self.coordinator = self._make_coordinator()
        if self.coordinator is None:
            sentence = f"the host was lost before {self._channel.self_name} had heard what the model consists of"
            await self.failed_here("UNAVAILABLE", sentence)

    async def failed_here(self, code: str, sentence: str) -> None:
        """This member can't go on."""
        await self.do(self.follower.failed_here(code, sentence))

    async def failed_in(self, state: State, code: str, sentence: str) -> None:
        """This member fails at what it does in a state; told after that, it is of an epoch that is over."""
        if self.follower.state is state:
            await self.failed_here(code, sentence)

    async def do(self, outputs: Sequence[ev.FollowerOutput]) -> None:
        """What the follower asks for."""
        for output in outputs:
            match output:
                case ev.OpenLinks(epoch, peers):
                    self._links.want(peers, epoch=epoch)
                case ev.LoadShard(proposal):
                    self._load(proposal)
                case ev.Serve(proposal):
                    self._stage.serve(proposal)
                case ev.StopServing(fault):
                    await self._end_epoch(fault)
                case ev.Report(epoch, doing):
                    self._turns.say(speech.progress(epoch, doing))
                case ev.Accuse(epoch, fault, True):
                    self._links.renew(fault.member)
                    self._turns.say(speech.fault(fault, "lost", epoch))
                case ev.Complain(epoch, fault):
                    self._turns.say(speech.fault(fault, "misbehaves", epoch))
                case ev.Accuse(epoch, fault, False):
                    await self._channel.send(speech.fault(fault, "failed", epoch))  # there may be no further turn
                case ev.Ask(member):
                    self._turns.say(speech.ask(member))
                case ev.Vote(successor):
                    self._links.renew(self.follower.host)
                    self._channel.vote(successor)
                case ev.Closed(fault):
                    self._channel.end_admission()
                    log.info("session_closed code=%s", fault.code if fault else "")

    async def obey(self, outputs: Sequence[ev.CoordinatorOutput]) -> None:
        """What the coordinator asks for."""
        for output in outputs:
            match output:
                case ev.ComputePlan(epoch, problem):
                    await self.do(self.follower.everybody_came())
                    self._advise("")
                    self._jobs.plan(epoch, problem, partial(self._planned, epoch))
                case ev.Propose(proposal, problem):
                    self._turns.say(speech.plan(proposal, problem, self.knowledge.rest.left_s(self._now())))
                case ev.TellChoosing(epoch):
                    self._turns.say(speech.progress(epoch, CHOOSING))
                case ev.LetFetch(epoch):
                    self._turns.say(speech.may_fetch(epoch))
                case ev.LetServe(epoch):
                    self._turns.say(speech.may_serve(epoch))
                case ev.Remove(member, reason):
                    await self._remove(member, reason)
                case ev.SetAside(fault):
                    self._turns.say(speech.fault(fault, "aside"))
                case ev.AwaitMemory(fault):
                    self._turns.say(speech.fault(fault, "short"))
                case ev.TellBegun():
                    self._turns.say(speech.begun())
                case ev.Ask(member):
                    self._turns.say(speech.ask(member))
                case ev.LookForBetter(proposal, problem):
                    self._jobs.look_for_better(proposal, problem, partial(self._found_better, proposal.epoch))
                case ev.LookWithout(member, problem):
                    self._jobs.plan(self.epoch, problem, partial(self._planned_without, member))
                case ev.KeepBack(fault):
                    self._turns.say(speech.fault(fault, "needed"))
                case ev.StandStill(fault):
                    self._channel.stand_still(True)
                    await self.do(self.follower.stand_still(fault, self._now()))
                case ev.GoOn():
                    self._channel.stand_still(False)
                case ev.GiveWay(fault):
                    await self.do(self.follower.close(fault, Ending.LOST))
                case ev.StepDown(fault):
                    await self.failed_here(fault.code, fault.sentence)
                case ev.Dissolve(fault):
                    self._turns.say(speech.fault(fault, "over"))

    # ---- Private

    def _make_coordinator(self) -> Coordinator | None:
        terms = self._terms()
        if terms is None:
            return None
        return Coordinator(
            name=self._channel.self_name,
            terms=terms,
            takeovers=self._channel.takeovers,
            started=self.follower.state is not State.FORMING,
            knowledge=self.knowledge,
            replanning=self._channel.replanning,
            away=self._channel.away,
        )

    async def _planned(self, epoch: int, made: ev.Proposal | Refusal) -> None:
        if self.coordinator:
            await self.obey(self.coordinator.planned(epoch, made, self._now()))

    async def _planned_without(self, member: str, made: ev.Proposal | Refusal) -> None:
        if self.coordinator:
            refusal = made if isinstance(made, Refusal) else None
            await self.obey(self.coordinator.planned_without(member, refusal, self._now()))

    async def _found_better(self, epoch: int, gain: float, sentence: str) -> None:
        if self.coordinator:
            self.coordinator.found_better(epoch, gain)
            self._advise(sentence)

    def _load(self, proposal: ev.Proposal) -> None:
        self._jobs.load(
            proposal,
            said=lambda *done: self._turns.say(speech.progress(proposal.epoch, *done)),
            done=lambda: self.do(self.follower.shard_loaded(proposal.epoch)),
            failed=lambda code, sentence: self.failed_in(State.FETCHING, code, sentence),
        )

    async def _end_epoch(self, fault: ev.Fault) -> None:
        """One teardown ends before the next set-up starts."""
        await self._jobs.stop_loading()
        await self._stage.stop(fault)

    async def _remove(self, member: str, reason: str) -> None:
        if all(one.name != member for one in self._channel.members):
            return
        try:
            self._channel.remove(member, reason)
        except Refused as error:  # the log is full
            await self.failed_here(error.code, str(error))
