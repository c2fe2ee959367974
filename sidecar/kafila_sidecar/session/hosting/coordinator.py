"""What the host hears, and what that leads to: see `course` for what it decides.

No I/O and no clock: calls carry `now` in seconds of the driver's monotonic clock and return what to do.
"""

from collections.abc import Mapping, Sequence

from kafila_planner import Refusal
from kafila_sidecar.session.coordination.effects import (
    Ask,
    CoordinatorOutput,
    Division,
    Fault,
    GiveWay,
    GoOn,
    Json,
    Proposal,
    Remove,
    StandStill,
    StepDown,
    TellBegun,
)
from kafila_sidecar.session.coordination.knowledge import Knowledge
from kafila_sidecar.session.coordination.liveness import Hearings
from kafila_sidecar.session.coordination.mesh import Edge
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.coordination.states import Phase
from kafila_sidecar.session.hosting.adoption import Adoption
from kafila_sidecar.session.hosting.course import HAS_PLAN, Course
from kafila_sidecar.session.hosting.giving_up import give_up_waiting
from kafila_sidecar.session.hosting.losses import (
    Alone,
    BeginAnew,
    CallOut,
    Goes,
    HeardAgain,
    HostAtFault,
    Judgement,
    Losses,
)
from kafila_sidecar.session.hosting.waits import LINK_DEADLINE_S
from kafila_sidecar.session.membership.members import Replanning

_NO_LINKS: Mapping[str, float] = {}


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
        replanning: Replanning = Replanning.AUTO,
        away: Sequence[str] = (),
    ) -> None:
        """`away`: who was lost before this one was the host."""
        self.name = name
        self._knows = knowledge or Knowledge()
        has_begun = started or self._knows.has_begun
        self._course = Course(
            name=name,
            terms=terms,
            knowledge=self._knows,
            takeovers=takeovers,
            started=started,
            is_successor=takeovers > 0 and has_begun,  # to a host that came back the others come, and measure, anew
            replanning=replanning,
            away=away,
        )
        self._mesh = self._knows.mesh
        self._losses = Losses(name, self._mesh)

    @property
    def members(self) -> tuple[str, ...]:
        """In the order of joining."""
        return self._course.members

    @property
    def adoption(self) -> Adoption:
        """When a better plan is taken."""
        return self._course.adoption

    @property
    def is_alone(self) -> bool:
        """It hears too few of the others, and waits for more."""
        return self._losses.is_alone

    @property
    def hearings(self) -> Hearings:
        """Of those who were accused."""
        return self._losses.hearings

    def waiting_for(self) -> list[str]:
        """Who has to do something before the session goes on: member names, or "A to B" for links."""
        return self._course.waiting_for()

    # ---- Who is here, and what they bring

    def members_changed(self, members: Sequence[str], now: float, *, anew: bool = False) -> list[CoordinatorOutput]:
        """The membership log grew. A lost stage means planning again with those who are left; `anew` too."""
        course = self._course
        gone, came = set(course.members) - set(members), set(members) - set(course.members)
        course.members = tuple(members)
        course.note_missing(gone=() if anew else gone, came=came)
        self._losses.receive_members(members, now)
        self._knows.keep(members)
        told = course.greet(came)
        if course.phase in (Phase.FORMING, Phase.MEASURING, Phase.CLOSED):
            return told + course.maybe_plan(now)
        lost_stage = course.proposal and gone & set(course.proposal.plan.order)
        if lost_stage or course.phase is Phase.PLANNING or anew:
            return told + course.plan(now)
        return told + course.maybe_advance(now)

    def start(self, now: float) -> list[CoordinatorOutput]:
        """Go on with those who are present; by the plan that somebody looks at, if there is one."""
        course = self._course
        begun = self.has_begun(now)
        return begun + course.choose("", now) if course.phase is Phase.CHOOSING else begun

    def has_begun(self, now: float) -> list[CoordinatorOutput]:
        """Somebody said start, perhaps to a host of before, whose word did not come to all: nobody is waited for."""
        if self._course.started:
            return []
        self._course.started = True
        return [TellBegun(), *self._course.maybe_plan(now)]

    def ask_first(self) -> None:
        """Nothing is fetched before `choose`, or `start` once there is a plan."""
        self._course.asks = True

    def choose(self, objective: str, now: float, *, shown: Division = ()) -> list[CoordinatorOutput]:
        """Somebody saw the plan; see `Course.choose`."""
        return self._course.choose(objective, now, shown=shown)

    def is_outdated(self, objective: str, shown: Division) -> bool:
        """See `Course.is_outdated`."""
        return self._course.is_outdated(objective, shown)

    def measured(self, member: str, capability: Json, now: float) -> list[CoordinatorOutput]:
        """A member's entry for the planner came."""
        course = self._course
        newcomer = self._knows.measured(member, capability)
        course.roll_call.answers(member, course.members)
        if newcomer:
            course.standby.take_back(member)
        if newcomer and course.proposal and course.phase in HAS_PLAN:
            return [*course.catch_up(course.proposal), *course.look_anew()]
        return [*course.maybe_plan(now), *course.look_anew()]

    def linked(
        self, member: str, peer: str, path: str, rtt_s: float, now: float, bytes_per_s: float = 0.0
    ) -> list[CoordinatorOutput]:
        """An end of an edge reports that it stands, with its measured round trip in seconds, and the bytes a second
        that come there from the peer; 0: not known."""
        course = self._course
        if not {member, peer} <= set(course.members):
            return []  # on its way when somebody was removed
        self._mesh.linked(member, peer, path, rtt_s, bytes_per_s)
        if course.phase in (Phase.FETCHING, Phase.READY) and not course.broken_ring():
            course.waits.deadline = None
        return [*course.maybe_advance(now), *course.look_anew()]

    def unlinked(self, member: str, peer: str, now: float) -> None:
        """An end of an edge reports that it is down; the stages have a while to mend theirs."""
        course = self._course
        if {member, peer} <= set(course.members):
            needed = course.proposal.edges(course.members) if course.proposal else frozenset[Edge]()
            self._mesh.unlinked(member, peer, broken=frozenset((member, peer)) in needed)
            self._losses.receive_unlinked(member, peer)
        is_serving = course.phase in (Phase.FETCHING, Phase.READY)
        if is_serving and course.waits.deadline is None and course.broken_ring():
            course.waits.begin(now, LINK_DEADLINE_S)

    def progressed(
        self, member: str, epoch: int, doing: str, now: float, waits_for: str = ""
    ) -> list[CoordinatorOutput]:
        """A member fetches, loads, or holds its stage ("ready"). `waits_for`: where the weights come from, while that
        is away."""
        course = self._course
        course.waits.progressed(member, now)
        if course.proposal is None or epoch != course.proposal.epoch:
            return []
        course.waits.sources.note(member, waits_for, now)
        if doing == "ready":
            self._knows.loaded(member, epoch)
        return course.maybe_advance(now)

    # ---- What the planner says

    def planned(self, epoch: int, made: Proposal | Refusal, now: float) -> list[CoordinatorOutput]:
        """The planner's answer to `ComputePlan`."""
        course = self._course
        if epoch != course.epoch or course.phase is not Phase.PLANNING or self._losses.is_alone:
            return []
        return course.refuse(made, now) if isinstance(made, Refusal) else course.propose(made, now)

    def found_better(self, epoch: int, gain: float) -> None:
        """The answer to `LookForBetter`; 0.0: there is none. It is taken when the rule says so."""
        if self._course.proposal and epoch == self._course.proposal.epoch:
            self.adoption.found(gain)

    def replan(self, now: float) -> list[CoordinatorOutput]:
        """Somebody wants the better plan that is known, if there is one still."""
        if self._course.phase is not Phase.READY or not self.adoption.is_there_better:
            return []
        self.adoption.adopted(now)
        return self._course.plan(now)

    def planned_without(self, member: str, refusal: Refusal | None, now: float) -> list[CoordinatorOutput]:
        """The answer to `LookWithout`; None: there is a plan."""
        return self._course.go_on_when_left(member, refusal, now)

    # ---- Who is gone; the log says so when somebody goes, and `members_changed` follows

    def leaves(self, member: str) -> list[CoordinatorOutput]:
        """A member is to leave, and serves until there is a plan without it."""
        return self._course.leaves(member) if member in self.members else []

    def lost(self, member: str, reason: str, now: float) -> list[CoordinatorOutput]:
        """A member left, or this one itself found it dead beyond doubt."""
        if member not in self.members or member == self.name:
            return []
        if reason != "left":
            return self._do(self._losses.receive_loss(member, now), now)
        self._course.gone_for_good.add(member)
        return self._do(self._losses.receive_goodbye(member), now)

    def knows_it_is_out(self, member: str, now: float) -> list[CoordinatorOutput]:
        """Somebody was removed, and has said that it heard it."""
        return self._do(self._losses.receive_last_word(member, now), now)

    def accused(self, member: str, by: str, now: float) -> list[CoordinatorOutput]:
        """A member, perhaps this one, can't reach another one."""
        return self._do(self._losses.receive_accusation(member, by, now), now)

    def misbehaved(self, member: str, by: str, now: float) -> list[CoordinatorOutput]:
        """A member found frames of another one that break the rules; only who gets them in this plan can have."""
        if self._course.proposal is None or self._course.proposal.before(by) != member:
            return []
        return self._do(self._losses.receive_complaint(member, by), now)

    def heard(self, member: str, now: float) -> list[CoordinatorOutput]:
        """A member said something, whatever it was."""
        answered = self._course.roll_call.answers(member, self.members)
        done = self._do(self._losses.receive_message(member, now), now)
        return done + (self._course.maybe_plan(now) if answered else [])

    def doubted(self, by: str, now: float) -> list[CoordinatorOutput]:
        """A member holds this one, the host, to be lost."""
        return self._do(self._losses.receive_doubt(by, now), now)

    def woke(self, now: float) -> None:
        """This process was asleep, or stopped."""
        self._losses.woke(now)

    def rendezvous_lost(self, now: float) -> None:
        """It does not answer this member, or knows its room no more."""
        self._losses.lose_rendezvous(now)

    def rendezvous_back(self) -> None:
        """It answers again, or another one does."""
        self._losses.find_rendezvous()

    def _do(self, judgements: Sequence[Judgement], now: float) -> list[CoordinatorOutput]:
        outputs: list[CoordinatorOutput] = []
        for judgement in judgements:
            match judgement:
                case Goes(member, reason):
                    outputs.append(Remove(member, reason))
                case BeginAnew() if self._course.phase in (Phase.PLANNING, *HAS_PLAN):
                    outputs += self._course.plan(now)
                case CallOut(members):
                    outputs += [Ask(member) for member in members]
                case Alone(unheard, too_long):
                    outputs.append((GiveWay if too_long else StandStill)(self._alone(unheard)))
                case HeardAgain():
                    outputs.append(GoOn())
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

    # ---- Time

    def next_timer(self) -> float | None:
        """When `handle_timer` has something to do, unless something else happens before."""
        if self._losses.is_alone:
            return self._losses.next_timer()
        timers = (self._waits_until, self._losses.next_timer(), self._better_at)
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: float, silent_s: Mapping[str, float] = _NO_LINKS) -> list[CoordinatorOutput]:
        """Removes who was accused and not heard. After a wait that outlived its deadline the others go on without those
        who were waited for. `silent_s`: for each linked peer, how long nothing came from it, own sleep included."""
        self._losses.receive_silence(silent_s, now)
        judged = self._do(self._losses.handle_timer(now), now)
        if self._losses.is_alone:
            return judged
        if self._better_at is not None and now >= self._better_at:
            self.adoption.adopted(now)
            return judged + self._course.plan(now)
        if self._waits_until is None or now < self._waits_until:
            return judged
        return judged + give_up_waiting(self._course, now)

    @property
    def _waits_until(self) -> float | None:
        course = self._course
        return course.waits.until(course.phase, course.waiting_for() if course.phase is Phase.FETCHING else ())

    @property
    def _better_at(self) -> float | None:
        return self.adoption.due() if self._course.phase is Phase.READY else None
