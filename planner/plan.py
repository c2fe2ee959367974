"""The one public call."""

from planner.admission import Shortage, overfull, shortage
from planner.baselines import memory_shares, snap, uniform_shares
from planner.case import Case, case_of
from planner.partition import divide
from planner.rates import Layout
from planner.report import plan_of
from planner.types import OrderedBy, Plan, Problem, Refusal, Search, Strategy


def make_plan(problem: Problem) -> Plan | Refusal:
    """The session's plan, or why it is not admitted. Pure: the same problem gives the same answer everywhere."""
    case = case_of(problem)
    found = _layout(case)
    if isinstance(found, Shortage):
        return Refusal(found.reason, found.undersized, found.missing_bytes)
    return plan_of(case, found, Search.HEURISTIC, OrderedBy.COUNTING, ())


def _layout(case: Case) -> Layout | Shortage:
    everybody = range(len(case.members))
    order = tuple([*everybody[case.anchor :], *everybody[: case.anchor]][: case.chain.atoms])
    if case.problem.strategy is Strategy.KAFILA and case.prices:
        division = divide(case.chain, case.devices(order, case.prices[0]))
        return Layout(order, division.counts) if division else shortage(case, order, order[:1])
    blocks = case.problem.model.blocks
    shares = uniform_shares(len(order), blocks)
    if case.problem.strategy is not Strategy.UNIFORM:
        shares = memory_shares([case.members[member].memory_bytes or 0 for member in order], blocks)
    layout = Layout(order, snap(case.chain, shares))
    return overfull(case, layout) or layout
