"""Everybody's session cores, joined by a pump with a hand-moved clock."""

from collections import deque
from collections.abc import Sequence, Set
from random import Random
from typing import Any

from kafila_planner import Refusal, problem_from_json
from kafila_sidecar.session.coordination.effects import (
    Accuse,
    AwaitMemory,
    Closed,
    ComputePlan,
    CoordinatorOutput,
    Dissolve,
    Fault,
    FollowerOutput,
    GiveWay,
    GoOn,
    KeepBack,
    LetFetch,
    LetServe,
    LoadShard,
    LookWithout,
    OpenLinks,
    Proposal,
    Propose,
    Remove,
    Report,
    Serve,
    SetAside,
    StandStill,
    StepDown,
    StopServing,
    Vote,
)
from kafila_sidecar.session.coordination.follower import Follower
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.coordination.states import Ending, State
from kafila_sidecar.session.hosting.coordinator import Coordinator
from tests.support.plans import MODEL, plan_of, stage

NAMES = ("ada", "bob", "cyd")


def plan_for(asked: ComputePlan) -> Proposal | Refusal:
    """One block a member, in the order of the problem."""
    problem = problem_from_json({**asked.problem, "model": {**MODEL, **asked.problem["model"]}})
    members = [member.name for member in problem.members]
    if problem.model.blocks > 100:
        return Refusal("too large", members[-1], 1, ("a smaller model",))
    return Proposal(asked.epoch, problem, plan_of([stage(name, i, i + 1) for i, name in enumerate(members)]))


class CoreParty:
    """Everybody's cores and the wires between them; messages to one member may overtake each other.

    The membership log is played: it names another host once more than half of the others voted for it.
    """

    def __init__(
        self,
        *,
        wanted: int = 3,
        blocks: int = 3,
        require: tuple[str, ...] = (),
        shuffle: Random | None = None,
        slow: Set[str] = frozenset(),
    ) -> None:
        self.now = 0.0
        self._terms = PlanningTerms(
            members_wanted=wanted, model={"blocks": blocks}, context_tokens=64, concurrency=1, require=require
        )
        self.coordinator = Coordinator(name="ada", terms=self._terms)
        self.takeovers = 0
        self.votes: dict[str, str] = {}
        self.removed: list[tuple[str, str]] = []
        self.mute: set[str] = set()  # members that are there, and say nothing
        self.machines: dict[str, Follower] = {"ada": Follower(name="ada", host="ada", members=("ada",))}
        self.links: set[frozenset[str]] = set()
        self.broken: set[frozenset[str]] = set()
        self.serving: dict[str, int] = {}
        self.stopped: dict[str, Fault] = {}
        self.closed: dict[str, Fault | None] = {}
        self.proposals: list[Proposal] = []
        self.loads: list[str] = []
        self.aside: dict[str, str] = {}
        self.kept_back: dict[str, str] = {}
        self.dead: set[str] = set()
        self._died_at: dict[str, float] = {}
        self._shuffle = shuffle
        self._slow = slow  # who never gets its shard loaded
        self._queue: deque[tuple[str, Any]] = deque()

    def join(self, name: str) -> None:
        members = (*self.coordinator.members, name)
        self.machines[name] = Follower(name=name, host=self.coordinator.name, members=members)
        self.write_log(members)

    def measure(self, name: str) -> None:
        self.obey(self.coordinator.measured(name, {"memory_bytes": 1}, self.now))
        self.pump()

    def kill(self, name: str) -> None:
        self.dead.add(name)
        self._died_at[name] = self.now
        del self.machines[name]

    def leave(self, name: str) -> None:
        del self.machines[name]
        self._tell(lambda follower: follower.left(name, self.now))
        self.pump()
        if name == self.coordinator.name:
            self.succeed()
        else:
            self.obey(self.coordinator.lost(name, "left", self.now))
        self.pump()

    def succeed(self) -> None:
        """The first in order that lives takes over."""
        former = self.coordinator
        members = tuple(member for member in former.members if member != former.name)
        heir = next(member for member in members if member in self.machines)
        self.takeovers += 1
        started = self.machines[heir].state is not State.FORMING
        self.coordinator = Coordinator(name=heir, terms=self._terms, takeovers=self.takeovers, started=started)
        self.votes = {}
        self.write_log(members)
        for name in self.machines:
            self.measure(name)
        for one, other in [sorted(pair) for pair in self.links if not pair & (self.dead | {former.name})]:
            self.obey(self.coordinator.linked(one, other, "direct", 0.01, self.now))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        if self.coordinator.name not in self.dead:
            self.obey(self.coordinator.handle_timer(self.now, {**dict.fromkeys(self.machines, 0.0), **self._silent_s}))
        for name, follower in list(self.machines.items()):
            for member in self.dead:
                follower.liveness.receive_departure(member, self.now - seconds)
            self.do(name, follower.handle_timer(self.now, self._silent_s))
        self.pump()

    @property
    def _silent_s(self) -> dict[str, float]:
        return {name: self.now - at for name, at in self._died_at.items()}

    def pump(self) -> None:
        while self._queue:
            index = self._shuffle.randrange(len(self._queue)) if self._shuffle else 0
            self._queue.rotate(-index)
            target, call = self._queue.popleft()
            if target in self.machines:
                self.do(target, call(self.machines[target]))

    def accuse(self, accuser: str, accused: str) -> None:
        """A member's word; the accused hears of it and says something, if it can."""
        self.obey(self.coordinator.accused(accused, accuser, self.now))
        if accused in self.machines and accused not in self.mute:
            self.obey(self.coordinator.heard(accused, self.now))
        self.pump()

    def write_log(self, members: Sequence[str], *, anew: bool = False) -> None:
        host = self.coordinator.name
        self._tell(lambda follower: follower.members_changed(members, host, self.now))
        self.obey(self.coordinator.members_changed(members, self.now, anew=anew))
        self.pump()

    def _vote(self, voter: str, successor: str) -> None:
        self.votes[voter] = successor
        agreed = list(self.votes.values()).count(successor)
        if 2 * agreed > len(self.coordinator.members) - 1 and self.coordinator.name not in self.machines:
            self.succeed()

    def _tell(self, call: Any) -> None:
        self._queue.extend((name, call) for name in self.machines)

    def obey(self, outputs: Sequence[CoordinatorOutput]) -> None:
        for output in outputs:
            match output:
                case ComputePlan(epoch):
                    self.obey(self.coordinator.planned(epoch, plan_for(output), self.now))
                case Propose(proposal):
                    self.proposals.append(proposal)
                    self._tell(lambda follower, p=proposal: follower.proposed(p))
                case LetFetch(epoch):
                    self._tell(lambda follower, e=epoch: follower.may_fetch(e))
                case LetServe(epoch):
                    self._tell(lambda follower, e=epoch: follower.may_serve(e))
                case Remove(member, reason):
                    self.removed.append((member, reason))
                    left = tuple(m for m in self.coordinator.members if m != member)
                    self.write_log(left, anew=reason == "removed")
                case LookWithout(member, problem):
                    made = plan_for(ComputePlan(0, problem))
                    refusal = made if isinstance(made, Refusal) else None
                    self.obey(self.coordinator.planned_without(member, refusal, self.now))
                case KeepBack(fault):
                    self.kept_back[fault.member] = fault.sentence
                case SetAside(fault):
                    self.aside[fault.member] = fault.sentence
                case AwaitMemory(fault):
                    self._tell(lambda follower, f=fault: follower.awaits_memory(f.sentence))
                case StandStill(fault):
                    name = self.coordinator.name
                    self.do(name, self.machines[name].stand_still(fault, self.now))
                case GoOn():
                    pass  # whoever waits at its door gets in
                case GiveWay(fault):
                    name = self.coordinator.name
                    self.do(name, self.machines[name].close(fault, Ending.LOST))
                case StepDown(fault):
                    name = self.coordinator.name
                    self.do(name, self.machines[name].failed_here(fault.code, fault.sentence))
                    self.pump()
                    self.leave(name)
                case Dissolve(fault):
                    self._tell(lambda follower, f=fault: follower.close(f))

    def do(self, name: str, outputs: Sequence[FollowerOutput]) -> None:
        for output in outputs:
            match output:
                case OpenLinks(_, peers):
                    for peer in peers:
                        pair = frozenset((name, peer))
                        if pair not in self.broken and not pair & self.dead:
                            self.links.add(pair)
                            self.obey(self.coordinator.linked(name, peer, "direct", 0.01, self.now))
                case LoadShard(proposal):
                    self.loads.append(name)
                    if name not in self._slow:
                        self.do(name, self.machines[name].shard_loaded(proposal.epoch))
                case Report(epoch, doing):
                    self.obey(self.coordinator.progressed(name, epoch, doing, self.now))
                case Serve(proposal):
                    self.serving[name] = proposal.epoch
                case StopServing(fault):
                    self.serving.pop(name, None)
                    self.stopped[name] = fault
                case Accuse(_, fault, True) if name == self.coordinator.name:
                    self.obey(self.coordinator.lost(fault.member, "lost", self.now))
                case Accuse(_, fault, True):
                    self.accuse(name, fault.member)
                case Accuse(_, fault, False):
                    self._tell(lambda follower, f=fault: follower.failed(f, self.now))
                case Vote(successor):
                    self._vote(name, successor)
                case Closed(fault):
                    self.closed[name] = fault


def formed(**kwargs: Any) -> CoreParty:
    party = CoreParty(**kwargs)
    party.measure("ada")
    for name in NAMES[1:]:
        party.join(name)
        party.measure(name)
    return party
