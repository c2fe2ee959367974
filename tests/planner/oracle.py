"""The planner's answers again, by trying everything, from the paper and the docs and not from the planner."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

from tests.planner.problems import Json, compositions


def each(value: Any, blocks: int, default: Any = None) -> list[Any]:
    if value is None:
        value = default
    return list(value) if isinstance(value, list) else [value] * blocks


def batch_time(steps: Json, batch: int) -> float:
    """Two measured sizes, 1 and another: one line through both, never falling beyond the second."""
    (first, low), (second, high) = sorted((int(size), seconds) for size, seconds in steps.items())
    slope = (high - low) / (second - first)
    return float(low + slope * (batch - first))


def block_bytes(given: Json) -> list[int]:
    return each(given["model"]["block_bytes"], given["model"]["blocks"])


def cost(given: Json, member: Json, start: int, end: int, is_head: bool, batch: int) -> float:
    """The paper's Eq. 2, at a batch size."""
    sizes = block_bytes(given)
    head_bytes = given["model"]["unembed_bytes"] + given["model"]["norm_bytes"]
    share = sum(sizes[start:end]) / (sum(sizes) / len(sizes))
    bandwidth = member["bandwidth_bytes_per_s"]
    head = batch * head_bytes / bandwidth if is_head else 0.0
    if member.get("block_s"):
        return float(member["overhead_s"] + share * batch_time(member["block_s"], batch) + head)
    return float(batch * (member["overhead_s"] + sum(sizes[start:end]) / bandwidth) + head)


def holds(given: Json, member: Json, start: int, end: int, is_head: bool) -> bool:
    model = given["model"]
    kv = given["context_tokens"] * given["concurrency"] * model["kv_bytes_per_token_per_block"]
    need = sum(block_bytes(given)[start:end]) + kv * (end - start)
    need += given.get("reserve_bytes", 0) + given.get("prefill_peak_bytes", 0)
    if is_head:
        need += model["embed_bytes"] + model["norm_bytes"] + (0 if model.get("tied") else model["unembed_bytes"])
    return bool(need <= math.floor(member["memory_bytes"]))


def direct(a: Json, b: Json) -> bool:
    """The paper's Table III, as predicted."""
    return "permissive" in (a["nat"], b["nat"]) or (a["nat"], b["nat"]) == ("ordinary", "ordinary")


def round_trip(a: Json, b: Json) -> float:
    return float(abs(a["rtt_s"] - b["rtt_s"]) if direct(a, b) else a["rtt_s"] + b["rtt_s"])


def ring_cost(ring: tuple[Json, ...]) -> float:
    if len(ring) == 1:
        return 0.0
    return sum(round_trip(a, b) for a, b in zip(ring, (*ring[1:], ring[0]), strict=True))


def relays(ring: tuple[Json, ...]) -> int:
    if len(ring) == 1:
        return 0
    return sum(not direct(a, b) for a, b in zip(ring, (*ring[1:], ring[0]), strict=True))


def layouts(given: Json, order: tuple[Json, ...]) -> Iterator[list[tuple[Json, int, int]]]:
    """Every division of the blocks among an order that keeps to the limits and cuts."""
    forbidden = set(given["model"].get("no_cut_after", []))
    for shares in compositions(given["model"]["blocks"], len(order)):
        ends = list(itertools.accumulate(shares))
        stages = [(member, end - share, end) for member, end, share in zip(order, ends, shares, strict=True)]
        if any(end - 1 in forbidden for end in ends[:-1]):
            continue
        if all(holds(given, member, start, end, place == 0) for place, (member, start, end) in enumerate(stages)):
            yield stages


def seconds_a_token(given: Json, stages: list[tuple[Json, int, int]], users: int, batches: int) -> float:
    """1 / min(U / circuit(b), b / bottleneck(b)) at the best b."""
    network = ring_cost(tuple(member for member, _, _ in stages)) / 2
    best = math.inf
    for batch in range(1, batches + 1):
        costs = [cost(given, m, start, end, place == 0, batch) for place, (m, start, end) in enumerate(stages)]
        best = min(best, max((sum(costs) + network) / users, max(costs) / batch))
    return best


def least_seconds(given: Json) -> float:
    """The best of every subset, order, head and division; infinite if nothing fits."""
    users = 1 if given["objective"] == "latency" else given["concurrency"]
    best = math.inf
    for size in range(1, len(given["members"]) + 1):
        for order in itertools.permutations(given["members"], size):
            for stages in layouts(given, order):
                best = min(best, seconds_a_token(given, stages, users, users))
    return best
