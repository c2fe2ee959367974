"""Time to the first token of a prompt: chunks of it follow one another round the ring, as the engine sends them."""

from bisect import bisect_right
from collections.abc import Sequence
from math import fsum

from kafila_planner.model.case import Case
from kafila_planner.model.cost import chunk_s, handling_s
from kafila_planner.model.rates import Layout, hops, network_s, ring_ps, stage_costs
from kafila_planner.model.types import Tier

CHUNKS = (256, 128)
"""Tokens of shorter chunks than the longest that a stage takes: each costs a step's overhead, and what computes many
tokens at once computes a token of these nearly as quickly."""
SLOW_LINK_CHUNKS = (64, 32)
"""Shorter ones yet, where a chunk takes a link longer than any stage: what they cost the stages is waited for anyway,
and the next stage begins the sooner."""
GAIN = 0.1  # of the time, that a shorter chunk has to spare: measured times are no nearer to what is served


def ttft_s(case: Case, layout: Layout) -> float | None:
    """None where it is not known how long the prompt is, or how fast a member or a hop. What a chunk's states take on a
    link counts where the link's speed is known.
    """
    ring, tokens = ring_ps(case, layout.order), case.problem.prompt_tokens
    if case.tier is not Tier.MEASURED or tokens is None or ring is None:
        return None
    if _is_measured(case, layout):
        return _as_chunks(case, layout, tokens, chunk_tokens(case, layout, tokens))
    return _at_once(case, layout, tokens, network_s(ring) + tokens * fsum(_carried_s(case, layout)[:-1]))


def chunk_tokens(case: Case, layout: Layout, tokens: int) -> int:
    """Of a prompt of so many, how many a stage takes at once so that its first token comes soonest: with shorter chunks
    the stages have something to do at the same time. As many as they may where that is not known."""
    most = case.problem.chunk_tokens or tokens
    if len(layout.order) == 1 or not _is_measured(case, layout) or ring_ps(case, layout.order) is None:
        return most
    shorter = (*CHUNKS, *SLOW_LINK_CHUNKS) if _is_link_slowest(case, layout, CHUNKS[-1]) else CHUNKS
    taken_s = {size: _as_chunks(case, layout, tokens, size) for size in (most, *shorter) if size <= most}
    best = min(taken_s, key=lambda size: taken_s[size])
    return best if taken_s[best] < (1 - GAIN) * taken_s[most] else most


def most_beside(case: Case, layout: Layout, steps: float) -> int | None:
    """Tokens of the longest chunk that keeps no stage longer than so many of its decode steps; 0 where any does, None
    where prefill is not measured."""
    if not _is_measured(case, layout):
        return None
    most = case.problem.chunk_tokens or case.problem.context_tokens
    allowed_s = [steps * cost for cost in stage_costs(case, layout, case.prices[0])]

    def excess_s(tokens: int) -> float:
        return max(cost - may for cost, may in zip(_chunk_costs(case, layout, tokens), allowed_s, strict=True))

    return bisect_right(range(1, most + 1), 0.0, key=excess_s)


def chunks_of(tokens: int, at_once: int) -> Sequence[int]:
    """The tokens of each chunk of a prompt, as the engine sends them: the last token goes by itself."""
    before = tokens - 1
    return [*(min(at_once, before - begun) for begun in range(0, before, at_once)), 1]


def _is_link_slowest(case: Case, layout: Layout, tokens: int) -> bool:
    return tokens * max(_carried_s(case, layout)[:-1]) > max(_chunk_costs(case, layout, tokens))


def _is_measured(case: Case, layout: Layout) -> bool:
    return case.tier is Tier.MEASURED and all(case.members[member].prefill_s for member in layout.order)


def _as_chunks(case: Case, layout: Layout, tokens: int, at_once: int) -> float:
    """A stage takes a chunk once it has done the one before and this one has come; a link carries one after the other.
    Of what comes back to the head only the last token counts, which it then picks from."""
    trips_s = [network_s(case.round_trips.rtt_ps[a][b]) for a, b in hops(layout.order)] or [0.0]
    *carried_s, carried_back_s = _carried_s(case, layout)
    carried_s.append(0.0)
    done_s, sent_s = [0.0] * len(layout.order), [0.0] * len(layout.order)  # the latest chunk, by stage and by its hop
    came_s = 0.0
    for chunk in chunks_of(tokens, at_once):
        came_s = 0.0
        for place, seconds in enumerate(_chunk_costs(case, layout, chunk)):
            done_s[place] = max(done_s[place], came_s) + seconds
            sent_s[place] = max(sent_s[place], done_s[place]) + chunk * carried_s[place]
            came_s = sent_s[place] + trips_s[place]
    return came_s + carried_back_s + case.prices[0].head[layout.order[0]]


def _carried_s(case: Case, layout: Layout) -> list[float]:
    """What a token's state takes each hop, the one back to the head last; nothing where speed or size is not known."""
    size, links = case.problem.state_bytes or 0, case.round_trips.bytes_per_s
    speeds = [links[a][b] for a, b in hops(layout.order)]
    return [size / speed if speed else 0.0 for speed in speeds] or [0.0]


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
