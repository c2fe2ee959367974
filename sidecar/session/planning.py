"""From measurements to a plan, off the event loop, and the check that a proposed plan is the one we compute too."""

import asyncio
import json
from typing import Any

import planner
from planner.errors import BadProblem
from sidecar.errors import Refused
from sidecar.session.events import Json, Proposal


async def compute_plan(problem: Json) -> dict[str, Any]:
    """The planner's output for `problem`, as `kafila-plan` prints it.

    Raises: Refused when the problem can't be read, which names the field and the member.
    """
    try:
        result = await asyncio.to_thread(lambda: planner.make_plan(planner.problem_from_json(problem)))
    except BadProblem as error:
        raise Refused(f"the session can't be planned: {error}") from None
    return planner.plan_to_json(result)


async def check_proposal(
    epoch: int, problem_json: str, plan_json: str, *, own: Json | None, model: Json, compute: bool
) -> Proposal:
    """The admitter's proposal, once this member has found nothing in it that differs from its own knowledge.

    own: this member's own measurement, as it told it. model: the sizes that it read from the checkpoint itself.
    compute: false on the admitter, whose own plan comes back to it.

    Raises: Refused when the measurement, the model or the plan is another one.
    """
    try:
        problem, plan = json.loads(problem_json), json.loads(plan_json)
        members = {member["name"]: member for member in problem["members"]}
    except (ValueError, TypeError, KeyError) as error:
        raise Refused(f"the host's plan can't be read: {error}") from None
    if own is not None and members.get(own["name"]) != own:
        raise Refused("the host planned with another measurement of this machine than it was told")
    if problem.get("model") != model:
        raise Refused("the host planned for another model than the checkpoint says")
    if compute and await compute_plan(problem) != plan:
        raise Refused("the host's plan is not the one that its problem gives: are all members on the same version?")
    return Proposal(epoch, problem, plan)
