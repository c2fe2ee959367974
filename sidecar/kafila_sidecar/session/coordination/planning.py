"""From measurements to a plan, off the event loop, and the check that a proposed plan is the one we compute too."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from kafila_planner import (
    BadInput,
    BadProblem,
    Node,
    Plan,
    Problem,
    Refusal,
    make_plan,
    member_from_json,
    plan_from_json,
    problem_from_json,
)
from kafila_planner.report.suggest import GUESSES, SMALLER, fits
from kafila_sidecar.errors import InvalidInput, Refused
from kafila_sidecar.session.coordination.effects import Json, Proposal
from kafila_sidecar.session.coordination.messages import read_json
from kafila_sidecar.session.coordination.planning_terms import PlanningTerms
from kafila_sidecar.session.membership.seal import LARGEST_SEALED_BYTES

Packings = Callable[[], Awaitable[Mapping[int, Json]]]
"""By bits, the most first: what a problem says instead where members pack the weights to so many while loading."""


async def compute_plan(problem: Problem) -> Plan | Refusal:
    """The planner's answer, while the event loop goes on."""
    return await asyncio.to_thread(make_plan, problem)


async def advised(problem: Json, refusal: Refusal, packings: Packings) -> Refusal:
    """A problem's refusal, which names packing while loading where that would do, and nowhere guesses at it. One that
    concerns nobody's memory stays."""
    if not refusal.undersized:
        return refusal
    others = [one for one in refusal.suggestions if one not in GUESSES.values() and one != SMALLER]
    for bits, fields in (await packings()).items():
        if await asyncio.to_thread(fits, problem_from_json({**problem, **fields})):
            others.insert(0, f"`--quantize {bits}` at `ollama session create`, which packs the weights while loading")
            break
    return replace(refusal, suggestions=tuple(others or [SMALLER]))


async def propose(epoch: int, problem: Json) -> Proposal | Refusal:
    """The plan of a problem as `kafila-plan` reads it. One that can't be read is a plan that is not admitted."""
    try:
        read = problem_from_json(problem)
    except BadProblem as error:
        return Refusal(f"the session can't be planned: {error}", undersized="", missing_bytes=0)
    made = await compute_plan(read)
    return made if isinstance(made, Refusal) else Proposal(epoch, read, made)


async def check_proposal(
    epoch: int, problem_json: str, plan_json: str, *, own: Sequence[Json], terms: PlanningTerms, compute: bool
) -> Proposal:
    """The host's proposal, once this member has found nothing in it that differs from its own knowledge.

    own: this member's entries, as it told them; none before it measured. terms: the session's, with the sizes that it
    read from the checkpoint itself. compute: false on the host, whose own plan comes back to it.

    Raises: Refused when the measurement, the model, the terms or the plan are others.
    """
    try:
        told = read_json(problem_json, LARGEST_SEALED_BYTES)
        problem, plan = problem_from_json(told), plan_from_json(read_json(plan_json, LARGEST_SEALED_BYTES))
    except (InvalidInput, BadInput) as error:
        raise Refused(f"the host's plan can't be read: {error}") from None
    if isinstance(plan, Refusal):
        raise Refused("the host proposes a plan that its planner did not admit")
    _check_measurement(problem, [member_from_json(entry) for entry in own])
    _check_terms(problem, told, terms)
    if compute and await compute_plan(problem) != plan:
        raise Refused("the host's plan is not the one that its problem gives: are all members on the same version?")
    return Proposal(epoch, problem, plan)


def _check_measurement(problem: Problem, own: Sequence[Node]) -> None:
    members = {member.name: member for member in problem.members}
    if own and members.get(own[-1].name, own[-1]) not in own:  # who comes later is not in it yet
        raise Refused("the host planned with another measurement of this machine than it was told")


def _check_terms(problem: Problem, told: Json, terms: PlanningTerms) -> None:
    """The host decides on anchor, members, edges and objective; all else the terms give."""
    decided = {name: told[name] for name in ("anchor", "members", "edges", "objective") if name in told}
    try:
        agreed = problem_from_json({**terms.fields([member.name for member in problem.members]), **decided})
    except BadProblem as error:
        raise Refused(f"the session's terms can't be planned with: {error}") from None
    if problem.model != agreed.model:
        raise Refused("the host planned for another model than the checkpoint says")
    if replace(problem, model=agreed.model) != agreed:
        raise Refused("the host planned for other terms than the session was opened with")
