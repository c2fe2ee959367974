"""What several users get of one session: tokens a second, waits for the first token and between tokens.

    python -m bench.serving [--users 1 2 4 8] [--tokens 48] [--rounds 3] [--dtype f32] [--members 2] [--record]

The numbers of users take turns, so that a drifting machine hits all alike; each user asks another member than the one
before, greedily, for another story. Each member's sidecar is kept to a core of its own, round the cores that there are.
Printed: medians over the rounds, the gain over one user, and what the plan promises for that many (only for as many as
the session's concurrency). Wanted (issue on speed): four users at least 2.2 times one user with two members in f32.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.record import add_record_option, record
from tests.e2e.conftest import form
from tests.support.cluster import Cluster, make_cluster
from tests.support.smollm2 import smollm2_folder

NAMES = ("ada", "bob", "cyd", "dora")
TOPICS = ("a river", "a clock", "a lighthouse", "a bridge", "a map", "a mill", "a bell", "a well")
WARM_UP_TOKENS = 4


@dataclass(frozen=True, slots=True)
class AnswerTimes:
    """When each token of an answer came, in seconds since it was asked for."""

    times: Sequence[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--members", type=int, choices=(1, 2, 3, 4), default=2)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    add_record_option(parser)
    options = parser.parse_args()
    folder = smollm2_folder(dtype=options.dtype)
    with (
        tempfile.TemporaryDirectory(prefix="kafila-bench-") as below,
        make_cluster(*NAMES[: options.members], folders=(folder,), below=Path(below)) as cluster,
    ):
        keep_apart(cluster)
        session = form(cluster, f"kafila/{folder.name}", "--concurrency", str(max(options.users)))
        ask_all(cluster, session, 1, WARM_UP_TOKENS)
        rounds = [
            {users: ask_all(cluster, session, users, options.tokens) for users in options.users}
            for _ in range(options.rounds)
        ]
        promised = plan_of(cluster)
    figures = report(rounds, promised)
    if options.record:
        record(f"serving {options.dtype}", {"tokens": options.tokens, "rounds": options.rounds, **figures})


def keep_apart(cluster: Cluster) -> None:
    """One core for each sidecar."""
    for place, member in enumerate(cluster.members):
        os.sched_setaffinity(member.sidecar_pid(), {place % (os.cpu_count() or 1)})


def ask_all(cluster: Cluster, session: dict[str, Any], users: int, tokens: int) -> list[AnswerTimes]:
    """Answers to so many users at once, one each."""
    with ThreadPoolExecutor(users) as pool:
        return list(pool.map(lambda user: ask(cluster, session, user, tokens), range(users)))


def ask(cluster: Cluster, session: dict[str, Any], user: int, tokens: int) -> AnswerTimes:
    member = cluster.members[user % len(cluster.members)]
    body = {
        "model": session["vehicle"]["name"],
        "messages": [{"role": "user", "content": f"Write a long story about {TOPICS[user % len(TOPICS)]}."}],
        "options": {"temperature": 0, "num_predict": tokens},
    }
    began = time.perf_counter()
    lines = member.lines("/api/chat", body, timeout_s=600)
    return AnswerTimes([time.perf_counter() - began for line in lines if line["message"]["content"]])


def plan_of(cluster: Cluster) -> dict[str, Any]:
    shown = cluster.members[0].ollama("session", "plan", "--json", timeout_s=60)
    planned: dict[str, Any] = json.loads(json.loads(shown.stdout)["plan_json"])
    return planned


def report(rounds: Sequence[dict[int, list[AnswerTimes]]], promised: dict[str, Any]) -> dict[str, float]:
    """Prints a line for each number of users; returns what is worth keeping."""
    print(f"machine: {os.cpu_count()} cores; rounds: {len(rounds)}; medians over the rounds")
    print("users   tokens/s   gain   TTFT s   between tokens p50 ms / p99 ms")
    figures: dict[str, float] = {}
    alone = median(rate(one[min(one)]) for one in rounds)
    for users in sorted(rounds[0]):
        heard = [one for answers in rounds for one in answers[users]]
        gaps = [late - early for one in heard for early, late in zip(one.times, one.times[1:], strict=False)]
        tokens_per_s = median(rate(one[users]) for one in rounds)
        first_s = median(one.times[0] for one in heard)
        cuts = quantiles(gaps, n=100)
        print(
            f"{users:5}   {tokens_per_s:8.1f}   {tokens_per_s / alone:4.2f}   {first_s:6.2f}"
            f"   {cuts[49] * 1e3:8.1f} / {cuts[98] * 1e3:.1f}"
        )
        figures[f"tokens_per_s_{users}"] = tokens_per_s
    for name in ("tokens_per_s_one_user", "tokens_per_s", "batch"):
        print(f"the plan's {name}: {promised.get(name)}")
    return figures


def rate(answers: Sequence[AnswerTimes]) -> float:
    """Tokens a second of all users together, while at least one answer goes on: first tokens are left out."""
    tokens = sum(len(one.times) - 1 for one in answers)
    return tokens / (max(one.times[-1] for one in answers) - min(one.times[0] for one in answers))


if __name__ == "__main__":
    main()
