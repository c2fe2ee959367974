"""Who takes part where everybody has to: the objective `paper`, the baselines, and the tiers without seconds."""

from kafila_planner.admission import can_hold_a_block
from kafila_planner.model.case import Case
from kafila_planner.model.types import Strategy, Tier

SURPLUS = "more members than blocks, and it is among the slowest"


def crew_of(case: Case) -> tuple[list[str], list[str]]:
    """The names in the ring and those left over: the slowest, if there are more members than blocks.

    A baseline keeps the anchor, who is its head.
    """
    fixed_head = case.problem.strategy is not Strategy.KAFILA
    by_rank = sorted(range(len(case.members)), key=lambda member: _rank(case, member, fixed_head))
    names = [case.members[member].name for member in by_rank]
    return sorted(names[: case.chain.atoms]), sorted(names[case.chain.atoms :])


def _rank(case: Case, member: int, fixed_head: bool) -> tuple[bool, bool, bool, float, int]:
    """Who goes first: the fixed head, required, able to hold a block, fast; then by name."""
    is_head = fixed_head and member == case.anchor
    able = can_hold_a_block(case, member)
    return not is_head, member not in case.required, not able, _slowness(case, member), member


def _slowness(case: Case, member: int) -> float:
    """A mean block's cost, or how little memory there is where no cost is known."""
    if case.tier is Tier.WORKING_SET:
        return -float(case.members[member].memory_bytes or 0)
    mean_read = case.chain.read[-1] / case.problem.model.blocks
    return case.prices[0].fixed[member] + case.prices[0].per_byte[member] * mean_read
