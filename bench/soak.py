"""`make soak`: requests of all kinds arrive at all members of a real ring at random times, and some are given up.

Every answer is compared with the one that the ring gave while nobody else asked. Now and then nothing more arrives
until all is answered: then no member may hold a cache, and each process is weighed. What is wrong is printed, and makes
the exit status 1: an error, another answer, a cache that is left, memory that grows while one plan lasts, since another
plan divides the model's weights anew.

    python -m bench.soak --minutes 5 --model tiny --seed 7
"""

import argparse
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.soak_asks import ALL, SoakAnswer, SoakAsk, SoakFault, flaw, own_flaw, read
from tests.e2e.conftest import form
from tests.support.cluster import ClusterMember, make_cluster
from tests.support.smollm2 import smollm2_folder
from tests.support.ties import is_same_or_tie
from tests.support.tiny import tiny_folder

NAMES = ("ada", "bob", "cyd")
WIDE = {
    **{"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 4},
    "head_dim": 64,
}
"""Of the tiny model: so wide that runs of several sequences pay, as with real ones."""
AT_ONCE = 4  # sequences in the ring
MOST_OUT = 3  # requests of one member that are not answered yet
PAUSE_S = 0.1  # from one request of a member to the next, in the mean
GIVEN_UP = 0.2  # of all requests, after a few pieces
LATEST_PIECE = 20
BETWEEN_CALMS_S = 30.0
CALM_DEADLINE_S = 30.0  # from the last answer until no cache is left
GROWTH = 0.05  # of a process's memory, from the second quarter to the last, that is no leak
GROWTH_BYTES = 12 << 20  # and at least so much
SHOWN = 12


def main() -> None:
    parser = argparse.ArgumentParser(description="requests of all kinds at all members of a ring, for a long time")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--model", choices=("smollm2", "tiny"), default="smollm2")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    below = Path(tempfile.mkdtemp(prefix="kafila-soak-"))
    folder = smollm2_folder() if asked.model == "smollm2" else tiny_folder(below / "tiny", config=WIDE)
    print(f"seed {asked.seed}, {asked.minutes:g} minutes, logs in {below}", flush=True)
    with make_cluster(*NAMES, folders=(folder,), below=below) as cluster:
        session = form(cluster, f"kafila/{folder.name}", "--concurrency", str(AT_ONCE))
        soak = Soak(cluster.members, session, folder, random.Random(asked.seed))
        soak.run(60 * asked.minutes)
        raise SystemExit(soak.told())


class Soak:
    """Clients at every member, and a calm now and then."""

    def __init__(
        self, members: Sequence[ClusterMember], session: dict[str, Any], folder: Path, chance: random.Random
    ) -> None:
        self._members = members
        self._id, self._model = session["id"], session["vehicle"]["name"]
        self._head = next(one for one in members if one.name == session["stages"][0]["member"])
        self._folder = folder
        self._chance = chance
        self._right: dict[SoakAsk, SoakAnswer] = {}
        self._ended: Counter[str] = Counter()
        self._tokens = 0
        self._faults: Counter[str] = Counter()
        self._calms: list[CalmWeights] = []

    def run(self, seconds: float) -> None:
        """Of arrivals; what is right is found out before them."""
        self._learn()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._storm(min(end, time.monotonic() + BETWEEN_CALMS_S))
            self._calm()

    def told(self) -> int:
        """Prints what came of it; 1 for faults, else 0."""
        ended = ", ".join(f"{count} {how}" for how, count in self._ended.most_common())
        print(f"{self._ended.total()} requests: {ended}; {self._tokens} tokens")
        print(f"the head's trace: {self._trace()}")
        calms = longest_with_one_plan(self._calms)
        print(f"memory is judged by {len(calms)} calms of {len(self._calms)}, the most of one plan after each other")
        for name in calms[-1].rss_bytes if calms else ():
            early, late = _early_and_late([calm.rss_bytes[name] for calm in calms if name in calm.rss_bytes])
            print(f"{name}: {early >> 20} MiB early, {late >> 20} MiB late")
            if late - early > max(GROWTH_BYTES, GROWTH * early):
                self._faults[f"{name} grew by {(late - early) >> 20} MiB"] += 1
        for fault, count in self._faults.most_common(SHOWN):
            print(f"FAULT, {count} times: {fault}")
        return int(bool(self._faults))

    def _learn(self) -> None:
        """What each request is answered with, one after another."""
        began = time.monotonic()
        for ask in ALL:
            self._right[ask] = read(self._chance.choice(self._members), ask, self._model)
            if wrong := own_flaw(ask, self._right[ask]):
                self._faults[f"{ask.way}, alone: {wrong}"] += 1
        print(f"{len(ALL)} requests one by one took {time.monotonic() - began:.0f} s", flush=True)

    # ---- Arrivals

    def _storm(self, end: float) -> None:
        """Until `end`, and until all is answered."""
        seeds = [self._chance.random() for _ in self._members for _ in range(MOST_OUT)]
        members = [member for member in self._members for _ in range(MOST_OUT)]
        clients = [
            threading.Thread(target=self._client, args=(member, random.Random(seed), end), daemon=True)
            for member, seed in zip(members, seeds, strict=True)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()

    def _client(self, member: ClusterMember, chance: random.Random, end: float) -> None:
        while True:
            time.sleep(chance.expovariate(1 / (MOST_OUT * PAUSE_S)))
            if time.monotonic() > end:
                return
            self._ask(member, chance)

    def _ask(self, member: ClusterMember, chance: random.Random) -> None:
        ask = chance.choice(ALL)
        pieces = chance.randint(1, LATEST_PIECE) if chance.random() < GIVEN_UP else None
        try:
            came = read(member, ask, self._model, pieces=pieces)
        except (OSError, ValueError, HTTPException, SoakFault) as error:
            self._ended["errors"] += 1
            self._faults[f"{ask.way} at {member.name}: {type(error).__name__}: {error}"] += 1
            return
        self._ended[came.end[1] or "given up"] += 1
        self._tokens += came.end[0]
        if wrong := flaw(ask, came, self._right[ask]):
            self._differs(ask, came, wrong)

    def _differs(self, ask: SoakAsk, came: SoakAnswer, wrong: str) -> None:
        """Texts may part where two scores are as good as equal."""
        right = self._right[ask].text
        if ask.way == "greedy" and came.last and is_same_or_tie(self._folder, ask.prompt, right, came.text):
            self._ended["of them at a tie"] += 1
            return
        self._faults[f"{wrong}: {ask} gave {came.text!r}, {came.end}; right is {right!r}"] += 1

    # ---- Calms

    def _calm(self) -> None:
        """No cache is left anywhere; what each process takes now."""
        end = time.monotonic() + CALM_DEADLINE_S
        while (left := self._caches()) and time.monotonic() < end:
            time.sleep(0.2)
        for name, count in left.items():
            self._faults[f"{name} holds {count} caches, and nobody asks"] += 1
        self._calms.append(calm := self._weigh())
        told = ", ".join(f"{one >> 20}" for one in calm.rss_bytes.values())
        held = ", ".join(f"{one >> 20}" for one in calm.held_bytes)
        counts = f"{self._ended.total()} requests, {self._faults.total()} faults"
        print(f"calm after {counts}; MiB: {told}; of it weights: {held}", flush=True)

    def _caches(self) -> dict[str, int]:
        counts = {member.name: member.session().get("active_sequences", 0) for member in self._members}
        return {name: count for name, count in counts.items() if count}

    def _weigh(self) -> "CalmWeights":
        rss_bytes: dict[str, int] = {}
        for member in self._members:
            for pid in member.pids():
                process = psutil.Process(pid)
                what = " ".join(Path(word).name for word in process.cmdline()[:4])[:40]
                rss_bytes[f"{member.name} {pid} {what}"] = process.memory_info().rss
        held = (member.session().get("reserved_memory_bytes", 0) for member in self._members)
        return CalmWeights(tuple(map(int, held)), rss_bytes)

    def _trace(self) -> str:
        """How often what was made use of, by the head's own account."""
        file = next(self._head.home.glob(f"kafila/**/{self._id}.jsonl"))
        records = [json.loads(line) for line in file.read_text().splitlines()]
        ended = Counter(record["ended"] for record in records)
        guesses, right = (sum(record[name] for record in records) for name in ("guesses", "guesses_right"))
        rows = max(stage["rows"] for record in records for stage in record["stages"])
        return f"{dict(ended)}; {guesses} guesses, {right} right; up to {rows:.1f} rows a run in the mean of an answer"


@dataclass(frozen=True, slots=True)
class CalmWeights:
    """What there is while nobody asks. held_bytes: of the model's weights, by member; rss_bytes: by process."""

    held_bytes: tuple[int, ...]
    rss_bytes: Mapping[str, int]


def longest_with_one_plan(calms: Sequence[CalmWeights]) -> Sequence[CalmWeights]:
    """The most calms after each other in which every member holds as much of the model."""
    stretches = (list(same) for _, same in groupby(calms, key=lambda calm: calm.held_bytes))
    return max(stretches, key=len, default=[])


def _early_and_late(taken: Sequence[int]) -> tuple[int, int]:
    """Of a process: in the second quarter of its time, and in the last."""
    quarter = max(1, len(taken) // 4)
    return int(median(taken[quarter : 2 * quarter] or taken[:1])), int(median(taken[-quarter:]))


if __name__ == "__main__":
    main()
