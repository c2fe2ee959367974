"""What machines and networks give, by the planner: the table of docs/guide/choosing.md.

    python -m bench.choosing            prints it
    python -m bench.choosing --write    puts it into the page

The model is of Qwen3-32B's shape in 4 bits. Bandwidths are what such machines reach when they decode.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "planner"))

from kafila_planner.json.decode_problem import problem_from_json
from kafila_planner.json.encode import plan_to_json
from kafila_planner.plan import make_plan

PAGE = Path(__file__).parents[1] / "docs/guide/choosing.md"
REGION = re.compile(r"(<!-- by bench/choosing\.py -->\n).*?(<!-- end -->)", re.DOTALL)

BLOCK_BYTES, HEAD_BYTES = 274e6, 437e6

MODEL = {
    "blocks": 64,
    "block_bytes": BLOCK_BYTES,
    "embed_bytes": HEAD_BYTES,
    "unembed_bytes": HEAD_BYTES,
    "kv_bytes_per_token_per_block": 4096,
}
USERS = 4

WORKSTATION = {"bandwidth_bytes_per_s": 4.0e11, "overhead_s": 1e-4, "memory_bytes": 40e9, "batch": 1.1}
GPU = {"bandwidth_bytes_per_s": 4.5e11, "overhead_s": 1e-4, "memory_bytes": 14e9, "batch": 1.1}
MAC = {"bandwidth_bytes_per_s": 1.1e11, "overhead_s": 1e-4, "memory_bytes": 12e9, "batch": 1.2}
PROCESSOR = {"bandwidth_bytes_per_s": 3.0e10, "overhead_s": 1e-4, "memory_bytes": 12e9, "batch": 2.5}

CABLE, WIRELESS, COUNTRY, OCEAN = 0.0006, 0.006, 0.030, 0.140  # round trips in seconds


@dataclass(frozen=True, slots=True)
class Fleet:
    """Machines, and the round trip between any two of them, whichever way."""

    words: str
    machines: tuple[dict[str, float], ...]
    rtt_s: float
    all_of_them: bool = False


FLEETS = (
    Fleet("one workstation that holds the model (40 GB at 400 GB/s)", (WORKSTATION,), CABLE),
    Fleet("two PCs with a GPU of 16 GB, by cable", (GPU, GPU), CABLE),
    Fleet("the same, by wireless", (GPU, GPU), WIRELESS),
    Fleet("the same, in two homes of one country, direct", (GPU, GPU), COUNTRY),
    Fleet("the same, relayed by a rendezvous that is no nearer to either", (GPU, GPU), 2 * COUNTRY),
    Fleet("the same, on two sides of an ocean, direct", (GPU, GPU), OCEAN),
    Fleet("a PC with a GPU and a Mac with 16 GB, by cable", (GPU, MAC), CABLE),
    Fleet("two Macs with 16 GB, by cable", (MAC, MAC), CABLE),
    Fleet("two such PCs and a laptop without a GPU, by cable", (GPU, GPU, PROCESSOR), CABLE),
    Fleet("the same, with `--require all`", (GPU, GPU, PROCESSOR), CABLE, all_of_them=True),
    Fleet("four such PCs, by cable", (GPU,) * 4, CABLE),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="The table of docs/guide/choosing.md.")
    parser.add_argument("--write", action="store_true", help="put it into the page")
    if parser.parse_args().write:
        PAGE.write_text(REGION.sub(rf"\g<1>{table()}\g<2>", PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(table(), end="")


def table() -> str:
    rows = [
        "| machines | who holds a part | tokens a second, one user | with four users, together |",
        "|---|---|---|---|",
        *map(row, FLEETS),
    ]
    return "\n".join(rows) + "\n"


def row(fleet: Fleet) -> str:
    return f"| {fleet.words} | {' + '.join(blocks(fleet))} blocks | {rate(fleet, 1)} | {rate(fleet, USERS)} |"


def blocks(fleet: Fleet) -> list[str]:
    """How many each stage has for one user, in the order of the machines."""
    held = {stage["member"]: stage["end"] - stage["start"] for stage in planned(fleet, 1)["stages"]}
    return [str(held.get(name, 0)) for name in names(fleet)]


def rate(fleet: Fleet, users: int) -> str:
    plan = planned(fleet, users)
    return f"{plan['tokens_per_s_one_user' if users == 1 else 'tokens_per_s']:.1f}"


def planned(fleet: Fleet, users: int) -> dict[str, Any]:
    plan: dict[str, Any] = plan_to_json(make_plan(problem_from_json(problem(fleet, users))))
    if not plan["admitted"]:
        raise SystemExit(f"{fleet.words}: {plan['reason']}")
    return plan


def problem(fleet: Fleet, users: int) -> dict[str, Any]:
    pairs = [(one, other) for one in names(fleet) for other in names(fleet) if one < other]
    return {
        "model": MODEL,
        "concurrency": users,
        "require": ["all"] if fleet.all_of_them else [],
        "members": [member(name, one, fleet) for name, one in zip(names(fleet), fleet.machines, strict=True)],
        "edges": [{"between": list(pair), "rtt_s": fleet.rtt_s, "path": "direct"} for pair in pairs],
    }


def member(name: str, machine: dict[str, float], fleet: Fleet) -> dict[str, Any]:
    """As a member measures itself: a step for four sequences takes `batch` times that for one."""
    block_s = BLOCK_BYTES / machine["bandwidth_bytes_per_s"]
    head_s = HEAD_BYTES / machine["bandwidth_bytes_per_s"]
    told = {key: value for key, value in machine.items() if key != "batch"}
    steps = {
        field: {"1": seconds, str(USERS): seconds * machine["batch"]}
        for field, seconds in (("block_s", block_s), ("head_s", head_s))
    }
    return {"name": name, "nat": "ordinary", "rtt_s": fleet.rtt_s / 2, **told, **steps}


def names(fleet: Fleet) -> list[str]:
    return [f"m{number}" for number in range(len(fleet.machines))]


if __name__ == "__main__":
    main()
