"""The one public call."""

from planner.admission import Shortage
from planner.idle import idle_of
from planner.report import plan_of
from planner.settle import settle
from planner.suggest import suggestions
from planner.types import Plan, Problem, Refusal


def make_plan(problem: Problem) -> Plan | Refusal:
    """The session's plan, or why it is not admitted. Pure: the same problem gives the same answer everywhere."""
    settled = settle(problem)
    if isinstance(settled, Shortage):
        suggested = suggestions(problem, settled)
        return Refusal(settled.reason, settled.undersized, settled.missing_bytes, suggested)
    idle = idle_of(settled)
    return plan_of(settled.case, settled.layout, settled.search, settled.ordered_by, idle)
