"""A plan with the alternatives beside it, before anything is fetched."""

import json
from typing import Any

from kafila_proto import sidecar_pb2 as pb

from sidecar.errors import Refused
from sidecar.session.events import Json, Proposal
from sidecar.session.planning import compute_plan
from sidecar.session.terms import DEFAULT_CONTEXT_TOKENS, OBJECTIVES, beside_weights
from sidecar.weights.checkpoint import Checkpoint


async def of_session(proposal: Proposal | None, checkpoint: Checkpoint) -> pb.PlanReply:
    """The plan that a session runs by.

    Raises:
        Refused: it has none yet.
    """
    if proposal is None:
        raise Refused("this session has no plan yet: it is planned once everybody has come")
    return await _reply(proposal.problem, proposal.plan, checkpoint)


async def of_model(checkpoint: Checkpoint, member: Json, request: pb.PlanRequest) -> pb.PlanReply:
    """What a session of this machine alone would look like.

    Raises:
        Refused: the measurements can't be planned with.
    """
    context_tokens = request.context_tokens or DEFAULT_CONTEXT_TOKENS
    problem: dict[str, Any] = {
        "model": checkpoint.sizes,
        "context_tokens": context_tokens,
        "concurrency": request.concurrency or 1,
        "anchor": member["name"],
        "members": [member],
        **beside_weights(checkpoint, context_tokens),
    }
    return await _reply(problem, await compute_plan(problem), checkpoint)


async def _reply(problem: Json, plan: Json, checkpoint: Checkpoint) -> pb.PlanReply:
    alternatives = {name: await compute_plan({**problem, "objective": name}) for name in OBJECTIVES}
    return pb.PlanReply(
        plan_json=json.dumps(plan),
        problem_json=json.dumps(problem),
        alternatives_json={name: json.dumps(other) for name, other in alternatives.items()},
        download_bytes=_downloads(plan, checkpoint),
    )


def _downloads(plan: Json, checkpoint: Checkpoint) -> dict[str, int]:
    """Bytes of each stage's tensors, by member, whoever has some of them already."""
    return {
        stage["member"]: checkpoint.shard_bytes(
            checkpoint.shard(start=stage["start"], end=stage["end"], head=stage["member"] == plan["head"])
        )
        for stage in plan.get("stages", [])
    }
