"""Tokens a second of one mlx-lm process and of a ring of three on this machine, in one run, with the same sampler.

    python bench/ring.py [--tokens 64] [--rounds 3] [--dtype f32] [--record]

Both answer the same prompts greedily, in turn, so that a drifting machine hits both alike. Printed: the medians, their
ratio, and a token's time in the ring split into compute, hops, head, rest. Wanted (issue on the first answer): within
15 % of the single process plus three measured hop times.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from kafila_rendezvous.leaving import leave

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.record import add_record_option, record  # noqa: E402
from tests.e2e.conftest import NAMES, form  # noqa: E402
from tests.support.cluster import Cluster, make_cluster  # noqa: E402
from tests.support.smollm2 import smollm2_folder  # noqa: E402

PROMPT = "Write a long story about a river that forgets its own name."

SINGLE = """
import ctypes, json, sys, time
try: ctypes.CDLL("libopenblas.so.0", mode=ctypes.RTLD_GLOBAL)
except OSError: pass
import mlx.core as mx
from mlx_lm import load, stream_generate
from mlx_lm.sample_utils import make_sampler
model, tokenizer = load(sys.argv[1])
prompt = tokenizer.apply_chat_template([{"role": "user", "content": sys.argv[2]}], add_generation_prompt=True)
print("ready", flush=True)
for line in sys.stdin:
    times = []
    for reply in stream_generate(model, tokenizer, prompt, max_tokens=int(line), sampler=make_sampler(temp=0.0)):
        times.append(time.perf_counter())
    steps = sorted(b - a for a, b in zip(times, times[1:]))
    print(json.dumps({"tokens": len(times), "median_s": steps[len(steps) // 2]}), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    add_record_option(parser)
    options = parser.parse_args()
    folder = smollm2_folder(dtype=options.dtype)
    with (
        tempfile.TemporaryDirectory(prefix="kafila-bench-") as below,
        single(folder) as one,
        make_cluster(*NAMES, folders=(folder,), below=Path(below)) as cluster,
    ):
        session = form(cluster, f"kafila/{folder.name}")
        ask_ring(cluster, session, 4)
        one(4)
        rounds = [(one(options.tokens), ask_ring(cluster, session, options.tokens)) for _ in range(options.rounds)]
    figures = report(rounds)
    if options.record:
        record(f"ring {options.dtype}", {"tokens": options.tokens, "rounds": options.rounds, **figures})


@contextmanager
def single(folder: Path) -> Iterator[Any]:
    """One process with the whole model; a call generates and returns its times."""
    process = subprocess.Popen(
        [sys.executable, "-c", SINGLE, str(folder), PROMPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout
    assert stdout.readline().strip() == "ready"

    def generate(tokens: int) -> dict[str, float]:
        stdin.write(f"{tokens}\n")
        stdin.flush()
        answer: dict[str, float] = json.loads(stdout.readline())
        return answer

    try:
        yield generate
    finally:
        stdin.close()
        process.wait(30)
        stdout.close()


def ask_ring(cluster: Cluster, session: dict[str, Any], tokens: int) -> dict[str, Any]:
    """One answer of the ring, asked at the head; its trace."""
    member = next(m for m in cluster.members if m.name == session["stages"][0]["member"])
    body = {
        "model": session["vehicle"]["name"],
        "messages": [{"role": "user", "content": PROMPT}],
        "stream": False,
        "options": {"temperature": 0, "num_predict": tokens},
    }
    status, answer = member.request("/api/chat", body, timeout_s=300)
    assert status == 200, answer
    time.sleep(0.3)
    file = next((member.home / "kafila" / "traces").glob("*.jsonl"))
    trace: dict[str, Any] = json.loads(file.read_text().splitlines()[-1])
    return trace


def report(rounds: list[tuple[dict[str, float], dict[str, Any]]]) -> dict[str, float]:
    """Prints the medians; returns those that are worth keeping."""
    single_s = median(one["median_s"] for one, _ in rounds)
    circuit_s = median(trace["circuit_s"] for _, trace in rounds)
    hops_s = median(trace["network_s"] for _, trace in rounds)
    stages = [median(trace["stages"][i]["measured_s"] for _, trace in rounds) for i in range(len(NAMES))]
    ratios = [trace["circuit_s"] / one["median_s"] for one, trace in rounds]
    bound_s = 1.15 * (single_s + hops_s)
    print(f"machine: {os.cpu_count()} cores; rounds: {len(rounds)}; medians of a token's time")
    print(f"one process      {single_s * 1e3:7.2f} ms   {1 / single_s:6.1f} tokens/s")
    print(f"ring of three    {circuit_s * 1e3:7.2f} ms   {1 / circuit_s:6.1f} tokens/s")
    print(f"  head's stage   {stages[0] * 1e3:7.2f} ms   (embedding, its blocks, norm, unembedding, sampling)")
    print(f"  other stages   {sum(stages[1:]) * 1e3:7.2f} ms")
    print(f"  three hops     {hops_s * 1e3:7.2f} ms")
    print(f"  rest           {(circuit_s - sum(stages) - hops_s) * 1e3:7.2f} ms   (queues of threads)")
    print(f"ratio ring/one   {median(ratios):.2f}  (pairs: {', '.join(f'{ratio:.2f}' for ratio in ratios)})")
    print(f"bound 1.15 x (one + hops) = {bound_s * 1e3:.2f} ms: {'met' if circuit_s <= bound_s else 'NOT met'}")
    return {
        "one_process_s": single_s,
        "ring_s": circuit_s,
        "head_stage_s": stages[0],
        "other_stages_s": sum(stages[1:]),
        "hops_s": hops_s,
        "ratio": median(ratios),
    }


if __name__ == "__main__":
    main()
    leave(0)
