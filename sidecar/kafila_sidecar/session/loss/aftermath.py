"""How a session would go on if one of its members were lost. Pure; the planner takes its time."""

from collections.abc import Sequence
from dataclasses import dataclass

from kafila_planner import BadProblem, Plan, PlannedStage, make_plan, problem_from_json, tolls_of, wait_s
from kafila_sidecar.session.coordination.effects import Json, Proposal
from kafila_sidecar.session.coordination.knowledge import Knowledge
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.loss.repair import seconds, size

NOTICED_S = 3.0  # until a loss is noticed, planned for and linked
SUCCEEDED_FROM = 3  # members: of two, nobody succeeds the host


@dataclass(frozen=True, slots=True)
class Aftermath:
    """Of one member's loss. `wait_s`: until the others answer again, None where they can't; 0.0 where they need not
    stop. `fetch_bytes`: what comes over the network for that. `plan`: theirs, where there is a new one."""

    member: str
    wait_s: float | None
    fetch_bytes: int = 0
    missing_bytes: int = 0
    why: str = ""  # they can't go on, beyond missing bytes
    plan: Plan | None = None

    @property
    def sentence(self) -> str:
        """What `status` says."""
        if self.wait_s is None:
            return f"can't go on: {size(self.missing_bytes)} too little" if self.missing_bytes else self._cannot
        if not self.wait_s:
            return "goes on at once"
        fetching = f", for which {size(self.fetch_bytes)} are fetched" if self.fetch_bytes else ""
        return f"goes on after about {seconds(self.wait_s)}{fetching}"

    @property
    def _cannot(self) -> str:
        return f"can't go on: {self.why}"

    def part_of(self, member: str) -> tuple[PlannedStage, bool] | None:
        """A member's stage then, and whether it is the head."""
        if self.plan is None:
            return None
        stage = next((one for one in self.plan.stages if one.member == member), None)
        return None if stage is None else (stage, self.plan.head == member)


def aftermath(
    lost: str, now: Proposal, terms: PlanningTerms, knows: Knowledge, members: Sequence[str], *, host: str
) -> Aftermath | Json:
    """By what the members hold now, and the plan that stands; or the problem to plan, for `planned`. `members` in the
    order of the log, in which the first one succeeds the host."""
    if lost not in (*now.plan.order, host):
        return Aftermath(lost, 0.0)
    if lost == host and 1 < len(members) < SUCCEEDED_FROM:
        return Aftermath(lost, None, why="of two, nobody succeeds the host")
    left = [name for name in members if name != lost]
    names = [name for name in left if name in knows.capabilities and name not in knows.aside]
    if not names:
        return Aftermath(lost, None, why="nobody is left who was measured")
    return knows.problem(terms, names, host=left[0] if host == lost else host)


def planned(lost: str, told: Json) -> Aftermath:
    """The same, once the planner has had its time."""
    try:
        problem = problem_from_json(told)
    except BadProblem as error:
        return Aftermath(lost, None, why=str(error))
    made = make_plan(problem)
    if isinstance(made, Plan):
        fetch_bytes = sum(told.toll.fetch_bytes for told in tolls_of(problem, made))
        return Aftermath(lost, NOTICED_S + wait_s(problem, made), fetch_bytes, plan=made)
    return Aftermath(lost, None, missing_bytes=made.missing_bytes, why=made.reason)
