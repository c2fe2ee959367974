"""What goes into the two session cores, and what comes out. Plain values; no behaviour."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafila_planner import Plan, PlannedStage, Problem

Json = Mapping[str, Any]
Division = tuple[tuple[str, int, int], ...]  # who holds which blocks, half-open, in the ring's order


def division_of(plan: Plan) -> Division:
    return tuple((stage.member, stage.start, stage.end) for stage in plan.stages)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan and the problem that it solves, which this member has computed too and found equal."""

    epoch: int
    problem: Problem
    plan: Plan

    @property
    def head(self) -> str:
        return self.plan.head

    def stage_of(self, member: str) -> PlannedStage | None:
        """The member's stage, or None when it stands by."""
        return next((stage for stage in self.plan.stages if stage.member == member), None)

    def next_after(self, member: str) -> str:
        """The member that takes over the hidden state from `member`."""
        order = self.plan.order
        return order[(order.index(member) + 1) % len(order)]

    def before(self, member: str) -> str | None:
        """The stage that `member` takes the hidden state from; None when `member` stands by, or is the whole ring."""
        order = self.plan.order
        if member not in order or len(order) == 1:
            return None
        return order[order.index(member) - 1]

    @property
    def ring(self) -> frozenset[frozenset[str]]:
        """The links between neighbours."""
        order = self.plan.order
        return frozenset(frozenset((a, b)) for a, b in zip(order, [*order[1:], order[0]], strict=True) if a != b)

    def edges(self, members: Sequence[str]) -> frozenset[frozenset[str]]:
        """The links this plan needs among `members`: ring neighbours, and everybody to the head."""
        return self.ring | {frozenset((m, self.head)) for m in members if m != self.head}


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a session, or one member's part in it, came to an end. `code` is a gRPC code name."""

    member: str
    code: str
    sentence: str


TOO_SMALL = "FAILED_PRECONDITION"  # the code of `SetAside` for who is too small for this very plan


# ---- What the follower asks its driver to do.


@dataclass(frozen=True, slots=True)
class OpenLinks:
    """Hold exactly these links from now on."""

    epoch: int
    peers: frozenset[str]


@dataclass(frozen=True, slots=True)
class LoadShard:
    """Fetch and load this member's part of the plan."""

    proposal: Proposal


@dataclass(frozen=True, slots=True)
class Serve:
    """Every stage is loaded: take requests."""

    proposal: Proposal


@dataclass(frozen=True, slots=True)
class StopServing:
    """End the epoch: running requests fail with `fault`; loaded blocks stay, the next plan may need them."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class Report:
    """Tell everybody: this member's `doing` changed."""

    epoch: int
    doing: str


@dataclass(frozen=True, slots=True)
class Accuse:
    """Tell everybody that a member is gone, or that this one can't go on."""

    epoch: int
    fault: Fault
    lost: bool


@dataclass(frozen=True, slots=True)
class Complain:
    """Tell everybody that a member breaks the rules of the ring, by what its frames hold."""

    epoch: int
    fault: Fault


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask everybody whether a member is there."""

    member: str


@dataclass(frozen=True, slots=True)
class Vote:
    """Tell everybody that the host is gone for this member, and who comes next in order."""

    successor: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The session is over for this member. `fault` is None after an ordinary end."""

    fault: Fault | None


FollowerOutput = OpenLinks | LoadShard | Serve | StopServing | Report | Accuse | Complain | Ask | Vote | Closed


# ---- What the coordinator asks its driver to do.


@dataclass(frozen=True, slots=True)
class ComputePlan:
    """Plan this problem, as `kafila-plan` reads it, and hand the result back."""

    epoch: int
    problem: Json


@dataclass(frozen=True, slots=True)
class Propose:
    """Send the plan to everybody, this member included. `problem` is the proposal's, word for word as it was told."""

    proposal: Proposal
    problem: Json


@dataclass(frozen=True, slots=True)
class LetFetch:
    """Tell everybody that the links stand."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TellChoosing:
    """Tell everybody that a person looks at the plan, and that nothing is fetched before."""

    epoch: int


@dataclass(frozen=True, slots=True)
class LetServe:
    """Tell everybody that every stage is loaded."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Write a member's removal into the membership log."""

    member: str
    reason: str


@dataclass(frozen=True, slots=True)
class Dissolve:
    """End the session for everybody."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class SetAside:
    """Tell everybody that a member takes no part in the plan, and why; it is an entry point."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class AwaitMemory:
    """Tell everybody that the model does not fit in what those present offer: the session waits for another member."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class StepDown:
    """This member, the host, fails itself: it goes, and the others go on under a successor."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class TellBegun:
    """Tell everybody that whoever is missing is not waited for any more."""


@dataclass(frozen=True, slots=True)
class LookForBetter:
    """The problem is another one than the proposal solved: see whether it has a better plan, and hand that back."""

    proposal: Proposal
    problem: Json


@dataclass(frozen=True, slots=True)
class LookWithout:
    """A member is to leave: see whether the others have a plan without it, and hand that back."""

    member: str
    problem: Json


@dataclass(frozen=True, slots=True)
class KeepBack:
    """Tell a member that is to leave that the others can't go on without it, and why."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class StandStill:
    """This member, the host, hears too few of the others to decide anything: nothing is served until it does."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class GoOn:
    """It hears enough of them again."""


@dataclass(frozen=True, slots=True)
class GiveWay:
    """It was so for too long: the others may have gone on without this member."""

    fault: Fault


CoordinatorOutput = (
    ComputePlan
    | Propose
    | LetFetch
    | TellChoosing
    | LetServe
    | Remove
    | Dissolve
    | SetAside
    | AwaitMemory
    | StepDown
    | TellBegun
    | Ask
    | LookForBetter
    | LookWithout
    | KeepBack
    | StandStill
    | GoOn
    | GiveWay
)
