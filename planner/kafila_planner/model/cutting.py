"""From the sizes of a checkpoint to its chain: where cuts may be, and what the atoms between them read and hold."""

from itertools import accumulate

from kafila_planner.model.chain import Chain, steps
from kafila_planner.model.equal import EqualChain
from kafila_planner.model.types import Model
from kafila_planner.model.unequal import UnequalChain


def chain_of(model: Model, context_tokens: int, concurrency: int) -> Chain:
    """The chain at the declared context and number of sequences: blocks hold their weights and the sequences' KV."""
    forbidden = {block + 1 for block in model.no_cut_after}
    cuts = [block for block in range(model.blocks) if block not in forbidden] + [model.blocks]
    read = [0, *accumulate(model.block_read_bytes)]
    held = [0, *accumulate(_held(model, block, context_tokens, concurrency) for block in range(model.blocks))]
    sums = [tuple(per_block[cut] for cut in cuts) for per_block in (read, held)]
    sizes = set(zip(*map(steps, [cuts, *sums]), strict=True))
    return (EqualChain if len(sizes) == 1 else UnequalChain)(tuple(cuts), *sums)


def _held(model: Model, block: int, context_tokens: int, concurrency: int) -> int:
    window = model.kv_window_tokens[block]
    tokens = context_tokens if window is None else min(context_tokens, window)
    sequence = tokens * model.kv_bytes_per_token[block] + model.kv_fixed_bytes[block]
    return model.block_bytes[block] + concurrency * sequence
