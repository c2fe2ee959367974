"""A plan with the alternatives beside it, before anything is fetched."""

import json
from dataclasses import replace

from kafila_planner import (
    BadProblem,
    Plan,
    PlannedStage,
    Problem,
    Refusal,
    plan_to_json,
    problem_from_json,
    problem_to_json,
)
from kafila_planner.model.types import Objective
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Refused
from kafila_sidecar.session.coordination.effects import Json, Proposal
from kafila_sidecar.session.coordination.planning import Packings, advised, compute_plan
from kafila_sidecar.session.terms import as_served, beside_weights, context_for
from kafila_sidecar.weights.checkpoint import Checkpoint


async def of_session(proposal: Proposal | None, checkpoint: Checkpoint | None, own_name: str) -> pb.PlanReply:
    """The plan that a session runs by; `own_name` is this member's.

    Raises:
        Refused: it has none yet.
    """
    if proposal is None or checkpoint is None:
        raise Refused("this session has no plan yet: it is planned once everybody has come")
    return await _reply(proposal.problem, proposal.plan, checkpoint, own_name)


async def of_model(checkpoint: Checkpoint, member: Json, request: pb.PlanRequest, packings: Packings) -> pb.PlanReply:
    """What a session of this machine alone would look like.

    Raises:
        Refused: the measurements can't be planned with.
    """
    context_tokens = context_for(checkpoint, request.context_tokens)
    told = {
        "model": checkpoint.sizes,
        "context_tokens": context_tokens,
        "concurrency": request.concurrency or 1,
        "anchor": member["name"],
        "members": [member],
        **beside_weights(checkpoint, context_tokens),
        **as_served(checkpoint, context_tokens),
    }
    try:
        problem = problem_from_json(told)
    except BadProblem as error:
        raise Refused(f"the session can't be planned: {error}") from None
    plan = await compute_plan(problem)
    if isinstance(plan, Refusal):
        plan = await advised(told, plan, packings)
    return await _reply(problem, plan, checkpoint, member["name"])


async def _reply(problem: Problem, plan: Plan | Refusal, checkpoint: Checkpoint, own_name: str) -> pb.PlanReply:
    others = {objective: await compute_plan(replace(problem, objective=objective)) for objective in Objective}
    return pb.PlanReply(
        plan_json=json.dumps(plan_to_json(plan)),
        problem_json=json.dumps(problem_to_json(problem)),
        alternatives_json={objective.value: json.dumps(plan_to_json(other)) for objective, other in others.items()},
        download_bytes=_downloads(plan, checkpoint, own_name) if isinstance(plan, Plan) else {},
        notices=checkpoint.anatomy.notices,
        quantization=checkpoint.quantization,
    )


def _downloads(plan: Plan, checkpoint: Checkpoint, own_name: str) -> dict[str, int]:
    """Bytes that each stage has to bring here, by member: what is missing on this machine; of the others, who may have
    some of it, the whole stage; nothing where everybody has the folder."""
    wanted = {stage.member: _tensors(stage, plan, checkpoint) for stage in plan.stages}
    is_folder = checkpoint.model.startswith("/")
    return {
        member: checkpoint.download_bytes(names) if is_folder or member == own_name else checkpoint.shard_bytes(names)
        for member, names in wanted.items()
    }


def _tensors(stage: PlannedStage, plan: Plan, checkpoint: Checkpoint) -> frozenset[str]:
    return checkpoint.shard(start=stage.start, end=stage.end, head=stage.member == plan.head)
