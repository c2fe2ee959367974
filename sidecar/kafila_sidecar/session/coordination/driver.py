"""This machine's seat in one session: drives the two cores, and does what they ask for.

Everything that happens (news of the channel, a link that came up, a shard that is loaded, time) enters through one
queue and is handled one at a time, so the cores never see two things at once.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from kafila_planner import Refusal
from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput, KafilaError, Refused
from kafila_sidecar.net import candidates as reach
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.session.channel import events
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.coordination import effects as ev
from kafila_sidecar.session.coordination import messages, speech
from kafila_sidecar.session.coordination.capability import Capabilities
from kafila_sidecar.session.coordination.coordinator import Coordinator, PlanningTerms
from kafila_sidecar.session.coordination.correction import Advice
from kafila_sidecar.session.coordination.edges import FormedLink
from kafila_sidecar.session.coordination.follower import Follower
from kafila_sidecar.session.coordination.jobs import Jobs, Measure, StageDriver
from kafila_sidecar.session.coordination.links import LinkMaker, Links
from kafila_sidecar.session.coordination.planning import check_proposal
from kafila_sidecar.session.coordination.roster import Roster
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.coordination.turns import Call, Item, LinkChanged, Turns

log = logging.getLogger(__name__)


class SessionDriver:
    """One member's part in one session, from joining to leaving."""

    def __init__(
        self,
        *,
        channel: Channel,
        network: LinkMaker,
        stage: StageDriver,
        terms: PlanningTerms,
        measure: Measure,
        changed: Callable[[], None],
    ) -> None:
        self.channel = channel
        self.roster = Roster(member.name for member in channel.members)
        self.follower = Follower(
            name=channel.self_name, admitter=channel.host, members=[member.name for member in channel.members]
        )
        self.links: Links | None = None
        self._network = network
        self._stage = stage
        self._terms = terms
        self._measure = measure
        self._changed = changed
        self._turns = Turns()
        self._told = Capabilities()
        self.advice = Advice()
        self._loop = asyncio.get_running_loop()
        self.coordinator = self._make_coordinator() if channel.is_admitter else None

    # ---- From outside

    async def run(self) -> None:
        """Until the session is closed. Cancelling leaves it."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self.links = Links(network=self._network, told=self._turns.link_changed, tasks=self._tasks)
                self._jobs = Jobs(self._stage, self._tasks, self._turns.soon)
                self._jobs.measure(self._measure, self._measured_here, self._not_measured)
                listening = self._tasks.create_task(self._turns.bring(self.channel.events()))
                self._introduce()
                while self.follower.state is not State.CLOSED:
                    await self._turn()
                listening.cancel()
                self._jobs.stop_measuring()
                await self.links.close()
        finally:
            await self._stage.stop(self.follower.fault or ev.Fault("", "UNAVAILABLE", "the session was left"))

    def start(self) -> None:
        """Go on with those who are present; admitter only."""
        self._turns.soon(self._start)

    def leave(self) -> None:
        """Closes the session here; whoever runs the seat says goodbye on the channel afterwards."""
        self._turns.soon(lambda: self._do(self.follower.close(None)))

    def broken(self, code: str, sentence: str) -> None:
        """This member's stage failed while serving."""
        self._turns.soon(lambda: self._failed_in(State.READY, code, sentence))

    def moved(self) -> None:
        """This member's candidates are others than before, and perhaps its network."""
        self._say_now(self._candidates())
        if self._told.latest:
            self._jobs.look(self._network.entry, self._looked)

    def tell(self, control: ring_pb2.Control) -> None:
        """Sends something to everybody, from outside the seat's own turn."""
        self._turns.soon(lambda: self._say(control))

    # ---- The loop

    async def _turn(self) -> None:
        timers = [self.follower.next_timer(self._now), self.coordinator.next_timer() if self.coordinator else None]
        until = min((timer for timer in timers if timer is not None), default=self._now + 1.0)
        await self._handle(await self._turns.next(until))
        await self._on_timer()
        self._changed()

    async def _on_timer(self) -> None:
        links = self.links.up if self.links else {}
        await self._do(self.follower.handle_timer(self._now, {peer: link.silent_s() for peer, link in links.items()}))
        if self.coordinator:
            await self._obey(self.coordinator.handle_timer(self._now))

    async def _handle(self, item: Item | None) -> None:
        match item:
            case events.MessageFrom(sender, control):
                await self._message(sender, control)
            case events.MemberJoined():
                self._introduce()
                await self._members_changed()
            case events.MemberRemoved(_, reason):
                await self._members_changed(anew=reason == "removed")
            case events.HostChanged():
                await self._host_changed()
            case events.Doubted(sender) if self.coordinator:
                await self._obey(self.coordinator.doubted(sender, self._now))
            case events.MemberDeparted(name):
                self.follower.departed(name, self._now)
            case events.MemberReturned(name):
                self.follower.returned(name)
            case events.RendezvousLost() if self.channel.terms.rendezvous_at_host:
                self.follower.departed(self.channel.founder, self._now)
            case events.RendezvousBack():
                self.follower.returned(self.channel.founder)
            case LinkChanged():
                await self._link_changed(item.peer, item.link, item.error)
            case Call(run):
                await run()

    # ---- What others say

    async def _message(self, sender: str, control: ring_pb2.Control) -> None:
        """Whatever a member says shows that it is there; what makes no sense is dropped."""
        self.follower.heard(sender, self._now)
        if self.coordinator:
            await self._obey(self.coordinator.heard(sender, self._now))
        await self._understand(sender, control)

    async def _understand(self, sender: str, control: ring_pb2.Control) -> None:
        try:
            said = messages.read(sender, control)
        except InvalidInput as error:
            log.warning("control_dropped member=%s reason=%s", sender, error)
            return
        await self._heard(sender, said)

    async def _heard(self, sender: str, said: messages.Said) -> None:
        """What only the admitter may say is dropped from anybody else."""
        from_admitter = sender == self.follower.admitter
        match said:
            case messages.Measured(entry, device, memory_bytes):
                self.roster.measured_member(sender, device, memory_bytes)
                if self.coordinator:
                    await self._obey(self.coordinator.measured(sender, entry, self._now))
            case messages.Reachable(candidates) if sender != self.follower.name and self.links:
                self.links.learn(sender, candidates)
            case messages.Linked(peer, edge):
                await self._heard_link(sender, peer, edge)
            case messages.Unlinked(peer):
                self.roster.linked(sender, peer, None)
                if self.coordinator:
                    self.coordinator.unlinked(sender, peer)
            case messages.Doing(epoch, doing, fetched_bytes, total_bytes):
                self.roster.progressed(sender, doing, fetched_bytes, total_bytes)
                if self.coordinator:
                    await self._obey(self.coordinator.progressed(sender, epoch, doing, self._now))
            case messages.Asked(member) if member == self.follower.name:
                self._say_now(ring_pb2.Control())
            case messages.Lost(member):
                await self._heard_lost(sender, member)
            case messages.MemberFailed(fault) if sender != self.follower.name:
                await self._gone(sender, self.follower.failed(fault, self._now))
            case messages.Goodbye() if sender != self.follower.name:
                await self._gone(sender, self.follower.left(sender, self._now))
            case messages.Over(fault) if from_admitter:
                await self._do(self.follower.close(fault))
            case messages.Traced(trace) if self.follower.proposal and sender == self.follower.proposal.head:
                self.roster.measured(trace)
                if self.coordinator:
                    self._tasks.create_task(self.advice.take(self.follower.proposal, trace), name="correct")
            case messages.Planned() if from_admitter:
                await self._heard_plan(sender, said)
            case messages.MayFetch(epoch) if from_admitter:
                await self._do(self.follower.may_fetch(epoch))
            case messages.MayServe(epoch) if from_admitter:
                await self._do(self.follower.may_serve(epoch))

    async def _heard_link(self, sender: str, peer: str, edge: FormedLink) -> None:
        self.roster.linked(sender, peer, edge)
        if self.coordinator:
            await self._obey(self.coordinator.linked(sender, peer, edge.path, edge.rtt_s, self._now))

    async def _heard_plan(self, sender: str, said: messages.Planned) -> None:
        if said.epoch <= self._epoch:
            return  # told again for a latecomer
        try:
            proposal = await check_proposal(
                said.epoch,
                said.problem_json,
                said.plan_json,
                own=self._told.entries,
                terms=self._terms,
                compute=sender != self.follower.name,
            )
        except KafilaError as error:
            await self._do(self.follower.failed_here(error.code, str(error)))
            return
        await self._do(self.follower.proposed(proposal))

    async def _heard_lost(self, sender: str, member: str) -> None:
        """One member's word alone removes nobody: the accused may show that it is there."""
        if member == self.follower.name:
            self._say_now(ring_pb2.Control())
        elif self.coordinator and sender == self.follower.name:
            await self._obey(self.coordinator.lost(member, "lost"))
        elif self.coordinator:
            self.coordinator.accused(member, sender, self._now)

    async def _gone(self, sender: str, outputs: Sequence[ev.FollowerOutput]) -> None:
        """A member goes by its own word."""
        await self._do(outputs)
        if self.coordinator:
            await self._obey(self.coordinator.lost(sender, "left"))

    async def _members_changed(self, *, anew: bool = False) -> None:
        members = [member.name for member in self.channel.members]
        self.roster.members(members)
        if self.links:
            self.links.forget(members)
        await self._do(self.follower.members_changed(members, self.channel.host, self._now))
        if self.coordinator:
            await self._obey(self.coordinator.members_changed(members, self._now, anew=anew))

    async def _host_changed(self) -> None:
        """Everybody tells the successor what it needs; it starts to decide when it is this member."""
        if self.channel.is_admitter and self.coordinator is None:
            self.coordinator = self._make_coordinator()
        self._introduce()
        for peer, link in (self.links.up if self.links else {}).items():
            self._say_now(speech.link(self._epoch, peer, link))
        await self._members_changed()

    def _make_coordinator(self) -> Coordinator:
        return Coordinator(
            name=self.channel.self_name,
            terms=self._terms,
            takeovers=self.channel.takeovers,
            started=self.follower.state is not State.FORMING,
        )

    async def _link_changed(self, peer: str, link: Link | None, error: KafilaError | None) -> None:
        if error is None:
            self._say_now(speech.link(self._epoch, peer, link))
        elif not self.follower.is_gone(peer):
            await self._do(self.follower.failed_here(error.code, f"{self.follower.name} can't reach {peer}: {error}"))

    # ---- What the cores ask for

    async def _do(self, outputs: Sequence[ev.FollowerOutput]) -> None:
        for output in outputs:
            match output:
                case ev.OpenLinks(_, peers) if self.links:
                    self.links.want(peers)
                case ev.LoadShard(proposal):
                    self._load(proposal)
                case ev.Serve(proposal):
                    self._stage.serve(proposal)
                case ev.StopServing(fault):
                    await self._end_epoch(fault)
                case ev.Report(epoch, doing):
                    self._say_now(speech.progress(epoch, doing))
                case ev.Accuse(epoch, fault, True):
                    self._say_now(speech.fault(fault, "lost", epoch))
                case ev.Accuse(epoch, fault, False):
                    await self.channel.send(speech.fault(fault, "failed", epoch))  # there may be no further turn
                case ev.Ask(member):
                    self._say_now(ring_pb2.Control(ask=ring_pb2.Ask(member=member)))
                case ev.Vote(successor):
                    self.channel.vote(successor)
                case ev.Closed(fault):
                    log.info("session_closed code=%s", fault.code if fault else "")

    async def _obey(self, outputs: Sequence[ev.AuthorityOutput]) -> None:
        for output in outputs:
            match output:
                case ev.ComputePlan(epoch, problem):
                    await self._do(self.follower.everybody_came())
                    self._jobs.plan(epoch, problem, partial(self._planned, epoch))
                case ev.Propose(proposal, problem):
                    self._say_now(speech.plan(proposal, problem))
                case ev.LetFetch(epoch):
                    self._say_now(speech.may_fetch(epoch))
                case ev.LetServe(epoch):
                    self._say_now(speech.may_serve(epoch))
                case ev.Remove(member, reason) if self._is_member(member):
                    await self._remove(member, reason)
                case ev.Dissolve(fault):
                    self._say_now(speech.fault(fault, "over"))

    async def _remove(self, member: str, reason: str) -> None:
        try:
            if reason == "removed":
                self.channel.kick(member)
            else:
                self.channel.remove(member, reason)
        except Refused as error:  # the log is full
            await self._failed_here(error.code, str(error))

    async def _planned(self, epoch: int, made: ev.Proposal | Refusal) -> None:
        if self.coordinator:
            await self._obey(self.coordinator.planned(epoch, made, self._now))

    def _load(self, proposal: ev.Proposal) -> None:
        self._jobs.load(
            proposal,
            said=lambda *done: self._say_now(speech.progress(proposal.epoch, *done)),
            done=lambda: self._do(self.follower.shard_loaded(proposal.epoch)),
            failed=lambda code, sentence: self._failed_in(State.FETCHING, code, sentence),
        )

    async def _failed_in(self, state: State, code: str, sentence: str) -> None:
        """This member fails at what it does in a state; told after that, it is of an epoch that is over."""
        if self.follower.state is state:
            await self._failed_here(code, sentence)

    async def _failed_here(self, code: str, sentence: str) -> None:
        await self._do(self.follower.failed_here(code, sentence))

    def _is_member(self, name: str) -> bool:
        return any(member.name == name for member in self.channel.members)

    async def _end_epoch(self, fault: ev.Fault) -> None:
        """One teardown ends before the next set-up starts."""
        await self._jobs.stop_loading()
        await self._stage.stop(fault)

    # ---- What happens here

    async def _measured_here(self, entry: ev.Json, device: str) -> None:
        self._told.measured({**entry, "name": self.follower.name}, device)
        self._say_now(ring_pb2.Control(capability=self._told.latest))

    async def _looked(self, network: ev.Json) -> None:
        """The next plan reckons with it; this one's links find their way by themselves."""
        if self._told.moved(network):
            self._say_now(ring_pb2.Control(capability=self._told.latest))

    async def _not_measured(self, code: str, sentence: str) -> None:
        await self._failed_here(code, f"{self.follower.name} could not be measured: {sentence}")

    def _introduce(self) -> None:
        """Where this member is, and what it measured, for those who don't know yet."""
        self._say_now(self._candidates())
        if self._told.latest:
            self._say_now(ring_pb2.Control(capability=self._told.latest))

    def _candidates(self) -> ring_pb2.Control:
        return ring_pb2.Control(candidates=reach.to_proto(self._network.candidates()))

    async def _start(self) -> None:
        if self.coordinator:
            await self._obey(self.coordinator.start(self._now))

    def _say_now(self, control: ring_pb2.Control) -> None:
        """To everybody, this member included, which hears it in a turn of its own."""
        self._turns.soon(lambda: self._say(control))

    async def _say(self, control: ring_pb2.Control) -> None:
        await self.channel.send(control)
        await self._understand(self.follower.name, control)

    @property
    def _epoch(self) -> int:
        return self.follower.proposal.epoch if self.follower.proposal else 0

    @property
    def _now(self) -> float:
        return self._loop.time()
