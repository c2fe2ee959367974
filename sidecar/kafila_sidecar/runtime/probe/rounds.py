"""What is read off this machine when it is measured: seconds, a round at a time. Imports without MLX."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

HEAD = 0  # in a round: the head, beside the numbers of blocks run at a time

COUNTS = (1, 2, 3, 4, 8)  # blocks at a time
LEAST_COUNTS = 3  # however slow a block is, up to `SLOWEST_ROUND_S`
ENOUGH_BYTES = 128 << 20  # of blocks: more than a processor keeps in its caches from one step to the next
ROUND_S = 0.4  # for the blocks of one round: as many as that allows
SLOWEST_ROUND_S = 1.2

Round = Mapping[int, float]  # seconds by the number of blocks run at a time, HEAD among them


@dataclass(frozen=True, slots=True)
class Readings:
    """Seconds as read, by batch size, one entry a round.

    block_bytes: of one block's weights. flops_per_s: 2 · weights · tokens of a prefill over its seconds. prefill_s: of
    one block, by tokens at once.
    """

    block_bytes: int
    rounds_s: Mapping[int, tuple[Round, ...]]
    flops_per_s: float
    prefill_s: Mapping[int, float] = field(default_factory=dict)

    def with_(self, more: "Readings") -> "Readings":
        """Both, as if they had been taken at once."""
        batches = self.rounds_s.keys() | more.rounds_s.keys()
        rounds_s = {batch: (*self.rounds_s.get(batch, ()), *more.rounds_s.get(batch, ())) for batch in sorted(batches)}
        return replace(self, rounds_s=rounds_s)


def counts_of(blocks: int, *, block_bytes: int, block_s: float, room_bytes: int) -> Sequence[int]:
    """How many blocks to run at a time, of a model of so many; all that a round runs have to be in memory at once.

    Two unknowns are read off them, so that a slow machine runs three numbers of blocks too.
    """
    counts, ran = [COUNTS[0]], COUNTS[0]
    for count in COUNTS[1:]:
        ran += count
        round_s = SLOWEST_ROUND_S if len(counts) < LEAST_COUNTS else ROUND_S
        if count > blocks or ran * block_bytes > room_bytes or ran * block_s > round_s:
            break
        if count > 4 and count // 2 * block_bytes > ENOUGH_BYTES:
            break
        counts.append(count)
    return counts
