"""`python -m tests.sim`: plays seeds, and replays one with its timeline."""

import argparse
import asyncio
import gc
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from tests.sim.clock import PROCESS, START_S
from tests.sim.play import Outcome, play, play_moving

HASH_SEED = "0"  # the order of words in sets is part of what a seed replays


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        again = [sys.executable, "-m", "tests.sim", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": HASH_SEED})
    parser = argparse.ArgumentParser(description="sessions under random schedules")
    parser.add_argument("--seed", type=int, help="replay this one, with its timeline")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--verbose", action="store_true", help="with the product's own log lines")
    parser.add_argument("--all", action="store_true", help="tell what is passed over as well")
    parser.add_argument("--moves", action="store_true", help="machines move from one network to another besides")
    asked = parser.parse_args()
    play_one = play_moving if asked.moves else play
    if asked.seed is not None:
        return _replay(play_one, asked.seed, verbose=asked.verbose)
    return _many(play_one, range(asked.first, asked.first + asked.count), asked.jobs, tell_all=asked.all)


def _name_process(record: logging.LogRecord) -> bool:
    process = PROCESS.get()
    now_s = asyncio.get_running_loop().time() - START_S
    record.process_name = f"{now_s:9.3f}  {process.name if process else '':<6}"
    return True


def _replay(play_one: Callable[..., Outcome], seed: int, *, verbose: bool) -> int:
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(process_name)s          %(message)s", stream=sys.stdout)
        logging.getLogger().handlers[0].addFilter(_name_process)
    outcome = play_one(seed, say=print)
    for sentence in outcome.broken:
        print(f"BROKEN  {sentence}")
    for sentence in outcome.passed_over:
        print(f"not yet {sentence}")
    print(f"seed {seed}: trace {outcome.trace}, {outcome.virtual_s:.0f} s")
    return 1 if outcome.broken else 0


def _many(play_one: Callable[..., Outcome], seeds: range, jobs: int, *, tell_all: bool) -> int:
    """Tells of each broken law when it is found; the last line sums up."""
    began, outcomes = time.monotonic(), list[Outcome]()
    with ProcessPoolExecutor(jobs, initializer=_begin) as pool:
        for outcome in pool.map(play_one, seeds, chunksize=8):
            outcomes.append(outcome)
            for sentence in outcome.broken + (outcome.passed_over if tell_all else []):
                print(f"seed {outcome.seed}: {sentence}", flush=True)
    took_s = time.monotonic() - began
    words = f"{_summed('broken', 'broken', outcomes)}; {_summed('not yet', 'passed_over', outcomes)}"
    print(f"{len(outcomes)} schedules in {took_s:.0f} s, {len(outcomes) / took_s:.1f} a second; {words}")
    return 1 if any(outcome.broken for outcome in outcomes) else 0


def _begin() -> None:
    """What is there already need not be looked through after each run; the product's log is for a replay."""
    gc.freeze()
    logging.disable()


def _summed(word: str, kind: str, outcomes: list[Outcome]) -> str:
    """How many schedules, and how often which law."""
    laws = Counter(s.partition(":")[0] for o in outcomes for s in {*getattr(o, kind)})
    seeds = sum(bool(getattr(o, kind)) for o in outcomes)
    return f"{word} in {seeds}" + "".join(f", {law} {n}" for law, n in laws.items())


if __name__ == "__main__":
    sys.exit(main())
