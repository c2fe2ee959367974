"""The model as the planner divides it: a chain of atoms, each a shortest run of blocks that may be cut at both ends."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kafila_planner.model.types import Model


@dataclass(frozen=True, slots=True)
class Chain:
    """`cuts[a]` is the block at which atom a starts; `read` and `held` are running sums of bytes over atoms.

    All three have one entry more than there are atoms, so that atoms [a, b) read `read[b] - read[a]` bytes a step.
    """

    cuts: tuple[int, ...]
    read: tuple[int, ...]
    held: tuple[int, ...]
    equal: bool

    @property
    def atoms(self) -> int:
        return len(self.cuts) - 1

    def reach(self, start: int, room_bytes: int) -> int:
        """The furthest end such that atoms [start, end) fit in the room; below `start` if even none would."""
        return bisect_right(self.held, self.held[start] + room_bytes) - 1

    def least_held(self) -> int:
        """Bytes of the smallest atom."""
        return min(after - before for before, after in zip(self.held, self.held[1:], strict=False))


def chain_of(model: Model, context_tokens: int, concurrency: int) -> Chain:
    """The chain at the declared context and number of sequences: blocks hold their weights and the sequences' KV."""
    forbidden = {block + 1 for block in model.no_cut_after}
    cuts = [block for block in range(model.blocks) if block not in forbidden] + [model.blocks]
    read = [0, *accumulate(model.block_read_bytes)]
    held = [0, *accumulate(_held(model, block, context_tokens, concurrency) for block in range(model.blocks))]
    sizes = {(read[b] - read[a], held[b] - held[a], b - a) for a, b in pairwise(cuts)}
    return Chain(
        cuts=tuple(cuts),
        read=tuple(read[cut] for cut in cuts),
        held=tuple(held[cut] for cut in cuts),
        equal=len(sizes) == 1,
    )


def _held(model: Model, block: int, context_tokens: int, concurrency: int) -> int:
    window = model.kv_window_tokens[block]
    tokens = context_tokens if window is None else min(context_tokens, window)
    sequence = tokens * model.kv_bytes_per_token[block] + model.kv_fixed_bytes[block]
    return model.block_bytes[block] + concurrency * sequence
