"""What a call to the sidecar has to say: one that says nothing, or no number, never does more than was meant."""

from math import isfinite
from typing import Any

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.session.terms import check_sizes


def check_said(request: Any) -> None:
    """Raises InvalidInput for a request that lacks what it needs. An empty `session` means the only open one."""
    match request:
        case pb.JoinSessionRequest(session=""):
            raise InvalidInput("no offer is named: give the session's id, as the offer has it")
        case pb.KickRequest(member=""):
            raise InvalidInput("no member is named: `ollama session status` shows the names")
        case pb.LockRequest() if not request.HasField("locked"):
            raise InvalidInput("it isn't said whether to lock the session or to unlock it: set locked")
        case pb.RemoveWeightsRequest(model=""):
            raise InvalidInput("no model is named whose weights are to go: `ollama session weights` lists them")
        case pb.PruneWeightsRequest():
            _check_age(request)
        case pb.PlanRequest():
            check_sizes(request.context_tokens, request.concurrency)


def _check_age(request: pb.PruneWeightsRequest) -> None:
    if not request.HasField("unused_for_s"):
        raise InvalidInput("it isn't said which weights are to go: set unused_for_s, 0 for all that no session uses")
    if not isfinite(request.unused_for_s) or request.unused_for_s < 0:
        raise InvalidInput(f"weights can't be unused for {request.unused_for_s} s: give 0 or more")
