"""The JSON interface, out: plans and refusals, and problems again (`problem_from_json` reads them back unchanged)."""

from dataclasses import asdict
from typing import Any

from kafila_planner.model.types import (
    HeldParts,
    MeasuredEdge,
    Model,
    Node,
    Plan,
    PlannedHop,
    Problem,
    Refusal,
    StepTimes,
)


def plan_to_json(result: Plan | Refusal) -> dict[str, Any]:
    """One JSON object; its field names are the interface."""
    if isinstance(result, Refusal):
        return {"admitted": False, **asdict(result), "suggestions": list(result.suggestions)}
    return {
        "admitted": True,
        **asdict(result),
        "tier": result.tier.value,
        "ordered_by": result.ordered_by.value,
        "search": result.search.value,
        "order": list(result.order),
        "stages": [asdict(stage) for stage in result.stages],
        "hops": [_hop(hop) for hop in result.hops],
        "handling_s": list(result.handling_s),
        "idle": [asdict(one) for one in result.idle],
        "notes": list(result.notes),
    }


def _hop(hop: PlannedHop) -> dict[str, Any]:
    return {"from": hop.from_member, "to": hop.to_member, "path": hop.path.value, "cost_s": hop.cost_s}


def problem_to_json(problem: Problem) -> dict[str, Any]:
    return {
        "model": _model(problem.model),
        "context_tokens": problem.context_tokens,
        "concurrency": problem.concurrency,
        "anchor": problem.anchor,
        "strategy": problem.strategy.value,
        "objective": problem.objective.value,
        "reserve_bytes": problem.reserve_bytes,
        "prefill_peak_bytes": problem.prefill_peak_bytes,
        "prompt_tokens": problem.prompt_tokens,
        "most_rows": problem.most_rows,
        "chunk_tokens": problem.chunk_tokens,
        "state_bytes": problem.state_bytes,
        "require": sorted(problem.require),
        "exclude": sorted(problem.exclude),
        "members": [member_to_json(member) for member in problem.members],
        "edges": [_edge(edge) for edge in problem.edges],
    }


def _model(model: Model) -> dict[str, Any]:
    return {
        "blocks": model.blocks,
        "block_bytes": _each(model.block_bytes),
        "block_read_bytes": _each(model.block_read_bytes),
        "kv_bytes_per_token_per_block": _each(model.kv_bytes_per_token),
        "kv_fixed_bytes": _each(model.kv_fixed_bytes),
        "kv_window_tokens": _each(model.kv_window_tokens),
        "embed_bytes": model.embed_bytes,
        "unembed_bytes": model.unembed_bytes,
        "norm_bytes": model.norm_bytes,
        "draft_bytes": model.draft_bytes,
        "tied": model.tied,
        "no_cut_after": list(model.no_cut_after),
    }


def _each(values: tuple[int | None, ...]) -> Any:
    """One number where all blocks have the same."""
    return values[0] if len(set(values)) == 1 else list(values)


def member_to_json(member: Node) -> dict[str, Any]:
    """One entry of "members", as `member_from_json` reads it."""
    return {
        "name": member.name,
        "mapping": member.mapping.value,
        "filtering": member.filtering.value,
        "udp": member.udp,
        "rtt_s": member.rtt_s,
        "bandwidth_bytes_per_s": member.bandwidth_bytes_per_s,
        "overhead_s": member.overhead_s,
        "flops_per_s": member.flops_per_s,
        "memory_bytes": member.memory_bytes,
        "block_s": _step_times(member.block_s),
        "head_s": _step_times(member.head_s),
        "prefill_s": _step_times(member.prefill_s),
        "handling_s": member.handling_s,
        "head_handling_s": member.head_handling_s,
        "holds": None if member.holds is None else _holds(member.holds),
    }


def _holds(held: HeldParts) -> dict[str, Any]:
    return {
        **asdict(held),
        "disk_blocks": [list(bounds) for bounds in held.disk_blocks],
        "memory_blocks": [list(bounds) for bounds in held.memory_blocks],
    }


def _step_times(steps: StepTimes) -> dict[str, float] | None:
    return {str(batch): seconds for batch, seconds in steps} or None


def _edge(edge: MeasuredEdge) -> dict[str, Any]:
    path = None if edge.path is None else edge.path.value
    sent = {name: speed for name, speed in zip(edge.between, edge.bytes_per_s, strict=True) if speed is not None}
    told = {"between": list(edge.between), "rtt_s": edge.rtt_s, "path": path}
    return {**told, "bytes_per_s": sent} if sent else told
