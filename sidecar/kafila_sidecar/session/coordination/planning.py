"""From measurements to a plan, off the event loop, and the check that a proposed plan is the one we compute too."""

import asyncio
from collections.abc import Sequence
from typing import Any

import kafila_planner
from kafila_planner.errors import BadProblem
from kafila_sidecar.errors import InvalidInput, Refused
from kafila_sidecar.session.coordination.coordinator import PlanningTerms
from kafila_sidecar.session.coordination.effects import Json, Proposal
from kafila_sidecar.session.coordination.messages import read_json
from kafila_sidecar.session.membership.seal import LARGEST_SEALED_BYTES

_PLANNED = frozenset({"anchor", "members", "edges"})  # of a problem: what the terms don't give


async def compute_plan(problem: Json) -> dict[str, Any]:
    """The planner's output for `problem`, as `kafila-plan` prints it.

    Raises: Refused when the problem can't be read, which names the field and the member.
    """
    try:
        result = await asyncio.to_thread(lambda: kafila_planner.make_plan(kafila_planner.problem_from_json(problem)))
    except BadProblem as error:
        raise Refused(f"the session can't be planned: {error}") from None
    return kafila_planner.plan_to_json(result)


async def check_proposal(
    epoch: int, problem_json: str, plan_json: str, *, own: Sequence[Json], terms: PlanningTerms, compute: bool
) -> Proposal:
    """The host's proposal, once this member has found nothing in it that differs from its own knowledge.

    own: this member's entries, as it told them; none before it measured. terms: the session's, with the sizes that it
    read from the checkpoint itself. compute: false on the host, whose own plan comes back to it.

    Raises: Refused when the measurement, the model, the terms or the plan are others.
    """
    try:
        problem, plan = read_json(problem_json, LARGEST_SEALED_BYTES), read_json(plan_json, LARGEST_SEALED_BYTES)
        members = {member["name"]: member for member in problem["members"]}
        admitted = plan["admitted"] is True
    except (InvalidInput, TypeError, KeyError) as error:
        raise Refused(f"the host's plan can't be read: {error}") from None
    if not admitted:
        raise Refused("the host proposes a plan that its planner did not admit")
    if own and members.get(own[-1]["name"], own[-1]) not in own:  # who comes later is not in it yet
        raise Refused("the host planned with another measurement of this machine than it was told")
    if problem.get("model") != terms.model:
        raise Refused("the host planned for another model than the checkpoint says")
    agreed = terms.fields(list(members))
    if {name: value for name, value in problem.items() if name not in _PLANNED} != agreed:
        raise Refused("the host planned for other terms than the session was opened with")
    if compute and await compute_plan(problem) != plan:
        raise Refused("the host's plan is not the one that its problem gives: are all members on the same version?")
    return Proposal(epoch, problem, plan)
