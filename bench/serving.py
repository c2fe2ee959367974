"""What several users get of one session, beside what the plan promises them and beside mlx-lm alone on this machine.

    python -m bench.serving [--users 1 2 4 8] [--tokens 48] [--rounds 3] [--dtype f32] [--members 2] [--known]
                            [--record]

The numbers of users take turns, and so do the session and mlx-lm (with its batch generation for several), so that a
drifting machine hits all alike; all pick the likeliest token, and each user asks another member than the one before for
another story. A member's processes are kept to one core from their start, round the cores that there are, one thread of
BLAS each; mlx-lm is kept to the first member's core, so that it has what one member has. Nobody else should work on the
machine.

Machines are measured one after another, while nothing else is computed, and members of one machine share its memory's
bandwidth: what their stages take at once they know only when they have served. With --known another session has served
each number of users before, and its members' times are in the measurements that this one is planned by.

Printed: medians over the rounds; the gain over one user; the share of the members' cores that stood idle (bubbles);
what the plan promises for that many; and the time to the first token of prompts of several lengths, each asked for
alone, beside the plan's. Wanted: promises within 15 % of what is served, and with two members in f32 four users at
least 2.2 times one user.

Seen on two cores that share one memory bus, SmolLM2 in f32 on two members, with --known: 12.7, 21.8, 38.7 and 64.5
tokens/s for 1, 2, 4 and 8 users (four users 3.0 times one), planned over served 0.88, 1.03, 1.08 and 1.14; first
tokens of 40 to 880 tokens 0.92 to 1.17. Without --known the plan promised 1.0, 1.2, 1.4 and 1.4 times what was served
there (15.9, 26.5, 43.6 and 81.1), in another run 1.1, 1.3, 1.7 and 1.8 times.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.record import add_record_option, record
from bench.stories import story_prompts
from kafila_planner import Plan, paces, plan_from_json, problem_from_json, tokens_per_s
from kafila_sidecar.session.coordination.correction import REQUESTS
from tests.e2e.conftest import form
from tests.support.cluster import Cluster
from tests.support.smollm2 import smollm2_folder

NAMES = ("ada", "bob", "cyd", "dora")
WARM_UP_TOKENS = 4
LEARN_TOKENS = 24
PROMPT_WORDS = (8, 40, 160)
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class UsersRound:
    """Of so many users at once: when each token of each answer came, in seconds since it was asked for. idle: the share
    of the cores' time that nobody computed in."""

    times: Sequence[Sequence[float]]
    idle: float

    @property
    def tokens_per_s(self) -> float:
        """Of all users together, while all answers go on, which is what a plan promises for so many; while at least
        one goes on where that is never so."""
        first, last = max(one[0] for one in self.times), min(one[-1] for one in self.times)
        if last <= first:
            first, last = min(one[0] for one in self.times), max(one[-1] for one in self.times)
        return sum(1 for one in self.times for at in one if first < at <= last) / (last - first)


@dataclass(frozen=True, slots=True)
class FirstToken:
    planned_s: float
    served_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--members", type=int, choices=(1, 2, 3, 4), default=2)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--known", action="store_true", help="another session has served as many before")
    add_record_option(parser)
    options = parser.parse_args()
    folder = smollm2_folder(dtype=options.dtype)
    with (
        tempfile.TemporaryDirectory(prefix="kafila-bench-") as below,
        cluster_of(folder, options.members, Path(below)) as cluster,
        mlx_lm_alone(folder, options.tokens) as alone,
    ):
        session = formed(cluster, folder, options.users)
        if options.known:
            learn(cluster, session, options.users)
            session = formed(cluster, folder, options.users)
        ask_all(cluster, session, 1, WARM_UP_TOKENS)
        served: dict[int, list[UsersRound]] = {users: [] for users in options.users}
        by_itself: dict[int, list[UsersRound]] = {users: [] for users in options.users}
        for _ in range(options.rounds):
            for users in options.users:
                served[users].append(ask_all(cluster, session, users, options.tokens))
                by_itself[users].append(ask_alone(alone, users))
        promised = promises(cluster, options.users)
        first = first_tokens(cluster, session, options.rounds)
    print(f"machine: {os.cpu_count()} cores; {options.members} members; rounds: {options.rounds}; {options.dtype}")
    figures = report("session", served, promised) | report("mlx-lm alone", by_itself, {}) | report_first(first)
    if options.record:
        record(f"serving {options.dtype}", {"tokens": options.tokens, "rounds": options.rounds, **figures})


def formed(cluster: Cluster, folder: Path, users: Sequence[int]) -> dict[str, Any]:
    return form(cluster, f"kafila/{folder.name}", "--concurrency", str(max(users)))


def learn(cluster: Cluster, session: dict[str, Any], users: Sequence[int]) -> None:
    """Answers to each number of users, as many as members look at their times after; then everybody leaves."""
    for count in users:
        for _ in range(-(-REQUESTS // count)):
            ask_all(cluster, session, count, LEARN_TOKENS)
    for member in cluster.members:
        member.ollama("session", "leave", "--yes", timeout_s=60, check=True)


@contextmanager
def cluster_of(folder: Path, members: int, below: Path) -> Iterator[Cluster]:
    """Members that never leave their cores, whatever they start."""
    with Cluster(below) as cluster:
        cluster.start_rendezvous()
        cluster.start_model_host(folder)
        for place, name in enumerate(NAMES[:members]):
            with on_core(place):
                cluster.start_member(name, OMP_NUM_THREADS="1")
        yield cluster


@contextmanager
def on_core(place: int) -> Iterator[None]:
    """What is started meanwhile runs on one of this process' cores."""
    everywhere = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {everywhere[place % len(everywhere)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


@contextmanager
def mlx_lm_alone(folder: Path, tokens: int) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "bench.alone", str(folder), "--tokens", str(tokens)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with on_core(0):
        process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1
        )
    with process:
        ask_alone(process, 1)
        yield process
        assert process.stdin is not None
        process.stdin.close()


def ask_alone(process: "subprocess.Popen[str]", users: int) -> UsersRound:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{users}\n")
    process.stdin.flush()
    return UsersRound(json.loads(process.stdout.readline()), 0.0)


def ask_all(cluster: Cluster, session: dict[str, Any], users: int, tokens: int) -> UsersRound:
    """Answers to so many users at once, one each."""
    name, prompts = session["vehicle"]["name"], story_prompts(users)
    before_s, began = busy_s(cluster), time.perf_counter()
    with ThreadPoolExecutor(users) as pool:
        heard = list(pool.map(lambda user: ask(cluster, name, user, prompts[user], tokens), range(users)))
    there_s = (time.perf_counter() - began) * len(cluster.members)
    return UsersRound(heard, max(0.0, 1 - (busy_s(cluster) - before_s) / there_s))


def ask(cluster: Cluster, model: str, user: int, prompt: str, tokens: int) -> list[float]:
    member = cluster.members[user % len(cluster.members)]
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "options": {"temperature": 0, "num_predict": tokens},
    }
    began = time.perf_counter()
    lines = member.lines("/api/chat", body, timeout_s=600)
    return [time.perf_counter() - began for line in lines if line["message"]["content"]]


def first_tokens(cluster: Cluster, session: dict[str, Any], rounds: int) -> dict[int, list[FirstToken]]:
    """Of prompts that nobody asked for before, by their tokens, as the head's records have them."""
    found: dict[int, list[FirstToken]] = defaultdict(list)
    for number in range(rounds):
        for words in PROMPT_WORDS:
            prompt = f"{number} {words} " + " ".join(f"word{number}x{at}" for at in range(words))
            ask(cluster, session["vehicle"]["name"], 0, prompt, 1)
            record = json.loads(cluster.members[0].ollama("session", "trace", "--json", timeout_s=60).stdout)
            tokens = record["prompt_tokens"] - record["reused_tokens"]
            found[round(tokens, -1)].append(FirstToken(record["predicted_ttft_s"], record["prefill_s"]))
    return found


def report_first(first: dict[int, list[FirstToken]]) -> dict[str, float]:
    """Prints a line for each length; returns what is worth keeping."""
    print("time to the first token\ntokens  planned s  served s  planned/served")
    figures: dict[str, float] = {}
    for tokens, all_ in sorted(first.items()):
        planned, served = median(one.planned_s for one in all_), median(one.served_s for one in all_)
        print(f"{tokens:6}  {planned:9.2f}  {served:8.2f}  {planned / served:14.2f}")
        figures |= {f"first token of {tokens} s": served, f"first token of {tokens} planned s": planned}
    return figures


def busy_s(cluster: Cluster) -> float:
    """Processor time of the members' sidecars so far."""
    total = 0.0
    for member in cluster.members:
        fields = Path(f"/proc/{member.sidecar_pid()}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) * TICK_S
    return total


def promises(cluster: Cluster, users: Sequence[int]) -> dict[int, float]:
    """Tokens a second of the session's plan, by number of users."""
    shown = json.loads(cluster.members[0].ollama("session", "plan", "--json", timeout_s=60).stdout)
    problem, plan = problem_from_json(json.loads(shown["problem_json"])), plan_from_json(json.loads(shown["plan_json"]))
    assert isinstance(plan, Plan)
    stages = ", ".join(f"{stage.member} {stage.end - stage.start}" for stage in plan.stages)
    print(f"blocks: {stages}; first token of a prompt of {plan.prompt_tokens} tokens: {plan.ttft_s} s")
    known = paces(problem, plan)
    return {number: tokens_per_s(number, known) for number in users} if known else {}


def report(who: str, rounds: dict[int, list[UsersRound]], promised: dict[int, float]) -> dict[str, float]:
    """Prints a line for each number of users; returns what is worth keeping."""
    print(f"{who}\nusers  tokens/s   gain  planned  planned/served  TTFT s  between tokens p50 / p99 ms  idle")
    figures: dict[str, float] = {}
    alone = median(one.tokens_per_s for one in rounds[min(rounds)])
    for users in sorted(rounds):
        heard = [times for one in rounds[users] for times in one.times]
        gaps = [late - early for times in heard for early, late in pairwise(times)]
        rate, cuts = median(one.tokens_per_s for one in rounds[users]), quantiles(gaps, n=100)
        plan = promised.get(users)
        beside = f"{plan:7.1f}  {plan / rate:14.2f}" if plan else f"{'-':>7}  {'-':>14}"
        print(
            f"{users:5}  {rate:8.1f}  {rate / alone:5.2f}  {beside}  {median(times[0] for times in heard):6.2f}"
            f"  {cuts[49] * 1e3:17.1f} / {cuts[98] * 1e3:7.1f}  {median(one.idle for one in rounds[users]):4.0%}"
        )
        figures |= {f"{who} {users} tokens_per_s": rate} | ({f"{who} {users} planned": plan} if plan else {})
    return figures


if __name__ == "__main__":
    main()
