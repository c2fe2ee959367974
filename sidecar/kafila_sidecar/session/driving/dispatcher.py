"""What members say, as it moves the two cores: who may say what, and what follows."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput, KafilaError
from kafila_sidecar.net.candidates import Candidate
from kafila_sidecar.session.coordination import effects as ev
from kafila_sidecar.session.coordination import messages, speech
from kafila_sidecar.session.coordination.edges import FormedLink, planned_trips
from kafila_sidecar.session.coordination.follower import Follower
from kafila_sidecar.session.coordination.knowledge import Knowledge
from kafila_sidecar.session.coordination.leaving import Leaving
from kafila_sidecar.session.coordination.planning import check_proposal
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.driving.capability import Capabilities
from kafila_sidecar.session.driving.cores import Cores, Terms
from kafila_sidecar.session.driving.links import Links
from kafila_sidecar.session.driving.newest import Newest
from kafila_sidecar.session.driving.roster import Roster
from kafila_sidecar.session.driving.shares import Shares
from kafila_sidecar.session.driving.turns import Turns
from kafila_sidecar.session.hosting.coordinator import Coordinator
from kafila_sidecar.session.loss import repair

log = logging.getLogger(__name__)


class Dispatcher:
    """Takes what members say to the cores, in the driver's turns."""

    def __init__(
        self,
        *,
        cores: Cores,
        roster: Roster,
        links: Links,
        turns: Turns,
        told: Capabilities,
        terms: Terms,
        shares: Shares,
        leaving: Leaving,
        introduce: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        """`introduce` says where this member is, and what it measured; `told`: what this member told of itself."""
        self._cores = cores
        self._roster = roster
        self._links = links
        self._turns = turns
        self._told = told
        self._terms = terms
        self._shares = shares
        self._leaving = leaving
        self._introduce = introduce
        self._now = now
        self.newest = Newest()
        self._served_by: ev.Proposal | None = None  # the latest plan that stages were loaded for

    async def hear(self, sender: str, control: ring_pb2.Control, number: int) -> None:
        """`number` as in `MessageFrom`."""
        await self.spoke(sender)
        await self.understand(sender, control, number)

    async def spoke(self, sender: str) -> None:
        """Whatever another member says shows that it is there."""
        self._follower.heard(sender, self._now())
        if self._coordinator:
            await self._cores.obey(self._coordinator.heard(sender, self._now()))

    async def understand(self, sender: str, control: ring_pb2.Control, number: int = 0) -> None:
        """What a member says, this one included; what makes no sense is dropped, and what does not hold any more."""
        try:
            said = messages.read(sender, control)
        except InvalidInput as error:
            log.warning("control_dropped member=%s reason=%s", sender, error)
            return
        if not self.newest.is_old(sender, said, number):
            await self._heard(sender, said)

    async def _heard(self, sender: str, said: messages.Said) -> None:
        """What only the host may say is dropped from anybody else."""
        from_host = sender == self._follower.host
        match said:
            case messages.Measured(entry, device, memory_bytes, kafila):
                self._roster.measured_member(sender, device, memory_bytes, kafila)
                if self._coordinator:
                    await self._cores.obey(self._coordinator.measured(sender, entry, self._now()))
                elif sender in self._follower.members:
                    self._knows.measured(sender, entry)
            case messages.Reachable(candidates) if sender != self._follower.name:
                self._heard_candidates(sender, candidates)
            case messages.Linked(peer, edge):
                await self._heard_link(sender, peer, edge)
            case messages.Unlinked(peer):
                self._heard_no_link(sender, peer)
            case messages.Doing():
                await self._heard_doing(sender, said)
            case messages.Lendable(held) if sender != self._follower.name:
                self._shares.learn(sender, held)
            case messages.Drawing(sources):
                self._heard_draws(sender, sources)
            case messages.Asked(member) if member == self._follower.name:
                self._turns.say(speech.here())
            case messages.Lost(member):
                await self._heard_lost(sender, member)
            case messages.Misbehaved(fault):
                await self._heard_complaint(sender, fault)
            case messages.HasBegun() if from_host or sender == self._cores.founder:
                await self._heard_begun()
            case messages.MemberFailed(fault) if sender != self._follower.name:
                await self._gone(sender, self._follower.failed(fault, self._now()))
            case messages.WantsToLeave() if self._coordinator:
                await self._cores.obey(self._coordinator.leaves(sender))
            case messages.Needed(fault) if from_host and fault.member == self._follower.name:
                self._leaving.receive_refusal(fault.sentence)
            case messages.Goodbye() if sender != self._follower.name:
                await self._gone(sender, self._follower.left(sender, self._now()))
            case messages.Over(fault) if from_host:
                await self._cores.do(self._follower.close(fault))
            case messages.Aside(fault) if from_host:
                self._heard_aside(fault)
            case messages.Short(sentence) if from_host:
                await self._cores.do(self._follower.awaits_memory(sentence))
            case messages.Traced(trace) if self._follower.proposal and sender == self._follower.proposal.head:
                self._heard_trace(self._follower.proposal, trace)
            case messages.Working(busy) if self._follower.proposal and sender == self._follower.proposal.head:
                self._roster.busy = busy
            case messages.Planned() if from_host:
                await self._heard_plan(sender, said)
            case messages.MayFetch(epoch) if from_host:
                await self._cores.do(self._follower.may_fetch(epoch))
            case messages.MayServe(epoch) if from_host:
                self._roster.busy = None
                await self._cores.do(self._follower.may_serve(epoch))
                if self._follower.state is State.READY:
                    self._note_ready(self._follower.proposal)
                    self._tell_settled(self._served_by)

    def _heard_trace(self, proposal: ev.Proposal, trace: Mapping[str, Any]) -> None:
        """What this member's stage took is told to the planner, once it is another time than the plan reckons with."""
        self._roster.measured(trace)
        if self._coordinator:
            self._coordinator.adoption.active(self._now())
        if self._told.served(proposal, trace) and self._told.latest:
            self._turns.say(ring_pb2.Control(capability=self._told.latest))

    def _heard_candidates(self, sender: str, candidates: Sequence[Candidate]) -> None:
        """Who joined later listens by its first word at the latest; what was said before may not have reached it."""
        before = self._links.known(sender)
        if before is not None and list(before) != list(candidates):
            self._knows.mesh.moved(sender)
        self._links.learn(sender, candidates)
        in_order = [name for name in self._follower.members if name in (sender, self._follower.name)]
        if before is None and in_order == [self._follower.name, sender]:
            self._introduce()

    async def _heard_begun(self) -> None:
        self._knows.has_begun = True
        if self._coordinator:
            await self._cores.obey(self._coordinator.has_begun(self._now()))

    async def _heard_doing(self, sender: str, said: messages.Doing) -> None:
        self._roster.progressed(sender, said)
        if self._coordinator:
            progress = sender, said.epoch, said.doing, self._now(), said.waits_for
            await self._cores.obey(self._coordinator.progressed(*progress))
        elif said.doing == "ready":
            self._knows.loaded(sender, said.epoch)

    def _heard_aside(self, fault: ev.Fault) -> None:
        """Who is too small for one plan may not be for the next."""
        self._roster.put_aside(fault.member, fault.sentence)
        if not self._coordinator and fault.code != ev.TOO_SMALL:
            self._knows.aside[fault.member] = fault.sentence

    async def _heard_link(self, sender: str, peer: str, edge: FormedLink) -> None:
        self._roster.linked(sender, peer, edge)
        if peer == self._follower.name:
            self._links.other_ends.receive_up(sender)
        if self._coordinator:
            told = self._coordinator.linked(sender, peer, edge.path, edge.rtt_s, self._now(), edge.bytes_per_s)
            await self._cores.obey(told)
        elif {sender, peer} <= set(self._follower.members):
            self._knows.mesh.linked(sender, peer, edge.path, edge.rtt_s, edge.bytes_per_s)

    def _heard_no_link(self, sender: str, peer: str) -> None:
        self._roster.linked(sender, peer, None)
        if peer == self._follower.name:
            self._links.other_ends.receive_down(sender, self._now())
        if self._coordinator:
            self._coordinator.unlinked(sender, peer, self._now())
        elif {sender, peer} <= set(self._follower.members):
            self._knows.mesh.unlinked(sender, peer, broken=self._needs(sender, peer))

    def _needs(self, sender: str, peer: str) -> bool:
        """Whether the plan needs the link of these two."""
        proposal = self._follower.proposal
        return proposal is not None and frozenset((sender, peer)) in proposal.edges(self._follower.members)

    def _heard_draws(self, sender: str, sources: frozenset[str]) -> None:
        """Who takes weights and who gives them hold a link meanwhile."""
        me = self._follower.name
        mine = sources - {me} if sender == me else sources & {me} and {sender}
        self._links.also(sender, frozenset(mine))

    async def _heard_plan(self, sender: str, said: messages.Planned) -> None:
        terms = self._terms()
        if said.epoch <= self._cores.epoch or terms is None:
            return  # told again for a latecomer, which this is as long as it can't reckon with the model
        try:
            proposal = await check_proposal(
                said.epoch,
                said.problem_json,
                said.plan_json,
                own=self._told.entries,
                terms=terms,
                compute=sender != self._follower.name,
            )
        except KafilaError as error:
            await self._cores.failed_here(error.code, str(error))
            return
        self._say_what_moves(proposal)
        self._roster.planned()
        if not self._coordinator:
            self._knows.planned()
            self._knows.rest.learn(said.rests_s, self._now())
        self._knows.objective = proposal.problem.objective.value
        await self._cores.do(self._follower.proposed(proposal))

    def _note_ready(self, proposal: ev.Proposal | None) -> None:
        """It is said again for each latecomer."""
        if proposal is not None and proposal is not self._served_by:
            log.info("epoch_ready epoch=%d", proposal.epoch)
        self._served_by = proposal

    def _tell_settled(self, proposal: ev.Proposal | None) -> None:
        if proposal is not None:
            self._links.tell_settled(planned_trips(proposal.problem, self._follower.name))

    def _say_what_moves(self, proposal: ev.Proposal) -> None:
        self._roster.repair = repair.in_words(self._served_by, proposal, self._roster.gone)
        if self._roster.repair:
            log.info("plan_changed epoch=%d moves=%r", proposal.epoch, self._roster.repair)

    async def _heard_lost(self, sender: str, member: str) -> None:
        """One member's word alone removes nobody: the accused may show that it is there."""
        if member == self._follower.name:
            self._links.other_ends.receive_down(sender, self._now())
            self._turns.say(speech.here())
        elif self._coordinator and sender == self._follower.name and self._follower.liveness.is_beyond_doubt(member):
            await self._cores.obey(self._coordinator.lost(member, "lost", self._now()))
        elif self._coordinator:
            await self._cores.obey(self._coordinator.accused(member, sender, self._now()))
        elif {sender, member} <= set(self._follower.members):
            self._knows.mesh.unlinked(sender, member)

    async def _heard_complaint(self, sender: str, fault: ev.Fault) -> None:
        """A member's frames break the rules, says another one."""
        log.warning("frames_wrong member=%s by=%s reason=%s", fault.member, sender, fault.sentence)
        if self._coordinator:
            await self._cores.obey(self._coordinator.misbehaved(fault.member, sender, self._now()))

    async def _gone(self, sender: str, outputs: Sequence[ev.FollowerOutput]) -> None:
        """A member goes by its own word."""
        await self._cores.do(outputs)
        if self._coordinator:
            await self._cores.obey(self._coordinator.lost(sender, "left", self._now()))

    @property
    def _follower(self) -> Follower:
        return self._cores.follower

    @property
    def _coordinator(self) -> Coordinator | None:
        return self._cores.coordinator

    @property
    def _knows(self) -> Knowledge:
        """What this member keeps while another one decides."""
        return self._cores.knowledge
