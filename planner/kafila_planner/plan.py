"""The one public call."""

from dataclasses import replace

from kafila_planner.admission import Shortage
from kafila_planner.model.types import Plan, Problem, Refusal
from kafila_planner.moving.weigh import weighed
from kafila_planner.report.idle import idle_of
from kafila_planner.report.report import plan_of
from kafila_planner.report.suggest import suggestions
from kafila_planner.settle import settle


def make_plan(problem: Problem) -> Plan | Refusal:
    """The session's plan, or why it is not admitted. Pure: the same problem gives the same answer everywhere."""
    settled = settle(problem)
    if isinstance(settled, Shortage):
        suggested = suggestions(problem, settled)
        return Refusal(settled.reason, settled.undersized, settled.missing_bytes, suggested)
    settled, notes = weighed(settled)
    idle = idle_of(settled)
    plan = plan_of(settled.case, settled.layout, settled.search, settled.ordered_by, idle)
    return replace(plan, notes=(*plan.notes, *notes))
