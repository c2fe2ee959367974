"""One member's part in one session: feeds the two cores whatever happens, one thing at a time.

What happens (events of the channel, a link that came up, a shard that is loaded, time) enters through `turns`, so the
cores never see two things at once.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from kafila_planner.correction import Slowness
from kafila_sidecar.errors import Refused
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.coordination import effects as ev
from kafila_sidecar.session.coordination import speech
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
from kafila_sidecar.session.driving.handler import EventHandler
from kafila_sidecar.session.driving.introduction import Introduction
from kafila_sidecar.session.driving.jobs import Jobs, Measure, StageDriver
from kafila_sidecar.session.driving.links import LinkMaker, Links, StandingLinks
from kafila_sidecar.session.driving.roster import Roster
from kafila_sidecar.session.driving.shares import Shares
from kafila_sidecar.session.driving.turns import Turns
from kafila_sidecar.session.hosting.coordinator import Coordinator
from kafila_sidecar.session.membership.members import Replanning

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
        self._changed = changed
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
        told = Capabilities(slowed, kafila=kafila)
        self._introduction = Introduction(
            name=channel.self_name,
            network=network,
            jobs=self._jobs,
            turns=turns,
            shares=shares,
            leaving=self.leaving,
            told=told,
        )
        dispatcher = Dispatcher(
            cores=self._cores,
            roster=self.roster,
            links=self._links,
            turns=turns,
            told=told,
            terms=terms,
            shares=shares,
            leaving=self.leaving,
            introduce=self._introduction.introduce,
            now=self._clock.now,
        )
        self._handler = EventHandler(
            channel=channel,
            cores=self._cores,
            dispatcher=dispatcher,
            introduction=self._introduction,
            roster=self.roster,
            network=network,
            links=self._links,
            standing=standing,
            turns=turns,
            shares=shares,
            now=self._clock.now,
        )
        self.knowledge.rest.learn(channel.keeper.rests_s, self._clock.now())
        self._drains: asyncio.Task[None] | None = None
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
                self._jobs.measure(self._measure, self._introduction.measured, self._not_measured)
                listening = self._tasks.create_task(self._turns.bring(self.channel.events()))
                self._clock.beat(lambda: self._turns.soon(self._nothing))
                self._introduction.introduce()
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
        self._turns.soon(partial(self._introduction.looked, fields))

    def look(self) -> None:
        """Tells what people see otherwise than when it was looked last."""
        before, self._shown = self._shown, self._glance()
        if what := self._shown.since(before):
            self._changed(what)

    # ---- The loop

    async def _turn(self) -> None:
        item = await self._turns.next(self._clock.loop_time(self._next_timer()))
        self._notice_nap()
        await self._handler.handle(item)
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

    # ---- In turns

    async def _nothing(self) -> None:
        """The turn itself is what matters."""

    async def _not_measured(self, code: str, sentence: str) -> None:
        await self._cores.failed_here(code, f"{self.follower.name} could not be measured: {sentence}")

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

    def _glance(self) -> Glance:
        return Glance.at(self.channel, self._cores, self.roster, self._stage, self.better_plan, self.leaving)

    @property
    def _silent_s(self) -> Mapping[str, float]:
        """For each linked peer, how long nothing came from it while this process ran."""
        awake_s = self._clock.awake_s
        return {peer: min(link.silent_s(), awake_s) for peer, link in self._standing.up.items()}
