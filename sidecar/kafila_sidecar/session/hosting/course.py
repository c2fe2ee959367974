"""The course that the host steers: what it plans with, what it has decided, and what it decides next.

No I/O and no clock: calls carry `now` in seconds of the driver's monotonic clock and return what to do.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kafila_planner import Plan, Refusal
from kafila_sidecar.session.coordination.effects import (
    TOO_SMALL,
    AwaitMemory,
    ComputePlan,
    CoordinatorOutput,
    Dissolve,
    Division,
    Fault,
    Json,
    KeepBack,
    LetFetch,
    LetServe,
    LookForBetter,
    LookWithout,
    Proposal,
    Propose,
    SetAside,
    StepDown,
    TellBegun,
    TellChoosing,
    division_of,
)
from kafila_sidecar.session.coordination.knowledge import Knowledge
from kafila_sidecar.session.coordination.mesh import Edge
from kafila_sidecar.session.coordination.planning_terms import ALL, PlanningTerms, is_alike
from kafila_sidecar.session.coordination.states import Decision, Phase, decide
from kafila_sidecar.session.hosting.adoption import Adoption
from kafila_sidecar.session.hosting.standby import Standby
from kafila_sidecar.session.hosting.waits import (
    LINK_DEADLINE_S,
    MEASURE_DEADLINE_S,
    RETELL_DEADLINE_S,
    ROLL_CALL_S,
    SHORT_DEADLINE_S,
    SuccessionCall,
    Waits,
)
from kafila_sidecar.session.membership.members import Replanning

MAX_ROUNDS = 3  # plans before the first fetch, each with the round trips measured by the one before
EPOCHS_PER_HOST = 1 << 16
HAS_PLAN = (Phase.LINKING, Phase.CHOOSING, Phase.FETCHING, Phase.READY)


class Course:
    """One host's. See `Coordinator` for what leads to a decision."""

    def __init__(
        self,
        *,
        name: str,
        terms: PlanningTerms,
        knowledge: Knowledge,
        takeovers: int,
        started: bool,
        is_successor: bool,
        replanning: Replanning,
        away: Sequence[str],
    ) -> None:
        """`started`: a plan was made before; `is_successor`: with members who are still here; `away`: who was lost
        until now."""
        self.name = name
        self.terms = replace(terms, objective=knowledge.objective or terms.objective)
        self.members: tuple[str, ...] = (name,)
        self.proposal: Proposal | None = None
        self.knows = knowledge
        self.mesh = knowledge.mesh
        self.standby = Standby(terms.require, knowledge.aside)
        self.waits = Waits()
        self.roll_call = SuccessionCall(calls=is_successor)
        self.adoption = Adoption(replanning, rest=knowledge.rest)
        self.started = started or knowledge.has_begun
        self.asks = False  # a person wants to see the first plan before anything is fetched
        self._accepted: Division = ()  # which the person saw and wants
        self.epoch = takeovers * EPOCHS_PER_HOST
        self.phase = Phase.FORMING
        self._has_formed = started  # there was a plan; from then on the session waits out every shortage
        self._has_served = started  # from then on it goes on without whom it required to begin with
        self._round = 0
        self._asked: Json = {}  # the problem that the planner is working on
        self._looked_at: Json = {}  # the latest problem that was looked at for a better plan
        self.gone_for_good: set[str] = set()  # by their own word
        self.missing = dict.fromkeys(away)  # who was lost, and may come back
        self.shortage = ""  # why no plan can be made, since there was one
        self._short_by: float | None = None  # when that ends the session
        self._leaving: dict[str, None] = {}  # who is to leave, and serves until there is a plan without it

    # ---- From members to a plan

    def maybe_plan(self, now: float) -> list[CoordinatorOutput]:
        """Once everybody is here and has measured."""
        if self.phase not in (Phase.FORMING, Phase.MEASURING):
            return []
        everybody = self.started or (self.terms.members_wanted and len(self.members) >= self.terms.members_wanted)
        if not everybody:
            self._decide(Decision.WAIT, now)
            return []
        if self.phase is Phase.FORMING:
            if missing := self._required_elsewhere():
                return self.dissolve(Fault("", "FAILED_PRECONDITION", missing), now)
            takes_s = RETELL_DEADLINE_S if self._has_formed else MEASURE_DEADLINE_S
            self.waits.measure(now, takes_s)
            self._decide(Decision.MEASURE, now, ROLL_CALL_S if self.silent() else takes_s)
        return [] if self.waiting_for() else self.plan(now)

    def plan(self, now: float, *, first_round: bool = True) -> list[CoordinatorOutput]:
        """Anew; not for the first time with what the last plan's links turned out to take."""
        self.standby.begin()
        if not self._planned_members():  # who is leaving is all that is left
            for name in self.members:
                self.standby.take_back(name)
        self._round = 1 if first_round else self._round + 1
        self.proposal = None if first_round else self.proposal
        return self._ask_planner(now)

    def propose(self, made: Proposal, now: float) -> list[CoordinatorOutput]:
        """The planner has one, unless its neighbours can't exchange frames."""
        self._has_formed, self.shortage, self._short_by = True, "", None
        if forced := sorted((edge for edge in made.ring if self.mesh.is_apart(edge)), key=sorted):
            self.proposal = None
            return self.go_on_without(self._unlinkable(forced), now)
        settled = self._same_ring(made.plan)
        self.proposal = made
        self._decide(Decision.PROPOSE, now, LINK_DEADLINE_S)
        return [Propose(made, self._asked), *self._asides(), *self.maybe_advance(now, replan=not settled)]

    def refuse(self, refusal: Refusal, now: float) -> list[CoordinatorOutput]:
        """Without whom is too small, if the others can hold the model; else the session waits for who was lost, or for
        another member, and ends where nobody can come before there ever was a plan."""
        if self.standby.leave_out(refusal, self._planned_members()):
            return self._ask_planner(now)
        first = self.standby.give_up(refusal)
        reason = ": ".join((first.reason, *first.suggestions[:1]))
        if self._has_formed:
            return self._await_memory(Fault(first.undersized, "UNAVAILABLE", f"{reason}{self._not_back}"), now)
        fault = Fault(first.undersized, "FAILED_PRECONDITION", reason)
        has_place = not self.terms.members_wanted or len(self.members) < self.terms.members_wanted
        if not has_place or self.standby.required([first.undersized]):
            return self.dissolve(fault, now)
        self._decide(Decision.WAIT, now)
        return [AwaitMemory(fault)]

    def maybe_advance(self, now: float, *, replan: bool = True) -> list[CoordinatorOutput]:
        """From linked to fetching, unless somebody chooses first, and from loaded to serving."""
        if self.proposal is None:
            return []
        if self.phase is Phase.LINKING and not self.missing_links():
            return self._linked(self.proposal, now, replan=replan)
        if self.phase is Phase.FETCHING and self.loaded >= set(self.stage_members()):
            return self._all_loaded(self.proposal, now)
        return []

    def choose(self, objective: str, now: float, *, shown: Division = ()) -> list[CoordinatorOutput]:
        """The person wants this plan fetched, or the one that is best for another objective; "": this one. `shown`: how
        it divides the blocks, as the person saw it; another one is asked about anew. Empty: whichever it is."""
        if self.is_outdated(objective, shown):
            return []
        self.asks, self._accepted = self.asks and bool(shown), shown
        if objective and objective != self._objective and self.phase in (Phase.PLANNING, *HAS_PLAN):
            self.terms = replace(self.terms, objective=objective)
            return self.plan(now)
        if self.phase is not Phase.CHOOSING:
            return []
        self._decide(Decision.PROPOSE, now, LINK_DEADLINE_S)
        return self.maybe_advance(now, replan=False)

    def is_outdated(self, objective: str, shown: Division) -> bool:
        """The plan as it is, which a person wants, divides the blocks otherwise than shown; who saw none takes any."""
        if not shown or self.proposal is None or objective not in ("", self._objective):
            return False
        return shown != division_of(self.proposal.plan)

    @property
    def _objective(self) -> str:
        """Which the plan is made for."""
        return self.proposal.problem.objective.value if self.proposal else self.terms.objective

    def look_anew(self) -> list[CoordinatorOutput]:
        """Once for each problem that the session comes to have while its plan stands."""
        if self.phase is not Phase.READY or self.proposal is None:
            return []
        problem = self._problem()
        if is_alike(problem, self._asked) or is_alike(problem, self._looked_at):
            return []
        self._looked_at = problem
        return [LookForBetter(self.proposal, problem)]

    # ---- Who joins later, or comes back

    def note_missing(self, gone: Collection[str], came: Collection[str]) -> None:
        """Who was lost, and who is here again."""
        lost = (name for name in sorted(gone) if name not in self.gone_for_good)
        self.missing = {name: None for name in (*self.missing, *lost) if name not in came}
        self.gone_for_good -= set(came)

    def greet(self, came: Collection[str]) -> list[CoordinatorOutput]:
        """Newcomers hear what was decided before; to a plan that stands they are entry points while they measure."""
        outputs: list[CoordinatorOutput] = [TellBegun()] if came and self.started else []
        if came and self.proposal and self.phase in HAS_PLAN:
            outputs += self.catch_up(self.proposal)
        return outputs

    def catch_up(self, proposal: Proposal) -> list[CoordinatorOutput]:
        """A latecomer is an entry point at once: it hears the decisions that the others know."""
        outputs: list[CoordinatorOutput] = [Propose(proposal, self._asked), *self._asides()]
        if self.phase in (Phase.FETCHING, Phase.READY):
            outputs.append(LetFetch(proposal.epoch))
        if self.phase is Phase.READY:
            outputs.append(LetServe(proposal.epoch))
        return outputs

    # ---- Without somebody, or some link

    def leaves(self, member: str) -> list[CoordinatorOutput]:
        """A member is to leave: it is planned without, if that can be, while it still serves."""
        self._leaving[member] = None
        return self._look_without() if self.phase is Phase.READY else []

    def go_on_when_left(self, member: str, refusal: Refusal | None, now: float) -> list[CoordinatorOutput]:
        """What the planner says of a plan without a member that is to leave."""
        if member not in self._leaving or self.phase is not Phase.READY:
            return []  # it is gone, or asked for again once this plan serves
        del self._leaving[member]
        if refusal is not None:
            return [self._keep_back(member, refusal.reason)]
        self.standby.put(member, f"{member} is leaving")
        return self.plan(now)

    def part(self, missing: Sequence[Edge], now: float) -> list[CoordinatorOutput]:
        """Links that can't be made: who has them are no neighbours in the next plan, if the planner finds another."""
        for edge in missing:
            self.mesh.part(edge)
        return self.plan(now)

    def go_on_without(self, failed: Mapping[str, str], now: float) -> list[CoordinatorOutput]:
        """Who failed, and how. The host can't plan without itself, so that it leaves the rest to a successor."""
        if self.name in failed:
            self._decide(Decision.DISSOLVE, now)
            return [StepDown(Fault(self.name, "DEADLINE_EXCEEDED", f"{self.name} {failed[self.name]}"))]
        if name := self._required(failed):
            sentence = f"gave up {self.phase}: {name}, whom this session requires, {failed[name]}"
            return self.dissolve(Fault(name, "DEADLINE_EXCEEDED", sentence), now)
        self._put_aside(failed)
        if self.proposal is None or set(failed) & set(self.stage_members()):
            return self.plan(now)
        return [*self._asides(), *self.maybe_advance(now)]

    def wait_no_more_for(self, silent: Mapping[str, str], now: float) -> list[CoordinatorOutput]:
        """Who did not answer, and how that is put: the others go on measuring."""
        if self._required(silent):
            return self.go_on_without(silent, now)
        self._put_aside(silent)
        return [*self._asides(), *self.maybe_plan(now)]

    def dissolve(self, fault: Fault, now: float) -> list[CoordinatorOutput]:
        """The session ends for everybody."""
        self._decide(Decision.DISSOLVE, now)
        return [Dissolve(fault)]

    # ---- What is lacking

    def waiting_for(self) -> list[str]:
        """Who has to do something before the session goes on: member names, or "A to B" for links."""
        if self.phase in (Phase.FORMING, Phase.MEASURING):
            silent = self.silent()
            lacking = (m for m in self.members if m in silent or m not in self.knows.capabilities)
            return [m for m in lacking if m not in self.standby.names]
        if self.phase is Phase.LINKING:
            return [" to ".join(sorted(edge)) for edge in self.missing_links()]
        if self.phase is Phase.FETCHING:
            return [m for m in self.stage_members() if m not in self.loaded]
        return []

    def silent(self) -> list[str]:
        """Who has not answered the roll call of this successor."""
        return self.roll_call.silent(m for m in self.members if m != self.name and m not in self.standby.names)

    def missing_links(self) -> list[Edge]:
        """The plan's that don't stand, and may yet."""
        assert self.proposal is not None
        stuck, ring = self.standby.stuck, self.proposal.ring
        waited_for = [m for m in self.members if m in self.knows.capabilities and m not in stuck]
        missing = self.mesh.missing(self.proposal, waited_for)
        return [edge for edge in missing if edge in ring or not self.mesh.is_apart(edge)]

    def broken_ring(self) -> list[Edge]:
        """The missing links between stages."""
        assert self.proposal is not None
        return self.mesh.missing(self.proposal, self.stage_members())

    def stage_members(self) -> list[str]:
        assert self.proposal is not None
        return list(self.proposal.plan.order)

    @property
    def loaded(self) -> set[str]:
        assert self.proposal is not None
        return set(self.knows.who_loaded(self.proposal.epoch))

    # ---- Private

    def _ask_planner(self, now: float) -> list[CoordinatorOutput]:
        self.epoch += 1
        self._asked = self._problem()
        self._decide(Decision.PLAN, now, LINK_DEADLINE_S)
        return [ComputePlan(self.epoch, self._asked)]

    def _decide(self, decision: Decision, now: float, deadline_s: float | None = None) -> None:
        self.phase = decide(self.phase, decision)
        self.waits.begin(now, deadline_s)

    def _await_memory(self, fault: Fault, now: float) -> list[CoordinatorOutput]:
        """From those who were lost, or another member; the wait goes on where they bring too little."""
        self.shortage = fault.sentence
        self._short_by = self._short_by or now + SHORT_DEADLINE_S
        self._decide(Decision.WAIT, now, self._short_by - now)
        return [AwaitMemory(fault)]

    def _look_without(self) -> list[CoordinatorOutput]:
        """For who is to leave and has a stage; the others just go."""
        self._leaving = {name: None for name in self._leaving if name in self.members}
        outputs: list[CoordinatorOutput] = []
        for member in [name for name in self._leaving if name in self.stage_members()]:
            names = [name for name in self._planned_members() if name != member]
            if not names or self.standby.required([member]):
                del self._leaving[member]
                outputs.append(self._keep_back(member, f"this session can't be without {member}"))
            else:
                outputs.append(LookWithout(member, self.knows.problem(self.terms, names, host=self.name)))
        return outputs

    def _keep_back(self, member: str, why: str) -> CoordinatorOutput:
        return KeepBack(
            Fault(member, "FAILED_PRECONDITION", f"the session ends for the others without {member}: {why}")
        )

    def _put_aside(self, failed: Mapping[str, str]) -> None:
        for name, how in failed.items():
            self.standby.put(name, f"{name} {how}")

    def _asides(self) -> list[CoordinatorOutput]:
        stuck = self.standby.stuck
        why = self.standby.why.items()
        return [SetAside(Fault(name, "UNAVAILABLE" if name in stuck else TOO_SMALL, told)) for name, told in why]

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

    def _linked(self, proposal: Proposal, now: float, *, replan: bool) -> list[CoordinatorOutput]:
        """Plans once more where the links take other times than was thought; else has somebody choose, or all fetch."""
        if replan and self._round < MAX_ROUNDS and not is_alike(self._problem(), self._asked):
            return self.plan(now, first_round=False)
        if self.asks and self._accepted != division_of(proposal.plan):
            self._accepted = ()
            self._decide(Decision.ASK, now)
            return [TellChoosing(proposal.epoch)]
        self.asks = False
        self._decide(Decision.FETCH, now)
        self.waits.fetch(self.members, now)
        return [LetFetch(proposal.epoch)]

    def _all_loaded(self, proposal: Proposal, now: float) -> list[CoordinatorOutput]:
        self._decide(Decision.SERVE, now)
        self._has_served = True
        self.adoption.planned()
        return [LetServe(proposal.epoch), *self._look_without()]

    def _required(self, failed: Collection[str]) -> str:
        """The first of these without whom the session must not begin; else empty."""
        return "" if self._has_served else self.standby.required(failed)

    def _unlinkable(self, missing: Sequence[Edge]) -> Mapping[str, str]:
        pairs = ", ".join(" to ".join(sorted(edge)) for edge in missing)
        blamed = self.mesh.blame(missing, host=self.name, members=self.members)
        return dict.fromkeys(blamed, f"could not be linked in time ({pairs})")

    @property
    def _not_back(self) -> str:
        return f"; lost and not back yet: {', '.join(self.missing)}" if self.missing else ""

    def _planned_members(self) -> list[str]:
        return [m for m in self.members if m in self.knows.capabilities and m not in self.standby.names]

    def _same_ring(self, plan: Plan) -> bool:
        """Measured round trips changed nothing that would move a block or a hop."""
        return self.proposal is not None and division_of(plan) == division_of(self.proposal.plan)

    def _problem(self) -> Json:
        """The planner's input, from what everybody measured; the same bytes whoever builds it."""
        return self.knows.problem(self.terms, self._planned_members(), host=self.name)
