"""Problems and plans as values, for tests that need some, whatever the planner would make of them."""

from collections.abc import Sequence
from typing import Any

from kafila_planner import Plan, PlannedHop, PlannedStage, Problem, problem_from_json
from kafila_planner.model.types import OrderedBy, Path, SearchKind, Tier

MODEL = {
    "blocks": 6,
    "block_bytes": 1000,
    "embed_bytes": 100,
    "unembed_bytes": 100,
    "norm_bytes": 10,
    "tied": False,
    "kv_bytes_per_token_per_block": 8,
}


def problem_of(*names: str, **fields: Any) -> Problem:
    """A problem of members about whom nothing is known but what `fields` says."""
    return problem_from_json({"model": MODEL, "members": [{"name": name} for name in names], **fields})


def stage(
    member: str, start: int, end: int, *, cost_s: float | None = 0.001, resident_bytes: int = 1000
) -> PlannedStage:
    return PlannedStage(member, start, end, cost_s, resident_bytes, limit_blocks=end - start)


def plan_of(stages: Sequence[PlannedStage], *, hop_s: Sequence[float | None] | None = None) -> Plan:
    """A ring of direct hops along the stages; `hop_s` one way, half a millisecond unless given."""
    order = tuple(one.member for one in stages)
    ends = list(zip(order, (*order[1:], order[0]), strict=True)) if len(order) > 1 else []
    costs = hop_s or [0.0005] * len(ends)
    return Plan(
        tier=Tier.MEASURED,
        ordered_by=OrderedBy.PRICED,
        search=SearchKind.EXACT,
        head=order[0],
        order=order,
        stages=tuple(stages),
        hops=tuple(PlannedHop(*pair, Path.DIRECT, cost) for pair, cost in zip(ends, costs, strict=True)),
        relayed_hops=0,
        ring_cost_s=None,
        bottleneck_s=None,
        compute_s=None,
        network_s=None,
        circuit_s=0.01,
        imbalance=None,
        utilisation=None,
        tokens_per_s=None,
        tokens_per_s_one_user=None,
        batch=1,
        ttft_s=None,
    )
