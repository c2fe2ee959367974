"""What the host decides: when to plan, whether to plan again, when to fetch and when to serve.

No I/O and no clock: calls carry `now` in seconds of the driver's monotonic clock and return what to do.
"""

from collections.abc import Collection, Mapping, Sequence

from kafila_planner import Plan, Refusal
from kafila_sidecar.session.coordination.adoption import Adoption
from kafila_sidecar.session.coordination.effects import (
    TOO_SMALL,
    Ask,
    AwaitMemory,
    ComputePlan,
    CoordinatorOutput,
    Dissolve,
    Fault,
    GiveWay,
    Json,
    LetFetch,
    LetServe,
    LookForBetter,
    Proposal,
    Propose,
    Remove,
    SetAside,
    StandStill,
    StepDown,
    TellBegun,
)
from kafila_sidecar.session.coordination.knowledge import Knowledge
from kafila_sidecar.session.coordination.liveness import Hearings
from kafila_sidecar.session.coordination.losses import (
    Alone,
    BeginAnew,
    CallOut,
    Goes,
    HostAtFault,
    Judgement,
    Losses,
)
from kafila_sidecar.session.coordination.mesh import Edge
from kafila_sidecar.session.coordination.planning_terms import ALL, PlanningTerms
from kafila_sidecar.session.coordination.standby import Standby
from kafila_sidecar.session.coordination.states import Decision, Phase, decide
from kafila_sidecar.session.judging.sources import SOURCE_DEADLINE_S, SourceWaits

MAX_ROUNDS = 3  # plans before the first fetch, each with the round trips measured by the one before
MEASURE_DEADLINE_S = 120.0  # for everybody's measurement, from the moment the last one came
RETELL_DEADLINE_S = 20.0  # for what was measured, told to a successor that has not heard it, while the others wait
ROLL_CALL_S = 3.0  # how long a successor waits for each member to say anything
LINK_DEADLINE_S = 45.0
EPOCHS_PER_HOST = 1 << 16
FETCH_SILENCE_S = 120.0  # a member that neither fetches nor loads anything for so long is stuck

_NO_LINKS: Mapping[str, float] = {}
_HAS_PLAN = (Phase.LINKING, Phase.FETCHING, Phase.READY)


class Coordinator:
    """Collects measurements, links and progress; proposes, lets fetch, lets serve.

    A successor starts with `takeovers` > 0: its epochs are higher than all before it. What it knows as a member it goes
    on from, and plans with those who answer it. With `started` it goes on with those who are left.
    """

    def __init__(
        self,
        *,
        name: str,
        terms: PlanningTerms,
        takeovers: int = 0,
        started: bool = False,
        knowledge: Knowledge | None = None,
    ) -> None:
        self.name = name
        self.terms = terms
        self.members: tuple[str, ...] = (name,)
        self.proposal: Proposal | None = None
        self._knows = knowledge or Knowledge()
        self.started = started or self._knows.has_begun
        self._mesh = self._knows.mesh
        is_succession = takeovers > 0 and self.started  # to a host that came back the others come, and measure, anew
        self._unanswered: set[str] | None = set() if is_succession else None  # who has answered the roll call
        self._asked: Json = {}  # the problem that the planner is working on
        self._standby = Standby(terms.require, self._knows.aside)
        self._has_formed = started  # there was a plan; from then on a shortage ends the session
        self._losses = Losses(name, self._mesh)
        self._epoch = takeovers * EPOCHS_PER_HOST
        self._round = 0
        self._phase = Phase.FORMING
        self._deadline: float | None = None
        self._measure_by = 0.0
        self._heard: dict[str, float] = {}
        self._sources = SourceWaits()
        self.adoption = Adoption()
        self._looked_at: Json = {}  # the latest problem that was looked at for a better plan

    # ---- Inputs

    def members_changed(self, members: Sequence[str], now: float, *, anew: bool = False) -> list[CoordinatorOutput]:
        """The membership log grew. A lost stage means planning again with those who are left; `anew` too."""
        gone, came = set(self.members) - set(members), set(members) - set(self.members)
        self.members = tuple(members)
        self._losses.receive_members(members)
        self._knows.keep(members)
        told = self._greet(came)
        if self._phase in (Phase.FORMING, Phase.MEASURING, Phase.CLOSED):
            return told + self._maybe_plan(now)
        lost_stage = self.proposal and gone & set(self.proposal.plan.order)
        if lost_stage or self._phase is Phase.PLANNING or anew:
            return told + self._plan(now, first_round=True)
        return told + self._maybe_advance(now)

    def start(self, now: float) -> list[CoordinatorOutput]:
        """Go on with those who are present."""
        self.started = True
        return [TellBegun(), *self._maybe_plan(now)]

    def measured(self, member: str, capability: Json, now: float) -> list[CoordinatorOutput]:
        """A member's entry for the planner came."""
        newcomer = self._knows.measured(member, capability)
        self._answers(member)
        if newcomer:
            self._standby.take_back(member)
        if newcomer and self.proposal and self._phase in _HAS_PLAN:
            return [*self._catch_up(self.proposal), *self._look_anew()]
        return [*self._maybe_plan(now), *self._look_anew()]

    def planned(self, epoch: int, made: Proposal | Refusal, now: float) -> list[CoordinatorOutput]:
        """The planner's answer to `ComputePlan`."""
        if epoch != self._epoch or self._phase is not Phase.PLANNING or self._losses.is_alone:
            return []
        if isinstance(made, Refusal):
            return self._refused(made, now)
        self._has_formed = True
        if forced := sorted((edge for edge in made.ring if self._mesh.is_apart(edge)), key=sorted):
            self.proposal = None
            return self._go_on_without(self._unlinkable(forced), now)
        settled = self._same_ring(made.plan)
        self.proposal = made
        self._decide(Decision.PROPOSE, now, LINK_DEADLINE_S)
        return [Propose(made, self._asked), *self._asides(), *self._maybe_advance(now, replan=not settled)]

    def linked(self, member: str, peer: str, path: str, rtt_s: float, now: float) -> list[CoordinatorOutput]:
        """An end of an edge reports that it stands, with its measured round trip in seconds."""
        if not {member, peer} <= set(self.members):
            return []  # on its way when somebody was removed
        self._mesh.linked(member, peer, path, rtt_s)
        if self._phase in (Phase.FETCHING, Phase.READY) and not self._broken_ring():
            self._deadline = None
        return [*self._maybe_advance(now), *self._look_anew()]

    def found_better(self, epoch: int, gain: float) -> None:
        """The answer to `LookForBetter`; 0.0: there is none. It is taken when the rule says so."""
        if self.proposal and epoch == self.proposal.epoch:
            self.adoption.found(gain)

    def unlinked(self, member: str, peer: str, now: float) -> None:
        """An end of an edge reports that it is down; the stages have a while to mend theirs."""
        if {member, peer} <= set(self.members):
            needed = self.proposal.edges(self.members) if self.proposal else frozenset[Edge]()
            self._mesh.unlinked(member, peer, broken=frozenset((member, peer)) in needed)
            self._losses.receive_unlinked(member, peer)
        if self._phase in (Phase.FETCHING, Phase.READY) and self._deadline is None and self._broken_ring():
            self._deadline = now + LINK_DEADLINE_S

    def progressed(
        self, member: str, epoch: int, doing: str, now: float, waits_for: str = ""
    ) -> list[CoordinatorOutput]:
        """A member fetches, loads, or holds its stage ("ready"). `waits_for`: where the weights come from, while that
        is away."""
        self._heard[member] = now
        if self.proposal is None or epoch != self.proposal.epoch:
            return []
        self._sources.note(member, waits_for, now)
        if doing == "ready":
            self._knows.loaded(member, epoch)
        return self._maybe_advance(now)

    # ---- Who is gone; the log says so when somebody goes, and `members_changed` follows

    @property
    def hearings(self) -> Hearings:
        """Of those who were accused."""
        return self._losses.hearings

    def lost(self, member: str, reason: str, now: float) -> list[CoordinatorOutput]:
        """A member left, or this one itself found it dead beyond doubt."""
        if member not in self.members or member == self.name:
            return []
        return [Remove(member, reason)] if reason == "left" else self._do(self._losses.receive_loss(member, now), now)

    def accused(self, member: str, by: str, now: float) -> list[CoordinatorOutput]:
        """A member, perhaps this one, can't reach another one."""
        return self._do(self._losses.receive_accusation(member, by, now), now)

    def misbehaved(self, member: str, by: str, now: float) -> list[CoordinatorOutput]:
        """A member found frames of another one that break the rules; only who gets them in this plan can have."""
        if self.proposal is None or self.proposal.before(by) != member:
            return []
        return self._do(self._losses.receive_complaint(member, by), now)

    def heard(self, member: str, now: float) -> list[CoordinatorOutput]:
        """A member said something, whatever it was."""
        answered = self._answers(member)
        done = self._do(self._losses.receive_message(member, now), now)
        return done + (self._maybe_plan(now) if answered else [])

    def doubted(self, by: str, now: float) -> list[CoordinatorOutput]:
        """A member holds this one, the host, to be lost."""
        return self._do(self._losses.receive_doubt(by, now), now)

    def woke(self, now: float) -> None:
        """This process was asleep, or stopped."""
        self._losses.woke(now)

    def next_timer(self) -> float | None:
        """When `handle_timer` has something to do, unless something else happens before."""
        if self._losses.is_alone:
            return self._losses.next_timer()
        better_at = self.adoption.due() if self._phase is Phase.READY else None
        timers = (self._waits_until, self._losses.next_timer(), better_at)
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: float, silent_s: Mapping[str, float] = _NO_LINKS) -> list[CoordinatorOutput]:
        """Removes who was accused and not heard. After a wait that outlived its deadline the others go on without those
        who were waited for. `silent_s`: for each linked peer, how long nothing came from it, own sleep included."""
        self._losses.receive_silence(silent_s, now)
        judged = self._do(self._losses.handle_timer(now), now)
        if self._losses.is_alone:
            return judged
        if self._phase is Phase.READY and (better_at := self.adoption.due()) is not None and now >= better_at:
            self.adoption.adopted(now)
            return judged + self._plan(now, first_round=True)
        if self._waits_until is None or now < self._waits_until:
            return judged
        return judged + self._give_up_waiting(now)

    def _do(self, judgements: Sequence[Judgement], now: float) -> list[CoordinatorOutput]:
        outputs: list[CoordinatorOutput] = []
        for judgement in judgements:
            match judgement:
                case Goes(member, reason):
                    outputs.append(Remove(member, reason))
                case BeginAnew() if self._phase in (Phase.PLANNING, *_HAS_PLAN):
                    outputs += self._plan(now, first_round=True)
                case CallOut(members):
                    outputs += [Ask(member) for member in members]
                case Alone(unheard, too_long):
                    outputs.append((GiveWay if too_long else StandStill)(self._alone(unheard)))
                case HostAtFault():
                    outputs.append(StepDown(Fault(self.name, "INTERNAL", f"{self.name} sends frames that are wrong")))
        return outputs

    def _alone(self, unheard: Sequence[str]) -> Fault:
        heard = len(self.members) - len(unheard)
        sentence = (
            f"{self.name} hears only {heard} of {len(self.members)} members, itself counted, and the others may go on"
            f" without it: waiting for {', '.join(unheard)}"
        )
        return Fault(self.name, "UNAVAILABLE", sentence)

    def _answers(self, member: str) -> bool:
        """Whether the roll call waited for this member."""
        if self._unanswered is None or member not in self.members or member in self._unanswered:
            return False
        self._unanswered.add(member)
        return True

    @property
    def _waits_until(self) -> float | None:
        """A stage that fetches or loads may take as long as it likes, if only it goes on."""
        timers = [] if self._deadline is None else [self._deadline]
        if self._phase is Phase.FETCHING:
            fetching = self.waiting_for()
            timers += [self._heard[member] + FETCH_SILENCE_S for member in fetching]
            timers += [due] if (due := self._sources.due(fetching)) is not None else []
        return min(timers, default=None)

    def _give_up_waiting(self, now: float) -> list[CoordinatorOutput]:
        match self._phase:
            case Phase.MEASURING if now < self._measure_by:
                self._deadline, silent = self._measure_by, self._silent()
                return self._wait_no_more_for(dict.fromkeys(silent, f"did not answer {self.name}, the host now"), now)
            case Phase.MEASURING:
                return self._go_on_without(dict.fromkeys(self.waiting_for(), "did not measure itself in time"), now)
            case Phase.LINKING:
                return self._part(self._missing_links(), now)
            case Phase.FETCHING | Phase.READY if self._deadline is not None and now >= self._deadline:
                self._deadline = None
                return self._part(self._broken_ring(), now)
            case Phase.FETCHING if late := self._sources.late(self.waiting_for(), now):
                return self._source_is_away(late, now)
            case Phase.FETCHING:
                late = [m for m in self.waiting_for() if now >= self._heard[m] + FETCH_SILENCE_S]
                return self._go_on_without(dict.fromkeys(late, "neither fetched nor loaded anything any more"), now)
        return self._dissolve(Fault("", "DEADLINE_EXCEEDED", "gave up planning: still waiting for the planner"), now)

    def _source_is_away(self, late: Sequence[str], now: float) -> list[CoordinatorOutput]:
        """One that waits alone may go; what others wait for too is nobody's fault, and ends for all."""
        if len(late) == 1 and self._loaded and late[0] != self.name:
            return self._go_on_without({late[0]: f"waited for too long: {self._sources.sentence(late[0])}"}, now)
        minutes = f"{SOURCE_DEADLINE_S / 60:.0f} minutes"
        sentence = f"gave up fetching: {', '.join(late)} waited for {minutes}: {self._sources.sentence(late[0])}"
        return self._dissolve(Fault("", "UNAVAILABLE", sentence), now)

    def _part(self, missing: Sequence[Edge], now: float) -> list[CoordinatorOutput]:
        """Links that can't be made: who has them are no neighbours in the next plan, if the planner finds another."""
        for edge in missing:
            self._mesh.part(edge)
        return self._plan(now, first_round=True)

    def _unlinkable(self, missing: Sequence[Edge]) -> Mapping[str, str]:
        pairs = ", ".join(" to ".join(sorted(edge)) for edge in missing)
        blamed = self._mesh.blame(missing, host=self.name, members=self.members)
        return dict.fromkeys(blamed, f"could not be linked in time ({pairs})")

    def _go_on_without(self, failed: Mapping[str, str], now: float) -> list[CoordinatorOutput]:
        """Who failed, and how. The host can't plan without itself, so that it leaves the rest to a successor."""
        if self.name in failed:
            self._decide(Decision.DISSOLVE, now)
            return [StepDown(Fault(self.name, "DEADLINE_EXCEEDED", f"{self.name} {failed[self.name]}"))]
        if name := self._standby.required(failed):
            sentence = f"gave up {self._phase}: {name}, whom this session requires, {failed[name]}"
            return self._dissolve(Fault(name, "DEADLINE_EXCEEDED", sentence), now)
        for name, how in failed.items():
            self._standby.put(name, f"{name} {how}")
        if self.proposal is None or set(failed) & set(self._stage_members()):
            return self._plan(now, first_round=True)
        return [*self._asides(), *self._maybe_advance(now)]

    def _wait_no_more_for(self, silent: Mapping[str, str], now: float) -> list[CoordinatorOutput]:
        if self._standby.required(silent):
            return self._go_on_without(silent, now)
        for name, how in silent.items():
            self._standby.put(name, f"{name} {how}")
        return [*self._asides(), *self._maybe_plan(now)]

    def _silent(self) -> list[str]:
        """Who has not answered the roll call of this successor."""
        if self._unanswered is None:
            return []
        others = [m for m in self.members if m != self.name and m not in self._standby.names]
        return [m for m in others if m not in self._unanswered]

    def _asides(self) -> list[CoordinatorOutput]:
        stuck = self._standby.stuck
        why = self._standby.why.items()
        return [SetAside(Fault(name, "UNAVAILABLE" if name in stuck else TOO_SMALL, told)) for name, told in why]

    # ---- For people

    def waiting_for(self) -> list[str]:
        """Who has to do something before the session goes on: member names, or "A to B" for links."""
        if self._phase in (Phase.FORMING, Phase.MEASURING):
            silent = self._silent()
            lacking = (m for m in self.members if m in silent or m not in self._knows.capabilities)
            return [m for m in lacking if m not in self._standby.names]
        if self._phase is Phase.LINKING:
            return [" to ".join(sorted(edge)) for edge in self._missing_links()]
        if self._phase is Phase.FETCHING:
            return [m for m in self._stage_members() if m not in self._loaded]
        return []

    # ---- Decisions

    def _maybe_plan(self, now: float) -> list[CoordinatorOutput]:
        if self._phase not in (Phase.FORMING, Phase.MEASURING):
            return []
        everybody = self.started or (self.terms.members_wanted and len(self.members) >= self.terms.members_wanted)
        if not everybody:
            self._decide(Decision.WAIT, now)
            return []
        if self._phase is Phase.FORMING:
            if missing := self._required_elsewhere():
                return self._dissolve(Fault("", "FAILED_PRECONDITION", missing), now)
            takes_s = RETELL_DEADLINE_S if self._has_formed else MEASURE_DEADLINE_S
            self._measure_by = now + takes_s
            self._decide(Decision.MEASURE, now, ROLL_CALL_S if self._silent() else takes_s)
        if self.waiting_for():
            return []
        return self._plan(now, first_round=True)

    def _required_elsewhere(self) -> str:
        """What is wrong where a required member can't come any more, since all places are taken; else empty. Who says
        start goes on without."""
        missing = [name for name in self.terms.require if name != ALL and name not in self.members]
        if self.started or not missing:
            return ""
        return (
            f"{missing[0]} is required but is not among the members, {', '.join(self.members)}, and all places are"
            " taken: create the session again, with names for --require that the machines have"
        )

    def _refused(self, refusal: Refusal, now: float) -> list[CoordinatorOutput]:
        """Without whom is too small, if the others can hold the model; else the session waits for another member while
        it forms and has a place, and ends where it can't."""
        if self._standby.leave_out(refusal, self._planned_members()):
            return self._ask_planner(now)
        first = self._standby.give_up(refusal)
        fault = Fault(first.undersized, "FAILED_PRECONDITION", _refusal(first))
        has_place = not self.terms.members_wanted or len(self.members) < self.terms.members_wanted
        if self._has_formed or not has_place or self._standby.required([first.undersized]):
            return self._dissolve(fault, now)
        self._decide(Decision.WAIT, now)
        return [AwaitMemory(fault)]

    def _plan(self, now: float, *, first_round: bool) -> list[CoordinatorOutput]:
        self._standby.begin()
        self._round = 1 if first_round else self._round + 1
        self.proposal = None if first_round else self.proposal
        return self._ask_planner(now)

    def _ask_planner(self, now: float) -> list[CoordinatorOutput]:
        self._epoch += 1
        self._asked = self._problem()
        self._decide(Decision.PLAN, now, LINK_DEADLINE_S)
        return [ComputePlan(self._epoch, self._asked)]

    def _maybe_advance(self, now: float, *, replan: bool = True) -> list[CoordinatorOutput]:
        if self.proposal is None:
            return []
        if self._phase is Phase.LINKING and not self._missing_links():
            if replan and self._round < MAX_ROUNDS and self._problem() != self._asked:
                return self._plan(now, first_round=False)
            self._decide(Decision.FETCH, now)
            self._heard = dict.fromkeys(self.members, now)
            self._sources.clear()
            return [LetFetch(self.proposal.epoch)]
        if self._phase is Phase.FETCHING and self._loaded >= set(self._stage_members()):
            self._decide(Decision.SERVE, now)
            self.adoption.planned()
            return [LetServe(self.proposal.epoch)]
        return []

    def _look_anew(self) -> list[CoordinatorOutput]:
        """Once for each problem that the session comes to have while its plan stands."""
        if self._phase is not Phase.READY or self.proposal is None:
            return []
        problem = self._problem()
        if problem in (self._asked, self._looked_at):
            return []
        self._looked_at = problem
        return [LookForBetter(self.proposal, problem)]

    def _greet(self, came: Collection[str]) -> list[CoordinatorOutput]:
        """Newcomers hear what was decided before; to a plan that stands they are entry points while they measure."""
        outputs: list[CoordinatorOutput] = [TellBegun()] if came and self.started else []
        if came and self.proposal and self._phase in _HAS_PLAN:
            outputs += self._catch_up(self.proposal)
        return outputs

    def _catch_up(self, proposal: Proposal) -> list[CoordinatorOutput]:
        """A latecomer is an entry point at once: it hears the decisions that the others know."""
        outputs: list[CoordinatorOutput] = [Propose(proposal, self._asked), *self._asides()]
        if self._phase in (Phase.FETCHING, Phase.READY):
            outputs.append(LetFetch(proposal.epoch))
        if self._phase is Phase.READY:
            outputs.append(LetServe(proposal.epoch))
        return outputs

    def _decide(self, decision: Decision, now: float, deadline_s: float | None = None) -> None:
        self._phase = decide(self._phase, decision)
        self._deadline = None if deadline_s is None else now + deadline_s

    def _dissolve(self, fault: Fault, now: float) -> list[CoordinatorOutput]:
        self._decide(Decision.DISSOLVE, now)
        return [Dissolve(fault)]

    def _missing_links(self) -> list[Edge]:
        assert self.proposal is not None
        stuck, ring = self._standby.stuck, self.proposal.ring
        waited_for = [m for m in self.members if m in self._knows.capabilities and m not in stuck]
        missing = self._mesh.missing(self.proposal, waited_for)
        return [edge for edge in missing if edge in ring or not self._mesh.is_apart(edge)]

    def _broken_ring(self) -> list[Edge]:
        """The missing links between stages."""
        assert self.proposal is not None
        return self._mesh.missing(self.proposal, self._stage_members())

    @property
    def _loaded(self) -> set[str]:
        assert self.proposal is not None
        return set(self._knows.who_loaded(self.proposal.epoch))

    def _planned_members(self) -> list[str]:
        return [m for m in self.members if m in self._knows.capabilities and m not in self._standby.names]

    def _stage_members(self) -> list[str]:
        assert self.proposal is not None
        return list(self.proposal.plan.order)

    def _same_ring(self, plan: Plan) -> bool:
        """Measured round trips changed nothing that would move a block or a hop."""
        cuts = [(stage.member, stage.start, stage.end) for stage in plan.stages]
        former = self.proposal.plan.stages if self.proposal else ()
        return cuts == [(stage.member, stage.start, stage.end) for stage in former]

    def _problem(self) -> Json:
        """The planner's input, from what everybody measured; the same bytes whoever builds it."""
        names = self._planned_members()
        return {
            **self.terms.fields(names),
            "anchor": self.name if self.name in names else names[0],
            "members": [{**self._knows.capabilities[n], "name": n} for n in names],
            "edges": self._mesh.entries(names),
        }


def _refusal(refusal: Refusal) -> str:
    return ": ".join((refusal.reason, *refusal.suggestions[:1]))
