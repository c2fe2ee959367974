"""How long the planner takes: `python bench/planner.py [--record]`. Ends with 1 if a limit is passed.

Seconds of one core (`time.process_time`), since the planner waits for nothing and the machine may be busy.
"""

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "planner"))

from bench.record import add_record_option, record
from kafila_planner import Plan, make_plan, problem_from_json
from kafila_planner.model.types import Objective

LIMITS_S = {8: 0.05, 16: 2.0, 64: 5.0}
"""Seconds for so many members, each objective."""

ROUNDS = 3
"""The median of these counts."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_record_option(parser)
    options = parser.parse_args(argv)
    print(f"{'members':>7} {'objective':>10} {'blocks':>8} {'seconds':>9} {'limit':>6}  search, members used")
    late, figures = 0, {}
    for size, limit_s in LIMITS_S.items():
        for objective in Objective:
            for equal in (True, False):
                seconds, plan = timed(fleet(size, objective, equal))
                late += seconds > limit_s
                kind = "equal" if equal else "unequal"
                figures[f"{size}_{objective}_{kind}_s"] = seconds
                outcome = f"{plan.search}, {len(plan.order)}" if isinstance(plan, Plan) else "not admitted"
                print(f"{size:>7} {objective:>10} {kind:>8} {seconds:>9.4f} {limit_s:>6}  {outcome}")
    if options.record:
        record("planner", figures)
    return 1 if late else 0


def timed(problem: object) -> tuple[float, object]:
    """Median seconds, and the plan."""
    taken = []
    for _ in range(ROUNDS):
        start = time.process_time()
        result = make_plan(problem_from_json(problem))
        taken.append(time.process_time() - start)
    return sorted(taken)[ROUNDS // 2], result


def fleet(size: int, objective: Objective, equal: bool) -> dict[str, object]:
    """A made-up session: 64 blocks of half a gigabyte, four users, members as unequal as the paper's."""
    draw = random.Random(size)
    block_bytes = 5 * 10**8
    return {
        "model": {
            "blocks": 64,
            "block_bytes": block_bytes if equal else [block_bytes * (1 + block % 3) // 2 for block in range(64)],
            "embed_bytes": 10**9,
            "unembed_bytes": 10**9,
            "norm_bytes": 10**4,
            "kv_bytes_per_token_per_block": 4096,
        },
        "context_tokens": 4096,
        "concurrency": 4,
        "anchor": "m00",
        "objective": objective.value,
        "members": [member(f"m{place:02}", draw) for place in range(size)],
    }


def member(name: str, draw: random.Random) -> dict[str, object]:
    bandwidth = draw.uniform(8e10, 1.4e12)
    block_s = 5e8 / bandwidth
    return {
        "name": name,
        "nat": draw.choice(["permissive", "ordinary", "restrictive"]),
        "rtt_s": draw.uniform(0.002, 0.1),
        "bandwidth_bytes_per_s": bandwidth,
        "overhead_s": draw.uniform(3e-5, 9e-5),
        "memory_bytes": draw.uniform(8e9, 4.8e10),
        "block_s": {"1": block_s, "4": block_s * draw.uniform(1.0, 2.5)},
    }


if __name__ == "__main__":
    sys.exit(main())
