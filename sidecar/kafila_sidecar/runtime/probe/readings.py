"""Times made-up blocks and a made-up head, as a stage will run them. MLX thread only.

The whole takes a second or two for small models. The slower a block, the fewer of them, and the fewer batch sizes, are
run, so that it takes some `LATE_S` for large ones once the blocks are made; single sequences and a prefill are timed in
any case, and three numbers of blocks wherever they fit, since two unknowns are read off them. How long making the
blocks takes, where a GPU's programs may be compiled, is not bounded here.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, TypeVar

from kafila_sidecar.errors import Refused
from kafila_sidecar.runtime.memory import usable_bytes
from kafila_sidecar.runtime.probe.rounds import HEAD, Readings, Round, counts_of
from kafila_sidecar.runtime.probe.synthetic import CheckpointShape
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.state import HiddenState

BATCHES = (1, 4, 8)
FIT = 0.8  # of the usable memory may be filled: a step's own arrays need room too
WARM_UPS = 2
ROUNDS = (4, 40)  # at least, at most
ROUNDS_S = 0.4  # for one batch size, once there are enough rounds; and for warming up
LATE_S = 6.0  # batch sizes that would take longer than this after the blocks are made, all in all, are left out
PREFILL_TOKENS = (32, 64, 128, 256, 512)
PREFILL_S = 0.1  # a prefill that takes this long tells enough
SEQUENCE = 1

T = TypeVar("T")

clock = time.perf_counter


def read(config: Mapping[str, Any], dtype: str, *, most_rows: int) -> Readings:
    """Runs one to eight blocks and the head at decode shape, with batches of up to `most_rows`, then a prefill.

    Raises: Refused when not even one block fits into memory.
    """
    checkpoint = CheckpointShape(config, dtype)
    stages = stages_of(checkpoint)  # with which a GPU's programs may be compiled: that is no time of ours
    late_at = clock() + LATE_S
    most_rows = most_rows if stages[1].takes_rows else 1
    batches = [batch for batch in BATCHES if batch <= most_rows]
    rounds_s = by_batch(partial(_rounds, checkpoint, stages), batches, late_at)
    prefill_s = _prefill(checkpoint, stages[1])
    _close(stages)
    if HEAD not in stages and checkpoint.head_bytes <= _room():
        alone = {HEAD: checkpoint.stage(end=0, head=True)}
        heads_s = by_batch(partial(_rounds, checkpoint, alone), batches, late_at)
        rounds_s = {batch: rounds + heads_s.get(batch, ()) for batch, rounds in rounds_s.items()}
        _close(alone)
    longest = max(prefill_s)
    flops_per_s = 2 * checkpoint.block_weights * longest / prefill_s[longest]
    return Readings(checkpoint.block_bytes, rounds_s, flops_per_s, prefill_s)


def _room() -> int:
    return int(usable_bytes() * FIT)


def _close(stages: Mapping[int, Shard]) -> None:
    for stage in stages.values():
        stage.close()


def stages_of(checkpoint: CheckpointShape) -> dict[int, Shard]:
    """Stages of a few blocks, by their number, and the head where it fits beside them.

    Each has weights of its own, and the head runs between blocks as it will when it serves: none finds what it reads in
    the processor's caches from the step before.
    """
    size, room = checkpoint.block_bytes, _room()
    if size > room:
        raise Refused(
            f"a block of this model takes {size / 1e9:.1f} GB, this member can hold {room / 1e9:.1f} GB of it"
        )
    stages = {}
    if checkpoint.head_bytes + size <= room:
        stages[HEAD] = checkpoint.stage(end=0, head=True)
        room -= checkpoint.head_bytes
    stages[1] = checkpoint.stage(end=1, head=False)
    alone, state = {1: stages[1]}, checkpoint.state(batch=1, tokens=1)
    block_s = min(each_once(alone, state)[1] for _ in range(WARM_UPS))
    for count in counts_of(checkpoint.blocks, block_bytes=size, block_s=block_s, room_bytes=room)[1:]:
        stages[count] = checkpoint.stage(end=count, head=False)
    return stages


def by_batch(
    rounds: Callable[[int], Iterator[Round]], batches: Sequence[int], late_at: float
) -> dict[int, tuple[Round, ...]]:
    """Rounds for each batch size that will be done in time even where batching gains nothing; for 1 in any case. What a
    first step takes, as to compile it, says nothing of those after it."""
    done = {1: tuple(rounds(1))}
    round_s = median(sum(one.values()) for one in done[1])
    for batch in batches[1:]:
        if clock() + batch * round_s * (ROUNDS[0] + WARM_UPS) > late_at:
            break
        done[batch] = tuple(rounds(batch))
    return done


def _rounds(checkpoint: CheckpointShape, stages: Mapping[int, Shard], batch: int) -> Iterator[Round]:
    """Decode steps of every stage in turn, so that a slower moment meets them all."""
    begin(stages, checkpoint, batch)
    state = checkpoint.state(batch=1, tokens=1)
    return _repeated(lambda: each_once(stages, state, batch))


def begin(stages: Mapping[int, Shard], checkpoint: CheckpointShape, batch: int = 1) -> None:
    """As many sequences on each stage, one longer than the other, as those of a run are."""
    for count, stage in stages.items():
        for sequence in range(SEQUENCE, SEQUENCE + batch):
            stage.release(sequence)
            if count == HEAD:
                stage.embed_and_blocks(sequence, [0])
            elif sequence > SEQUENCE:
                stage.run_blocks(sequence, checkpoint.state(batch=1, tokens=sequence - SEQUENCE))


def each_once(stages: Mapping[int, Shard], state: HiddenState, batch: int = 1) -> Round:
    """One decode step of `batch` sequences on each stage; state: [1, 1, D] of one."""
    run = range(SEQUENCE, SEQUENCE + batch)
    return {count: _seconds(_step(stage, count, run, state)) for count, stage in stages.items()}


def _step(stage: Shard, count: int, run: Sequence[int], state: HiddenState) -> Callable[[], object]:
    if count == HEAD:
        return partial(stage.logits_of, [(sequence, state) for sequence in run])
    return partial(stage.run_rows, [(sequence, replace(state, position=stage.position(sequence))) for sequence in run])


def _prefill(checkpoint: CheckpointShape, block: Shard) -> dict[int, float]:
    """Seconds by tokens at once, until one takes long; the first of a length may compile."""
    taken_s = {}
    for tokens in PREFILL_TOKENS:
        state = checkpoint.state(batch=1, tokens=tokens)
        seconds = []
        for _ in range(WARM_UPS):
            block.release(SEQUENCE)
            seconds.append(_seconds(partial(block.run_blocks, SEQUENCE, state)))
            if seconds[-1] >= ROUNDS_S:
                break
        taken_s[tokens] = min(seconds)
        if seconds[-1] >= PREFILL_S:
            break
    return taken_s


def _repeated(once: Callable[[], T]) -> Iterator[T]:
    began, (least, most) = clock(), ROUNDS
    for _ in range(WARM_UPS):
        if clock() - began < ROUNDS_S:
            once()
    began = clock()
    for done in range(most):
        if done >= least and clock() - began > ROUNDS_S:
            return
        yield once()


def _seconds(step: Callable[[], object]) -> float:
    began = clock()
    step()
    return clock() - began
