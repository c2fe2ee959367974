"""Times made-up blocks and a made-up head, as a stage will run them. MLX thread only.

The whole takes a second or two for small models, and stays under ten for any that a member can serve: the slower a
block, the fewer of them, and the fewer batch sizes, are run.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from sidecar.errors import Refused
from sidecar.runtime.memory import usable_bytes
from sidecar.runtime.shard import Shard
from sidecar.runtime.state import State
from sidecar.runtime.synthetic import Checkpoint

BATCHES = (1, 4, 8)
COUNTS = (1, 2, 4, 8)  # blocks at a time
ENOUGH_BYTES = 128 << 20  # of blocks: more than a processor keeps in its caches from one step to the next
FIT = 0.8  # of the usable memory may be filled: a step's own arrays need room too
WARM_UPS = 2
ROUNDS = (5, 40)  # at least, at most
ROUNDS_S = 0.2  # for one batch size, once there are enough rounds
ROUND_S = 0.4  # for one round: as many blocks as that allows
LATE_S = 4.0  # batch sizes that would take longer than this, all in all, are left out
PREFILL_TOKENS = (32, 64, 128, 256, 512)
PREFILL_S = 0.1  # a prefill that takes this long tells enough
SEQUENCE = 1

T = TypeVar("T")
Rounds = tuple[Mapping[int, float], ...]

clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class Readings:
    """Seconds as read, by batch size, one entry a round; those of blocks by the number of blocks run at a time.

    block_bytes: of one block's weights. flops_per_s: 2 · weights · tokens of a prefill over its seconds.
    """

    block_bytes: int
    blocks_s: Mapping[int, Rounds]
    head_s: Mapping[int, tuple[float, ...]]
    flops_per_s: float


def read(config: Mapping[str, Any], dtype: str) -> Readings:
    """Runs one to eight blocks at decode shape, a prefill, then the head.

    Raises: Refused when not even one block fits into memory.
    """
    late_at = clock() + LATE_S
    checkpoint = Checkpoint(config, dtype)
    stages = stages_of(checkpoint)
    blocks_s = _by_batch(lambda batch: _block_rounds(checkpoint, stages, batch), late_at)
    flops_per_s = _prefill(checkpoint, stages[1])
    for stage in stages.values():
        stage.close()
    head_s: Mapping[int, tuple[float, ...]] = {}
    if checkpoint.head_bytes <= _room():
        head = checkpoint.stage(end=0, head=True)
        head_s = _by_batch(lambda batch: _head_rounds(checkpoint, head, batch), late_at)
        head.close()
    return Readings(checkpoint.block_bytes, blocks_s, head_s, flops_per_s)


def _room() -> int:
    return int(usable_bytes() * FIT)


def stages_of(checkpoint: Checkpoint) -> dict[int, Shard]:
    """Stages of a few blocks, by their number; each has weights of its own, so none warms the caches for the next."""
    size, room = checkpoint.block_bytes, _room()
    if size > room:
        raise Refused(
            f"a block of this model takes {size / 1e9:.1f} GB, this member can hold {room / 1e9:.1f} GB of it"
        )
    stages = {1: checkpoint.stage(end=1, head=False)}
    block_s = min(each_once(stages, checkpoint.state(batch=1, tokens=1))[1] for _ in range(WARM_UPS))
    for count in COUNTS[1:]:
        ran = 2 * count - 1  # blocks in one round, this count's included
        if count > checkpoint.blocks or ran * size > room or ran * block_s > ROUND_S:
            break
        if count > 4 and count // 2 * size > ENOUGH_BYTES:
            break
        stages[count] = checkpoint.stage(end=count, head=False)
    return stages


def _by_batch(rounds: Callable[[int], Iterator[T]], late_at: float) -> dict[int, tuple[T, ...]]:
    """Rounds for each batch size that will be done in time even where batching gains nothing; for 1 in any case."""
    began = clock()
    done = {1: tuple(rounds(1))}
    alone_s = clock() - began
    for batch in BATCHES[1:]:
        if clock() + batch * alone_s > late_at:
            break
        done[batch] = tuple(rounds(batch))
    return done


def _block_rounds(checkpoint: Checkpoint, stages: Mapping[int, Shard], batch: int) -> Iterator[Mapping[int, float]]:
    """Decode steps of every stage in turn, so that a slower moment meets them all."""
    for stage in stages.values():
        stage.release(SEQUENCE)
    state = checkpoint.state(batch=batch, tokens=1)
    return _repeated(lambda: each_once(stages, state))


def each_once(stages: Mapping[int, Shard], state: State) -> Mapping[int, float]:
    times = {}
    for count, stage in stages.items():
        arrived = replace(state, position=stage.position(SEQUENCE))
        times[count] = _seconds(partial(stage.run_blocks, SEQUENCE, arrived))
    return times


def _head_rounds(checkpoint: Checkpoint, head: Shard, batch: int) -> Iterator[float]:
    """Norm and unembedding of `batch` hidden states: as one sequence's tokens, which is the same arithmetic."""
    head.embed_and_blocks(SEQUENCE, [0])
    state = checkpoint.state(batch=1, tokens=batch)
    return _repeated(lambda: _seconds(partial(head.norm_and_head, SEQUENCE, state, last_only=False)))


def _prefill(checkpoint: Checkpoint, block: Shard) -> float:
    """Operations a second, of the longest prefill that doesn't take long; the first of a length may compile."""
    for tokens in PREFILL_TOKENS:
        state = checkpoint.state(batch=1, tokens=tokens)
        seconds = []
        for _ in range(WARM_UPS):
            block.release(SEQUENCE)
            seconds.append(_seconds(partial(block.run_blocks, SEQUENCE, state)))
        if seconds[-1] >= PREFILL_S:
            break
    return 2 * checkpoint.block_weights * tokens / seconds[-1]


def _repeated(once: Callable[[], T]) -> Iterator[T]:
    for _ in range(WARM_UPS):
        once()
    began, (least, most) = clock(), ROUNDS
    for done in range(most):
        if done >= least and clock() - began > ROUNDS_S:
            return
        yield once()


def _seconds(step: Callable[[], object]) -> float:
    began = clock()
    step()
    return clock() - began
