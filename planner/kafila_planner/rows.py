"""What a plan's ring does for others than it was planned for: so many users, another prompt."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from kafila_planner.model.case import case_of
from kafila_planner.model.cost import handling_s
from kafila_planner.model.first_token import chunk_tokens, most_beside, ttft_s
from kafila_planner.model.rates import Layout, paces_of, stage_costs
from kafila_planner.model.runs import RowsPace, turn_s
from kafila_planner.model.types import Plan, Problem, Tier


def paces(problem: Problem, plan: Plan) -> tuple[RowsPace, ...]:
    """One for each number of rows that was priced, 1 first; none where the members' speeds are not known."""
    case = case_of(problem, plan.order)
    return paces_of(case, layout_of(problem, plan)) if case.tier is Tier.MEASURED else ()


def tokens_per_s(users: int, known: Sequence[RowsPace]) -> float:
    """Of so many users together; `known` as `paces` gives it, for at least as many rows as a run will have."""
    return users / turn_s(users, known)


def run_s(problem: Problem, plan: Plan, place: int, rows: int) -> float | None:
    """What a run of so many sequences is predicted to take of a stage's model; None where that was not priced."""
    case = case_of(problem, plan.order)
    prices = next((one for one in case.prices if one.batch == rows), None)
    if prices is None or case.tier is not Tier.MEASURED:
        return None
    member = next(one for one in problem.members if one.name == plan.order[place])
    return stage_costs(case, layout_of(problem, plan), prices)[place] - rows * handling_s(member, place == 0)


def first_token_s(problem: Problem, plan: Plan, prompt_tokens: int) -> float | None:
    """Until the first token of such a prompt, nobody else being served; None where speeds or hops are not known."""
    case = case_of(replace(problem, prompt_tokens=prompt_tokens), plan.order)
    return ttft_s(case, layout_of(problem, plan))


def chunking(problem: Problem, plan: Plan) -> Callable[[int], int]:
    """How many tokens of a prompt, of so many, go round at once, so that its first token comes soonest. Worked out once
    for a length that is asked for again: an engine asks before each chunk."""
    return lru_cache(maxsize=64)(partial(chunk_tokens, case_of(problem, plan.order), layout_of(problem, plan)))


def chunk_beside(problem: Problem, plan: Plan, steps: float) -> int | None:
    """Tokens of the longest chunk of a prompt for which nobody who decodes waits longer, at any stage, than for so many
    of its steps; 0 where no chunk is so short, None where that is not known."""
    return most_beside(case_of(problem, plan.order), layout_of(problem, plan), steps)


def layout_of(problem: Problem, plan: Plan) -> Layout:
    """A plan's ring as the case of its own members sees it."""
    case = case_of(problem, plan.order)
    places = {block: place for place, block in enumerate(case.chain.cuts)}
    counts = tuple(places[stage.end] - places[stage.start] for stage in plan.stages)
    return Layout(tuple(case.names.index(name) for name in plan.order), counts)
