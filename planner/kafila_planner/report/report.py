"""A layout told as a plan: stages, hops, figures, who is idle."""

from math import fsum

from kafila_planner.model.case import Case
from kafila_planner.model.cost import handling_s
from kafila_planner.model.first_token import ttft_s
from kafila_planner.model.rates import Layout, best_batch, hops, network_s, ring_ps, stage_costs
from kafila_planner.model.reach import PICOSECONDS
from kafila_planner.model.types import (
    Idle,
    Objective,
    OrderedBy,
    Path,
    Plan,
    PlannedHop,
    PlannedStage,
    SearchKind,
    Strategy,
    Tier,
)

DIVIDED_BY = {
    Tier.ARITHMETIC: "blocks are divided by arithmetic throughput, and the head stays with the anchor",
    Tier.WORKING_SET: "blocks are divided in proportion to memory, and the head stays with the anchor",
}


def plan_of(case: Case, layout: Layout, search: SearchKind, ordered_by: OrderedBy, idle: tuple[Idle, ...]) -> Plan:
    """Every figure of the ring, from the same costs that it was chosen by."""
    costs = stage_costs(case, layout, case.prices[0]) if case.prices else None
    ring = ring_ps(case, layout.order)
    ring_hops = tuple(_hop(case, a, b) for a, b in hops(layout.order))
    measured = costs is not None and case.tier is Tier.MEASURED
    network = None if ring is None else network_s(ring)
    seconds, batch = best_batch(case, layout) if measured else (None, 1)
    one_user = fsum(costs) + network_s(ring) if costs is not None and measured else None
    return Plan(
        tier=case.tier,
        ordered_by=ordered_by,
        search=search,
        head=case.members[layout.order[0]].name,
        order=tuple(case.members[member].name for member in layout.order),
        stages=_stages(case, layout, costs),
        hops=ring_hops,
        relayed_hops=sum(hop.path is Path.RELAY for hop in ring_hops),
        ring_cost_s=None if ring is None or ordered_by is OrderedBy.COUNTING else ring / PICOSECONDS,
        bottleneck_s=None if costs is None else max(costs),
        compute_s=None if costs is None else fsum(costs),
        network_s=network,
        circuit_s=one_user if network is not None else None,
        imbalance=None if costs is None else max(costs) / min(costs),
        utilisation=None if costs is None else fsum(costs) / len(costs) / max(costs),
        tokens_per_s=None if seconds is None else 1 / seconds,
        tokens_per_s_one_user=None if one_user is None else 1 / one_user,
        batch=batch,
        ttft_s=ttft_s(case, layout),
        prompt_tokens=case.problem.prompt_tokens,
        handling_s=_handling_s(case, layout) if measured else (),
        idle=idle,
        notes=_notes(case, ring),
    )


def _stages(case: Case, layout: Layout, costs: list[float] | None) -> tuple[PlannedStage, ...]:
    return tuple(
        PlannedStage(
            member=case.members[member].name,
            start=case.chain.cuts[start],
            end=case.chain.cuts[end],
            cost_s=None if costs is None else costs[place],
            resident_bytes=_resident_bytes(case, place == 0, start, end),
            limit_blocks=case.chain.limit_blocks(start, case.room(member, place == 0)),
        )
        for place, (member, (start, end)) in enumerate(zip(layout.order, layout.spans(), strict=True))
    )


def _handling_s(case: Case, layout: Layout) -> tuple[float, ...]:
    """Of each stage; nothing where nobody's was measured."""
    each = tuple(handling_s(case.members[member], place == 0) for place, member in enumerate(layout.order))
    return each if any(each) else ()


def _resident_bytes(case: Case, is_head: bool, start: int, end: int) -> int:
    """Weights and KV of the blocks, what the head holds, the runtime's reserve and the prefill peak."""
    problem = case.problem
    head = problem.model.head_held_bytes if is_head else 0
    return case.chain.held[end] - case.chain.held[start] + head + problem.reserve_bytes + problem.prefill_peak_bytes


def _hop(case: Case, a: int, b: int) -> PlannedHop:
    rtt = case.round_trips.rtt_ps[a][b]
    cost = None if rtt is None else network_s(rtt)
    return PlannedHop(case.members[a].name, case.members[b].name, case.round_trips.path(a, b), cost)


def _notes(case: Case, ring: int | None) -> tuple[str, ...]:
    """What was missing, and what was done instead."""
    notes = []
    if case.tier is not Tier.MEASURED:
        notes.append(case.tier_why)
        if case.problem.strategy is Strategy.KAFILA:
            notes.append(DIVIDED_BY[case.tier])
            if case.problem.objective is not Objective.PAPER:
                notes.append(f"without seconds {case.problem.objective} can't be weighed: everybody who can takes part")
    if case.tier is Tier.ARITHMETIC:
        notes.append("costs are relative: the fastest member's mean block is 1")
    if ring is None:
        notes.append("a hop's round trip is not known: rates leave the network out")
    return tuple(notes)
