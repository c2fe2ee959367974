"""One member's part in one session: feeds the two cores whatever happens, one thing at a time.

What happens (events of the channel, a link that came up, a shard that is loaded, time) enters through `turns`, so the
cores never see two things at once.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from kafila_planner.correction import Slowness
from kafila_proto import ring_pb2
from kafila_sidecar.errors import KafilaError, Refused
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.session.channel import events
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.coordination import effects as ev
from kafila_sidecar.session.coordination import speech
from kafila_sidecar.session.coordination.edges import predicted_path
from kafila_sidecar.session.coordination.follower import Follower
from kafila_sidecar.session.coordination.knowledge import Knowledge
from kafila_sidecar.session.coordination.leaving import Leaving
from kafila_sidecar.session.coordination.planning import Packings
from kafila_sidecar.session.coordination.states import Ending, State
from kafila_sidecar.session.driving.capability import Capabilities
from kafila_sidecar.session.driving.changes import Change, Glance
from kafila_sidecar.session.driving.clock import DriverClock, outer_clock
from kafila_sidecar.session.driving.cores import Cores, Terms
from kafila_sidecar.session.driving.dispatcher import Dispatcher
from kafila_sidecar.session.driving.jobs import Jobs, Measure, StageDriver
from kafila_sidecar.session.driving.links import LinkMaker, Links, StandingLinks
from kafila_sidecar.session.driving.roster import Roster
from kafila_sidecar.session.driving.shares import Shares
from kafila_sidecar.session.driving.turns import (
    Call,
    Item,
    LinkChanged,
    NetworkMoved,
    Say,
    StageBroke,
    StageMisled,
    Turns,
)
from kafila_sidecar.session.hosting.coordinator import Coordinator
from kafila_sidecar.session.membership.members import Replanning
from kafila_sidecar.session.rendezvous.attendance import RendezvousBack, RendezvousLost, RoomGone

log = logging.getLogger(__name__)


class SessionDriver:
    """From joining to leaving. `changed` hears what people would see otherwise than before."""

    def __init__(
        self,
        *,
        channel: Channel,
        network: LinkMaker,
        standing: StandingLinks,
        stage: StageDriver,
        turns: Turns,
        terms: Terms,
        shares: Shares,
        measure: Measure,
        slowed: Callable[[Slowness], None] = lambda _: None,
        packings: Packings,
        changed: Callable[[Change], None],
        kafila: str = "",
        outer: Callable[[], float] = outer_clock,
    ) -> None:
        """`kafila`: this package's version, for people. `outer`: seconds of a clock that goes on while the machine
        sleeps."""
        self.channel = channel
        self.roster = Roster(member.name for member in channel.members)
        self._better_plan = ""  # a sentence on it
        self.leaving = Leaving()
        self._network = network
        self._standing = standing
        self._stage = stage
        self._turns = turns
        self._measure = measure
        self._shares = shares
        self._changed = changed
        self._told = Capabilities(slowed, kafila=kafila)
        self._clock = DriverClock(outer)
        self._tasks = asyncio.TaskGroup()
        self._jobs = Jobs(stage, packings, self._tasks, turns.soon)
        self._links = Links(network=network, standing=standing, told=turns.link_changed, tasks=self._tasks)
        self._cores = Cores(
            channel=channel,
            links=self._links,
            stage=stage,
            jobs=self._jobs,
            turns=turns,
            terms=terms,
            advise=self._advised,
            now=self._clock.now,
        )
        self._dispatcher = Dispatcher(
            cores=self._cores,
            roster=self.roster,
            links=self._links,
            turns=turns,
            told=self._told,
            terms=terms,
            shares=shares,
            leaving=self.leaving,
            introduce=self._introduce,
            now=self._clock.now,
        )
        self.knowledge.rest.learn(channel.keeper.rests_s, self._clock.now())
        self._drains: asyncio.Task[None] | None = None
        self._without_rendezvous = False
        self._departed: set[str] = set()  # whom the rendezvous misses
        self._shunned: dict[str, int] = {}  # who broke the ring's rules, and in which epoch
        self._shown = self._glance()

    @property
    def follower(self) -> Follower:
        return self._cores.follower

    @property
    def knowledge(self) -> Knowledge:
        """What this member keeps of what it heard."""
        return self._cores.knowledge

    @property
    def coordinator(self) -> Coordinator | None:
        """Only the host's."""
        return self._cores.coordinator

    @property
    def stands_alone(self) -> bool:
        """This member is a host that hears too few of the others."""
        return self.coordinator is not None and self.coordinator.is_alone

    @property
    def rests_s(self) -> float:
        """For how long no better plan is taken, by what is known here."""
        return self.knowledge.rest.left_s(self._clock.now())

    @property
    def better_plan(self) -> str:
        """On the host, a sentence on a plan that is better than the present one, unless nobody wants to hear of it."""
        return self._better_plan if self.coordinator and self.coordinator.adoption.tells else ""

    # ---- From outside

    async def run(self) -> None:
        """Until the session is closed. Cancelling leaves it."""
        try:
            async with self._tasks:
                self._network.start(self._turns.network_moved)
                self._jobs.measure(self._measure, self._measured_here, self._not_measured)
                listening = self._tasks.create_task(self._turns.bring(self.channel.events()))
                self._clock.beat(lambda: self._turns.soon(self._nothing))
                self._introduce()
                while self.follower.state is not State.CLOSED:
                    await self._turn()
                listening.cancel()
                if self._drains is not None:
                    self._drains.cancel()  # what runs here now waits for another session than this one
                self._jobs.stop_measuring()
                await self._links.close()
        finally:
            self._clock.rest()
            self._turns.end()
            self._network.stop()
            await self._stage.close(self.follower.fault or ev.Fault("", "UNAVAILABLE", "the session was left"))

    def start(self) -> None:
        """Go on with those who are present; host only."""
        self._turns.soon(self._start)

    def tell_begun(self) -> None:
        """This machine knows from before that somebody said start; whom it comes back to may never have heard of it."""
        self._turns.say(speech.begun())

    def ask_first(self) -> None:
        """Nothing is fetched before the person here has seen the plan; host only, before there is one."""
        if self.coordinator:
            self.coordinator.ask_first()

    def choose(self, objective: str, *, shown: ev.Division = ()) -> None:
        """The person has seen the plan, and wants it, or the one that is best for an objective; host only.

        Raises:
            Refused: the plan as it is, which was wanted, is another than the one shown.
        """
        if self.coordinator and self.coordinator.is_outdated(objective, shown):
            raise Refused("another plan stands by now: look at that one, and choose again")

        async def chosen() -> None:
            if self.coordinator:
                await self._cores.obey(self.coordinator.choose(objective, self._clock.now(), shown=shown))

        self._turns.soon(chosen)

    def replan(self) -> None:
        """Takes the better plan that is known; host only."""
        self._turns.soon(self._replan)

    def rule(self, replanning: Replanning) -> None:
        """What is done with a better plan from now on; host only."""
        if self.coordinator:
            self.coordinator.adoption.mode = replanning
            self._turns.soon(self._nothing)

    def leave(self, *, at_once: bool = False) -> None:
        """Closes the session here; whoever runs the driver says goodbye on the channel afterwards. While answers run,
        unless it was said before, the others plan without this member first."""
        self._turns.soon(self._goodbye if at_once or self.leaving.has_begun or not self._serves else self._drain)

    def abort(self, fault: ev.Fault, ending: Ending) -> None:
        """Closes the session here by what went wrong around the driver, or in it."""
        self.follower.close(fault, ending)
        self._turns.soon(self._nothing)

    def tell(self, fields: ev.Json) -> None:
        """This machine's entry for the planner has other fields now; everybody hears it, once it was measured."""

        async def told() -> None:
            await self._looked(fields)

        self._turns.soon(told)

    def look(self) -> None:
        """Tells what people see otherwise than when it was looked last."""
        before, self._shown = self._shown, self._glance()
        if what := self._shown.since(before):
            self._changed(what)

    # ---- The loop

    async def _turn(self) -> None:
        item = await self._turns.next(self._clock.loop_time(self._next_timer()))
        self._notice_nap()
        await self._handle(item)
        await self._on_timer()
        self.look()

    def _next_timer(self) -> float | None:
        """When something is due, unless something happens before; None: nothing is waited for."""
        now, silent_s = self._clock.now(), self._silent_s
        timers = [self.follower.next_timer(now, silent_s), self._links.other_ends.next_timer(now, silent_s)]
        timers += [self.leaving.next_timer(), *([self.coordinator.next_timer()] if self.coordinator else [])]
        return min((timer for timer in timers if timer is not None), default=None)

    def _notice_nap(self) -> None:
        """After its own sleep this member listens first."""
        if nap_s := self._clock.nap_s():
            log.info("woke member=%s", self.follower.name)
            self.knowledge.rest.slept(nap_s)
            self.follower.liveness.woke(self._clock.now())
            if self.coordinator:
                self.coordinator.woke(self._clock.now())

    async def _on_timer(self) -> None:
        for peer in self._links.other_ends.handle_timer(self._clock.now(), self._silent_s):
            self._links.renew(peer)
        await self._cores.do(self.follower.handle_timer(self._clock.now(), self._silent_s))
        if self.coordinator:
            if self._stage.active_sequences:
                self.coordinator.adoption.active(self._clock.now())
            silent_s = {peer: link.silent_s() for peer, link in self._standing.up.items()}
            await self._cores.obey(self.coordinator.handle_timer(self._clock.now(), silent_s))
        if self.leaving.is_over(self._clock.now(), serves=self._serves):
            await self._goodbye()

    async def _handle(self, item: Item | None) -> None:
        match item:
            case events.MessageFrom(sender, control, number):
                await self._dispatcher.hear(sender, control, number)
            case events.Spoke(sender):
                await self._dispatcher.spoke(sender)
            case events.MemberJoined():
                self._introduce()
                await self._members_changed()
            case events.MemberRemoved(self.follower.name, reason):
                await self._cores.do(self.follower.removed(reason))
            case events.MemberRemoved(name, reason):
                self.roster.gone[name] = reason
                await self._members_changed(without=name, anew=reason == "removed")
            case events.HostChanged():
                await self._host_changed()
            case events.Doubted(sender) if self.coordinator:
                self._links.other_ends.receive_down(sender, self._clock.now())
                await self._cores.obey(self.coordinator.doubted(sender, self._clock.now()))
            case events.KnowsItIsOut(name) if self.coordinator:
                await self._cores.obey(self.coordinator.knows_it_is_out(name, self._clock.now()))
            case events.HostConvicted(name, sentence):
                fault = ev.Fault(name, "PERMISSION_DENIED", sentence)
                await self._cores.do(self.follower.failed(fault, self._clock.now()))
            case events.MemberDeparted(name):
                self.follower.liveness.receive_departure(name, self._clock.now())
                self._departed.add(name)
                self._reach_out()
            case events.MemberReturned(name):
                self.follower.liveness.receive_return(name)
                self._departed.discard(name)
                self._reach_out()
            case RendezvousLost() | RoomGone():
                self._without_rendezvous = True
                self.follower.rendezvous_lost(self._clock.now())
                self._tell_host_of_rendezvous()
                self._reach_out()
            case RendezvousBack():
                self._without_rendezvous = False
                self.follower.rendezvous_back()
                self._tell_host_of_rendezvous()
                self._reach_out()
            case events.HostMissed():
                self.follower.liveness.receive_doubt(self._clock.now())
            case events.Knocked(name):
                self.follower.liveness.receive_knock(name)
            case events.RoomMoved():
                self.follower.liveness.receive_move(self.channel.keeper_of_room)
                self._network.moved(list(self._standing.up))
            case LinkChanged(peer, link, error):
                await self._link_changed(peer, link, error)
            case Say(control):
                await self._say(control)
            case StageBroke(code, sentence):
                await self._cores.failed_in(State.READY, code, sentence)
            case StageMisled(by, sentence):
                await self._misled(by, sentence)
            case NetworkMoved():
                await self._moved()
            case Call(run):
                await run()

    # ---- Who belongs to the session, and who is linked

    async def _members_changed(self, *, without: str = "", anew: bool = False) -> None:
        """`without`: who is gone, though it may be back already."""
        members = [member.name for member in self.channel.members if member.name != without]
        if self.follower.name not in members:
            return  # why, is told next
        self._show_that_it_knows(gone=set(self.follower.members) - set(members))
        self.roster.members(members)
        self._dispatcher.newest.members(members)
        self._links.forget(members)
        self._departed &= set(members)
        self._reach_out()
        self._shares.members(members)
        await self._cores.do(self.follower.members_changed(members, self.channel.host, self._clock.now()))
        if self.coordinator:
            await self._cores.obey(self.coordinator.members_changed(members, self._clock.now(), anew=anew))
        else:
            self._cores.knowledge.keep(members)

    def _show_that_it_knows(self, gone: Collection[str]) -> None:
        """A host without a link to this member hears that it knows who is gone: for all that the host knows, it may
        vote with them else, and were it lost next, too few would be left who can't."""
        if gone and self.channel.host not in (self.follower.name, *self._standing.up):
            self._turns.say(speech.here())

    def _tell_host_of_rendezvous(self) -> None:
        if self.coordinator is None:
            return
        if self._without_rendezvous:
            self.coordinator.rendezvous_lost(self._clock.now())
        else:
            self.coordinator.rendezvous_back()

    def _reach_out(self) -> None:
        """Whoever the rendezvous does not answer holds a link to everybody, and everybody one to it: the plan's few may
        lead to those alone who are lost next, and nobody would hear then that it is there."""
        away = {member.name for member in self.channel.members} if self._without_rendezvous else self._departed
        self._links.reach(frozenset(away) - {self.follower.name})

    async def _host_changed(self) -> None:
        """Everybody tells the successor what it needs; it starts to decide when it is this member."""
        await self._cores.host_changed()
        self._tell_host_of_rendezvous()
        self._introduce()
        for peer, link in self._standing.up.items():
            self._turns.say(speech.link(self._cores.epoch, peer, link))
        await self._members_changed()

    async def _link_changed(self, peer: str, link: Link | None, error: KafilaError | None) -> None:
        if self._shunned.get(peer) == self._cores.epoch:
            link = None  # whatever becomes of it: this plan's ring does not use it any more
        if error is None:
            if link is not None and not self.roster.is_linked(self.follower.name, peer):
                self._log_formed(peer, link)
            self._turns.say(speech.link(self._cores.epoch, peer, link))
        elif not self.follower.liveness.is_gone(peer):
            log.warning("link_missing peer=%s reason=%s", peer, error)
            self._turns.say(speech.link(self._cores.epoch, peer, None))  # the host decides who is set aside

    def _log_formed(self, peer: str, link: Link) -> None:
        proposal = self.follower.proposal
        log.info(
            "link_formed peer=%s predicted=%s path=%s rtt_s=%.4f punch_s=%.3f handshake_s=%.3f",
            peer,
            predicted_path(proposal.problem, self.follower.name, peer) if proposal else "",
            link.path,
            link.rtt_s,
            link.punch_s,
            link.handshake_s,
        )

    # ---- What happens here

    async def _nothing(self) -> None:
        """The turn itself is what matters."""

    async def _measured_here(self, entry: ev.Json, device: str) -> None:
        self._told.measured({**entry, "name": self.follower.name}, device)
        self._tell_capability()
        self._tell_holds()

    async def _misled(self, by: str, sentence: str) -> None:
        """Nobody leaves by one member's word: the epoch ends here, and the host hears of a link that can't be used."""
        if outputs := self.follower.misled(ev.Fault(by, "UNAVAILABLE", sentence), self._clock.now()):
            log.warning("rules_broken member=%s reason=%s", by, sentence)
            self._shunned[by] = self._cores.epoch
            self._turns.say(speech.link(self._cores.epoch, by, None))
            await self._cores.do([*outputs, *self.follower.misbehaved(by, sentence)])

    async def _moved(self) -> None:
        """Everybody hears it at once; the planner, when the network was looked at anew."""
        self._turns.say(speech.candidates(self._network.candidates()))
        if self._told.latest:
            self._jobs.look(self._network.entry, self._looked)

    async def _looked(self, fields: ev.Json) -> None:
        """The next plan reckons with it; this one's links find their way by themselves."""
        if self._told.moved(fields):
            self._tell_capability()

    async def _not_measured(self, code: str, sentence: str) -> None:
        await self._cores.failed_here(code, f"{self.follower.name} could not be measured: {sentence}")

    def _introduce(self) -> None:
        """Where this member is, and what it measured, for those who don't know yet."""
        self._turns.say(speech.candidates(self._network.candidates()))
        self._tell_capability()
        self._tell_holds()
        if self.leaving.has_begun:
            self._turns.say(speech.leaving())

    def _tell_holds(self) -> None:
        """What others may take from here."""
        if holds := self._shares.holds():
            self._turns.say(ring_pb2.Control(holds=holds))

    def _tell_capability(self) -> None:
        if self._told.latest:
            self._turns.say(ring_pb2.Control(capability=self._told.latest))

    async def _start(self) -> None:
        if self.coordinator:
            await self._cores.obey(self.coordinator.start(self._clock.now()))

    async def _replan(self) -> None:
        if self.coordinator:
            await self._cores.obey(self.coordinator.replan(self._clock.now()))

    def _advised(self, sentence: str) -> None:
        self._better_plan = sentence

    # ---- Leaving

    @property
    def _serves(self) -> bool:
        """Whether answers run through this member's stage, or were asked here; between two epochs they wait, unless
        everybody else has gone."""
        is_needed = self._stage.active_sequences or (self.leaving.has_begun and self.follower.state is not State.READY)
        return bool(self._stage.answers_here or (is_needed and self._others_are_here))

    @property
    def _others_are_here(self) -> bool:
        others = (name for name in self.follower.members if name != self.follower.name)
        return not all(map(self.follower.liveness.is_gone, others))

    async def _drain(self) -> None:
        self.leaving.begin(self._clock.now())
        self._turns.say(speech.leaving())
        self._drains = self._tasks.create_task(self._answered(), name="wait for own answers")

    async def _answered(self) -> None:
        await self._stage.answered()
        self._turns.soon(self._nothing)

    async def _goodbye(self) -> None:
        await self._cores.do(self.follower.close(None, Ending.LEFT))

    async def _say(self, control: ring_pb2.Control) -> None:
        """To everybody, this member included."""
        await self.channel.send(control)
        await self._dispatcher.understand(self.follower.name, control)

    def _glance(self) -> Glance:
        return Glance.at(self.channel, self._cores, self.roster, self._stage, self.better_plan, self.leaving)

    @property
    def _silent_s(self) -> Mapping[str, float]:
        """For each linked peer, how long nothing came from it while this process ran."""
        awake_s = self._clock.awake_s
        return {peer: min(link.silent_s(), awake_s) for peer, link in self._standing.up.items()}
