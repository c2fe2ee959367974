"""The JSON interface, in: plans and refusals, as `plan_to_json` writes them."""

import sys

from kafila_planner.errors import BadPlan
from kafila_planner.json.fields import (
    MOST_BLOCKS,
    MOST_MEMBERS,
    Fields,
    listed,
    one_of,
    text,
    truth,
    whole,
    within,
)
from kafila_planner.model.types import (
    Idle,
    OrderedBy,
    Path,
    Plan,
    PlannedHop,
    PlannedStage,
    Refusal,
    SearchKind,
    Tier,
)

PLAN_FIELDS = ("admitted", *Plan.__dataclass_fields__)
REFUSAL_FIELDS = ("admitted", *Refusal.__dataclass_fields__)
STAGE_FIELDS = tuple(PlannedStage.__dataclass_fields__)
HOP_FIELDS = ("from", "to", "path", "cost_s")
IDLE_FIELDS = tuple(Idle.__dataclass_fields__)

MOST_SENTENCES = 16
"""Notes, and suggestions; the planner makes six at most."""

MOST_MISSING_BYTES = 1e80
"""Above what the largest problem can lack: blocks · sequences · tokens · bytes."""

figure = within(0.0, sys.float_info.max)
"""Quotients and sums of what the problem's bounds allow: only finite."""


def plan_from_json(obj: object) -> Plan | Refusal:
    """What `plan_to_json` told, unchanged.

    Raises BadPlan with one sentence that names the field: of the wrong kind, or stages that are no division of blocks
    0, 1, … along the ring. Whether the figures are true is not looked at: that takes the problem.
    """
    fields = Fields("the plan", obj, (*PLAN_FIELDS, *REFUSAL_FIELDS), BadPlan)
    return _plan(obj) if fields.get("admitted", truth) else _refusal(obj)


def _refusal(obj: object) -> Refusal:
    fields = Fields("the refusal", obj, REFUSAL_FIELDS, BadPlan)
    return Refusal(
        reason=fields.get("reason", text),
        undersized=fields.get("undersized", text),
        missing_bytes=fields.get("missing_bytes", whole(0, MOST_MISSING_BYTES)),
        suggestions=fields.get("suggestions", listed(text, MOST_SENTENCES)),
    )


def _plan(obj: object) -> Plan:
    fields = Fields("the plan", obj, PLAN_FIELDS, BadPlan)
    order = _order(fields)
    hops = _hops(fields, order)
    return Plan(
        tier=fields.get("tier", one_of(Tier, Tier)),
        ordered_by=fields.get("ordered_by", one_of(OrderedBy, OrderedBy)),
        search=fields.get("search", one_of(SearchKind, SearchKind)),
        head=order[0],
        order=order,
        stages=_stages(fields, order),
        hops=hops,
        relayed_hops=_relayed(fields, hops),
        ring_cost_s=fields.get("ring_cost_s", figure, None),
        bottleneck_s=fields.get("bottleneck_s", figure, None),
        compute_s=fields.get("compute_s", figure, None),
        network_s=fields.get("network_s", figure, None),
        circuit_s=fields.get("circuit_s", figure, None),
        imbalance=fields.get("imbalance", figure, None),
        utilisation=fields.get("utilisation", figure, None),
        tokens_per_s=fields.get("tokens_per_s", figure, None),
        tokens_per_s_one_user=fields.get("tokens_per_s_one_user", figure, None),
        batch=fields.get("batch", whole(1)),
        ttft_s=fields.get("ttft_s", figure, None),
        prompt_tokens=fields.get("prompt_tokens", whole(1), None),
        handling_s=_handling(fields, order),
        idle=_idle_members(fields, order),
        notes=fields.get("notes", listed(text, MOST_SENTENCES)),
    )


def _handling(fields: Fields, order: tuple[str, ...]) -> tuple[float, ...]:
    told = fields.get("handling_s", listed(figure, MOST_MEMBERS), ())
    if len(told) not in (0, len(order)):
        raise fields.fault("handling_s", "one for each stage, or none", list(told))
    return told


def _order(fields: Fields) -> tuple[str, ...]:
    """The ring's members, each once, the head first."""
    order = fields.get("order", listed(text, MOST_MEMBERS))
    if not order or len(set(order)) != len(order):
        raise fields.fault("order", "a list of members, each once", list(order))
    head = fields.get("head", text)
    if head != order[0]:
        raise fields.fault("head", f"{order[0]!r}, the first of order", head)
    return order


def _stages(fields: Fields, order: tuple[str, ...]) -> tuple[PlannedStage, ...]:
    stages = fields.get("stages", listed(_stage, MOST_MEMBERS))
    _expect(fields, "stages", [stage.member for stage in stages], list(order))
    end = 0
    for place, stage in enumerate(stages):
        if stage.start != end or stage.end <= stage.start:
            raise fields.fault(f"stages[{place}]", f"blocks from {end} on", [stage.start, stage.end])
        end = stage.end
    return stages


def _stage(_fields: Fields, name: str, value: object) -> PlannedStage:
    fields = Fields(name, value, STAGE_FIELDS, BadPlan)
    return PlannedStage(
        member=fields.get("member", text),
        start=fields.get("start", whole(0, MOST_BLOCKS)),
        end=fields.get("end", whole(1, MOST_BLOCKS)),
        cost_s=fields.get("cost_s", figure, None),
        resident_bytes=fields.get("resident_bytes", whole(0)),
        limit_blocks=fields.get("limit_blocks", whole(0, MOST_BLOCKS)),
    )


def _hops(fields: Fields, order: tuple[str, ...]) -> tuple[PlannedHop, ...]:
    """Each member's way to the next, the last one's back to the head; none where there is but one."""
    hops = fields.get("hops", listed(_hop, MOST_MEMBERS))
    ring = list(zip(order, (*order[1:], order[0]), strict=True)) if len(order) > 1 else []
    _expect(fields, "hops", [(hop.from_member, hop.to_member) for hop in hops], ring)
    return hops


def _hop(_fields: Fields, name: str, value: object) -> PlannedHop:
    fields = Fields(name, value, HOP_FIELDS, BadPlan)
    return PlannedHop(
        from_member=fields.get("from", text),
        to_member=fields.get("to", text),
        path=fields.get("path", one_of(Path, Path)),
        cost_s=fields.get("cost_s", figure, None),
    )


def _relayed(fields: Fields, hops: tuple[PlannedHop, ...]) -> int:
    told = fields.get("relayed_hops", whole(0, MOST_MEMBERS))
    relayed = sum(hop.path is Path.RELAY for hop in hops)
    if told != relayed:
        raise fields.fault("relayed_hops", f"{relayed}, as many as hops says", told)
    return told


def _idle_members(fields: Fields, order: tuple[str, ...]) -> tuple[Idle, ...]:
    idle = fields.get("idle", listed(_idle, MOST_MEMBERS))
    names = [one.member for one in idle]
    if len({*names, *order}) != len(names) + len(order):
        raise fields.fault("idle", "of members without a stage, each once", names)
    return idle


def _idle(_fields: Fields, name: str, value: object) -> Idle:
    fields = Fields(name, value, IDLE_FIELDS, BadPlan)
    return Idle(
        member=fields.get("member", text),
        why=fields.get("why", text),
        tokens_per_s_with=fields.get("tokens_per_s_with", figure, None),
    )


def _expect(fields: Fields, name: str, told: object, ring: object) -> None:
    if told != ring:
        raise fields.fault(name, "along the ring that order gives", told)
