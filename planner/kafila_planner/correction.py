"""Served stage times replace the prior: a member's costs are scaled to what its stage really took.

The prior is measured on synthetic blocks before weights exist; a served stage knows better. One factor a member keeps
the shape of its costs over blocks and head, which one stage time alone can't tell apart; runs of several sequences,
whose times are known apart, have a second one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafila_planner.model.case import case_of
from kafila_planner.model.cost import step_s
from kafila_planner.model.types import Node, Objective, Plan, Problem, StepTimes
from kafila_planner.plan import make_plan
from kafila_planner.report.report import plan_of
from kafila_planner.rows import layout_of

WORTHWHILE_GAIN = 0.05
"""A replan moves weights and interrupts answers: it has to gain more than this."""


@dataclass(frozen=True, slots=True)
class Slowness:
    """How many times as long as measured a member takes for everything, and for the runs of several sequences."""

    alone: float = 1.0
    shared: float = 1.0


@dataclass(frozen=True, slots=True)
class Replan:
    """A better plan by the corrected costs. The rates are tokens a second in the objective's own measure: of one user
    for `latency`, else of all at the declared concurrency."""

    plan: Plan
    tokens_per_s_now: float
    tokens_per_s_then: float

    @property
    def gain(self) -> float:
        """0.08 for 8 % more tokens a second."""
        return self.tokens_per_s_then / self.tokens_per_s_now - 1.0


def corrected(problem: Problem, plan: Plan, served_s: Mapping[str, float]) -> Problem:
    """`problem` with the costs of each member in `served_s` (seconds of its stage's model in one decode step) scaled to
    them.

    Members without a stage, or without a predicted cost, keep their prior.
    """
    predicted = {stage.member: plan.model_s(place) for place, stage in enumerate(plan.stages)}
    slowness = {
        name: Slowness(seconds / cost, seconds / cost)
        for name, seconds in served_s.items()
        if seconds > 0 and (cost := predicted.get(name))
    }
    as_measured = Slowness()
    members = tuple(slowed(member, slowness.get(member.name, as_measured)) for member in problem.members)
    return replace(problem, members=members)


def better_plan(problem: Problem, plan: Plan, served_s: Mapping[str, float]) -> Replan | None:
    """The plan that the corrected costs lead to, if it gains more than `WORTHWHILE_GAIN` over the present one."""
    fixed = corrected(problem, plan, served_s)
    then = make_plan(fixed)
    if not isinstance(then, Plan):
        return None
    rate_now, rate_then = _rate(fixed, _same_ring(fixed, plan)), _rate(fixed, then)
    if rate_now is None or rate_then is None or rate_then <= rate_now * (1 + WORTHWHILE_GAIN):
        return None
    return Replan(then, rate_now, rate_then)


def _same_ring(problem: Problem, plan: Plan) -> Plan:
    """The present division with the figures that another problem gives it."""
    return plan_of(case_of(problem, plan.order), layout_of(problem, plan), plan.search, plan.ordered_by, ())


def _rate(problem: Problem, plan: Plan) -> float | None:
    return plan.tokens_per_s_one_user if problem.objective is Objective.LATENCY else plan.tokens_per_s


def slowed(member: Node, slowness: Slowness) -> Node:
    """What a member costs that takes so many times as long."""
    if slowness == Slowness():
        return member
    factor, bandwidth = slowness.alone, member.bandwidth_bytes_per_s
    return replace(
        member,
        bandwidth_bytes_per_s=None if bandwidth is None else bandwidth / factor,
        overhead_s=None if member.overhead_s is None else member.overhead_s * factor,
        block_s=slowed_steps(member.block_s, slowness),
        head_s=slowed_steps(member.head_s, slowness),
        prefill_s=tuple((tokens, seconds * factor) for tokens, seconds in member.prefill_s),
        handling_s=None if member.handling_s is None else member.handling_s * factor,
        head_handling_s=None if member.head_handling_s is None else member.head_handling_s * factor,
    )


def slowed_steps(steps: StepTimes, slowness: Slowness) -> StepTimes:
    """Step times by rows, those of several as many times as long. Two rows get a time of their own, since between
    measured ones the planner draws a line, and one row is slowed otherwise."""
    known = dict(steps)
    if len(known) > 1 and 1 in known:
        known.setdefault(2, step_s(steps, 2))
    return tuple((rows, known[rows] * (slowness.alone if rows == 1 else slowness.shared)) for rows in sorted(known))
