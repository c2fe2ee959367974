"""`python -m tests.planner.freeze`: writes down, as digests, the plans that belong to `PLANNER_VERSION`."""

import hashlib
import json
import random
from pathlib import Path

from kafila_planner import PLANNER_VERSION
from tests.planner.problems import GB, NAT, Json, as_json, member, model, problem

FROZEN = Path(__file__).parent / "frozen.json"

SEEDS = 48
CROWDS = 2
"""The first seeds are of more members than the exact search can try."""


def digests() -> dict[str, str]:
    """By seed, of every figure and word of the plan."""
    return {str(seed): _digest(as_json(drawn(seed))) for seed in range(SEEDS)}


def _digest(told: Json) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def drawn(seed: int) -> Json:
    """A session by chance: all objectives, strategies and tiers; equal and unequal blocks; admitted or not."""
    draw = random.Random(seed)
    size = 17 if seed < CROWDS else draw.randint(1, 7)
    blocks = 24 if seed < CROWDS else draw.randint(size, 16)
    unequal = seed % 2 == 1
    gap = draw.choice(["bandwidth_bytes_per_s", "rtt_s", "memory_bytes", "flops_per_s", "udp", "udp", "udp", "udp"])
    crowd = [_member(draw, f"m{place:02}", blocks / size) for place in range(size)]
    crowd[-1][gap] = None
    sizes = [draw.choice([GB // 2, GB, 2 * GB]) for _ in range(blocks)]
    return problem(
        crowd,
        model=model(
            blocks=blocks,
            block_bytes=sizes if unequal else sizes[0],
            embed_bytes=GB // 2,
            unembed_bytes=GB // 2,
            tied=draw.random() < 0.5,
            kv_bytes_per_token_per_block=draw.choice([0, 4096]),
            no_cut_after=[blocks // 2] if unequal and draw.random() < 0.5 else [],
        ),
        concurrency=draw.choice([1, 2, 4]),
        objective=draw.choice(["paper", "latency", "throughput"]),
        strategy=draw.choice(["kafila"] * 6 + ["memory", "uniform"]),
        prompt_tokens=draw.choice([None, 512]),
        require=[crowd[0]["name"]] if draw.random() < 0.3 else [],
        reserve_bytes=draw.choice([0, GB // 4]),
    )


def _member(draw: random.Random, name: str, share: float) -> Json:
    block_s = draw.uniform(1e-3, 1e-2)
    return member(
        name,
        nat=draw.choice(NAT),
        rtt_s=draw.choice([0.001, 0.004, 0.020, 0.080]) * draw.randint(1, 3),
        bandwidth_bytes_per_s=draw.randint(20, 1500) * GB,
        overhead_s=draw.choice([0.0, 5e-5, 1e-3]),
        flops_per_s=draw.choice([None, draw.uniform(1e12, 5e13)]),
        memory_bytes=draw.uniform(1.0, 5.0) * (share + 1) * GB,
        block_s=draw.choice([None, {"1": block_s, "4": block_s * draw.uniform(1.0, 4.0)}]),
    )


def frozen() -> Json:
    read: Json = json.loads(FROZEN.read_text())
    return read


def main() -> None:
    found = digests()
    if FROZEN.exists() and frozen()["planner_version"] == PLANNER_VERSION and frozen()["plans"] != found:
        raise SystemExit("plans have changed: raise PLANNER_VERSION in kafila_planner/version.py first")
    FROZEN.write_text(json.dumps({"planner_version": PLANNER_VERSION, "plans": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
