"""What a token costs each stage beside its blocks: processor time of frames, tasks, threads and the link below them.

    python -m bench.overhead [--stages 3] [--users 1 4] [--tokens 300] [--rounds 5] [--record]

The ring is real, its members are processes, the shards do nothing: a state of 4,096 bfloat16 goes round as it came.
In turns with it a bare stream carries as many messages of the same size there and back, and the head's MLX thread does
nothing as many times. Printed: milliseconds of processor time a token for the head and for the other stages, and what
is left of them without the link and without the thread. Wanted: 0.8 on the head and 0.4 on a stage, beside the link.

Seen on two quiet cores, one user: the bare stream 0.20 ms, the head 0.39 and a stage 0.32 beside it; with others at
work on them up to twice as much.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

from bench.members import RingOfProcesses, RingShape, ring_of_processes
from bench.record import add_record_option, record
from kafila_sidecar.runtime.shard.finite import TokenLayout, check_state
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.runtime.shard.picking import Pick, Picked
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState

WIDTH = 4096
LAYOUT = TokenLayout(WIDTH, WIDTH)
FRAME_BYTES = 2 * WIDTH + 64
BLOCKS_A_STAGE = 4
CONTEXT_TOKENS = 4096
TOKEN = 7  # what is always picked
WANTED_MS = {"head": 0.8, "stage": 0.4}
MEASURED: dict[str, Any] = {
    "block_s": {"1": 0.01, "8": 0.011},
    "head_s": {"1": 0.01, "8": 0.011},
    "overhead_s": 0.001,
    "rtt_s": 0.0001,
}
"""Of machines on which runs of several rows pay, so that there are some."""


class FreeShard:
    """What a stage needs of a Shard, which computes nothing; a state is looked at as ever."""

    entry = last = LAYOUT
    takes_rows = True
    all_rewind = model_can_forget = runs_ahead = hands_over = False
    step_limits = StepLimits()

    def __init__(self) -> None:
        self._at: dict[int, int] = {}

    def embed_and_blocks(self, sequence: int, tokens: Sequence[int]) -> HiddenState:
        return self._moved(sequence, HiddenState(bytes(2 * WIDTH), "bfloat16", (1, 1, WIDTH), 0))

    def pick(self, rows: Sequence[Pick]) -> list[Picked]:
        return [Picked(TOKEN, self._moved(row.sequence, row.state) if row.goes_on else None) for row in rows]

    def check_next(self, sequence: int, state: HiddenState) -> None:
        check_state(state, self.entry)

    def run_rows(self, rows: Sequence[tuple[int, HiddenState]], *, has_guesses: bool = False) -> list[HiddenState]:
        return [state for _, state in rows]

    def build_steps(self, rows: Sequence[tuple[int, int]], like: HiddenState) -> None: ...

    def build_pick(self, rows: Sequence[Pick]) -> None: ...

    def absorb(self, sequence: int, state: HiddenState) -> None: ...

    def release(self, sequence: int) -> None:
        self._at.pop(sequence, None)

    def _moved(self, sequence: int, state: HiddenState) -> HiddenState:
        at = self._at.get(sequence, 0)
        self._at[sequence] = at + 1
        return HiddenState(state.payload, state.dtype, state.shape, at)


def make_shard(start: int, end: int, head: bool) -> Shard:
    return cast(Shard, FreeShard())


@dataclass(frozen=True, slots=True)
class CpuSpent:
    """Milliseconds of processor time a token, or a message there and back, or a call."""

    head_ms: float
    stage_ms: float  # the mean of the other stages
    near_ms: float  # of a message there and back at the end that began
    far_ms: float
    call_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", type=int, default=3)
    parser.add_argument("--users", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    add_record_option(parser)
    options = parser.parse_args()
    shape = RingShape(
        cuts=[BLOCKS_A_STAGE * place for place in range(options.stages + 1)],
        make_shard=make_shard,
        vocabulary=TOKEN + 1,
        context_tokens=CONTEXT_TOKENS,
        concurrency=max(options.users),
        measured=MEASURED,
    )
    with ring_of_processes(shape) as ring:
        measure(ring, max(options.users), options.tokens)
        rounds = [
            {users: measure(ring, users, options.tokens) for users in options.users} for _ in range(options.rounds)
        ]
    figures = {f"{users}_users": report(users, [one[users] for one in rounds]) for users in options.users}
    if options.record:
        record("overhead", {"stages": options.stages, "tokens": options.tokens, **figures})


def measure(ring: RingOfProcesses, users: int, tokens: int) -> CpuSpent:
    """Of one round."""
    count = users * tokens
    answers = spent_ms(ring, count, lambda: ring.answer([[1]] * users, tokens))
    echoes = spent_ms(ring, tokens, lambda: ring.echo(FRAME_BYTES, tokens))
    calls = spent_ms(ring, tokens, lambda: ring.call_thread(tokens))
    others = answers[1:]
    return CpuSpent(answers[0], sum(others) / len(others), echoes[0], echoes[1], calls[0])


def spent_ms(ring: RingOfProcesses, count: int, work: Any) -> Sequence[float]:
    """What each member has used of its processor for one of `count`."""
    before = ring.spent_s()
    work()
    return [1e3 * (after - at) / count for at, after in zip(before, ring.spent_s(), strict=True)]


def report(users: int, rounds: Sequence[CpuSpent]) -> dict[str, float]:
    """Prints the medians, and returns them."""
    head, stage = (median(one.head_ms for one in rounds), median(one.stage_ms for one in rounds))
    link = median((one.near_ms + one.far_ms) / 2 for one in rounds)
    call = median(one.call_ms for one in rounds)
    beside = {
        "head": median(one.head_ms - (one.near_ms + one.far_ms) / 2 for one in rounds),
        "stage": median(one.stage_ms - (one.near_ms + one.far_ms) / 2 for one in rounds),
    }
    print(f"{users} users, ms of processor time a token; medians of {len(rounds)} rounds")
    print(f"  a message in and one out on a bare stream   {link:6.3f}")
    print(f"  a call of the MLX thread                    {call:6.3f}")
    for name, whole in (("head", head), ("stage", stage)):
        verdict = "met" if beside[name] <= WANTED_MS[name] else "NOT met"
        ratio = f"{whole / link:.2f} x the link"
        print(f"  {name:6} {whole:6.3f}   beside the link {beside[name]:6.3f}   ({ratio}; {WANTED_MS[name]} {verdict})")
    return {"head_ms": head, "stage_ms": stage, "link_ms": link, "call_ms": call}


if __name__ == "__main__":
    main()
