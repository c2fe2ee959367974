"""Time to the first token of a prompt: chunks of it follow one another round the ring, as the engine sends them."""

from math import fsum

from kafila_planner.model.case import Case
from kafila_planner.model.cost import chunk_s, handling_s
from kafila_planner.model.rates import Layout, hops, network_s, ring_ps, stage_costs
from kafila_planner.model.types import Tier

CHUNKS = (256, 128)
"""Tokens of shorter chunks than the longest that a stage takes: each costs a step's overhead, and what computes many
tokens at once computes a token of these nearly as quickly."""
GAIN = 0.1  # of the time, that a shorter chunk has to spare: measured times are no nearer to what is served


def ttft_s(case: Case, layout: Layout) -> float | None:
    """None where it is not known how long the prompt is, or how fast a member or a hop.

    Links' transfer times are not in it, since no bandwidth of links is measured.
    """
    ring, tokens = ring_ps(case, layout.order), case.problem.prompt_tokens
    if case.tier is not Tier.MEASURED or tokens is None or ring is None:
        return None
    if _is_measured(case, layout):
        return _as_chunks(case, layout, tokens, chunk_tokens(case, layout, tokens))
    return _at_once(case, layout, tokens, network_s(ring))


def chunk_tokens(case: Case, layout: Layout, tokens: int) -> int:
    """Of a prompt of so many, how many a stage takes at once so that its first token comes soonest: with shorter chunks
    the stages have something to do at the same time. As many as they may where that is not known."""
    most = case.problem.chunk_tokens or tokens
    if len(layout.order) == 1 or not _is_measured(case, layout) or ring_ps(case, layout.order) is None:
        return most
    taken_s = {size: _as_chunks(case, layout, tokens, size) for size in (most, *CHUNKS) if size <= most}
    best = min(taken_s, key=lambda size: taken_s[size])
    return best if taken_s[best] < (1 - GAIN) * taken_s[most] else most


def _is_measured(case: Case, layout: Layout) -> bool:
    return case.tier is Tier.MEASURED and all(case.members[member].prefill_s for member in layout.order)


def _as_chunks(case: Case, layout: Layout, tokens: int, at_once: int) -> float:
    """A stage takes a chunk once it has done the one before, and the stage before it this one; the head then picks."""
    chunks = [min(at_once, tokens - begun) for begun in range(0, tokens, at_once)]
    trips_s = [network_s(case.round_trips.rtt_ps[a][b]) for a, b in hops(layout.order)] or [0.0]
    done_s = [0.0] * len(layout.order)  # by stage: the latest chunk
    for chunk in chunks:
        came_s = 0.0
        for place, seconds in enumerate(_chunk_costs(case, layout, chunk)):
            done_s[place] = max(done_s[place], came_s) + seconds
            came_s = done_s[place] + trips_s[place]
    head = layout.order[0]
    return came_s + case.prices[0].head[head]


def _chunk_costs(case: Case, layout: Layout, tokens: int) -> list[float]:
    mean_block, read = sum(case.problem.model.block_read_bytes) / case.problem.model.blocks, case.chain.read
    costs = []
    for member, (start, end) in zip(layout.order, layout.spans(), strict=True):
        node = case.members[member]
        blocks = (read[end] - read[start]) / mean_block
        costs.append((node.overhead_s or 0.0) + handling_s(node, False) + blocks * chunk_s(node, mean_block, tokens))
    return costs


def _at_once(case: Case, layout: Layout, tokens: int, trips_s: float) -> float | None:
    """Without measured prefill times: every stage reads its weights or computes, whichever takes longer.

    Two operations a weight and token, two bytes a weight: one operation a byte and token.
    """
    total = trips_s + fsum(stage_costs(case, layout, case.prices[0]))
    for member, (start, end) in zip(layout.order, layout.spans(), strict=True):
        flops_per_s = case.members[member].flops_per_s
        if flops_per_s is None:
            return None
        read = case.chain.read[end] - case.chain.read[start]
        total += max(0.0, tokens * read / flops_per_s - read * case.prices[0].per_byte[member])
    return total
