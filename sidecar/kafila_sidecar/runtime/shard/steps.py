"""How many tokens a step may have so that each has the bits of a single step: looked for at load. MLX thread only.

The first and the last block with their own weights, and on the head what is around the blocks, run a few made-up tokens
one after another and then together. Where each token's numbers have the same bits, so many are exact here. Attention
over several tokens at once rounds otherwise than token by token on some devices; where only that makes the difference,
steps attend token by token.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from time import monotonic

import mlx.core as mx

from kafila_sidecar.runtime.shard.carried import Packing
from kafila_sidecar.runtime.shard.kv import SequenceCache
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.runtime.shard.partial import PartialModel
from kafila_sidecar.runtime.shard.rows import joined_slots

SIZES = (2, 3, 4, 8)  # tokens of one sequence, or sequences, that are tried
MOST = max(SIZES)

Standing = tuple[SequenceCache, ...]
"""Where a sequence stands in front of each block that is tried. Each block has caches of its own, as if no other one
were: models read a run's masks off the first cache that they are given.
"""

PROMPT_TOKENS = 19
LENGTHEN = 53  # times: sums over some thousand tokens are divided otherwise than short ones
ENOUGH_S = 1.5  # then no further size is tried


class Trial:
    """Runs made-up states."""

    def __init__(self, passage: PartialModel, entry: Packing, last: Packing, dtype: mx.Dtype, *, is_head: bool) -> None:
        self._passage, self._entry, self._last, self._is_head = passage, entry, last, is_head
        self.dtype = dtype
        count = MOST + PROMPT_TOKENS
        self._states = mx.random.normal((count, entry.layout.width), key=mx.random.key(7)).astype(dtype)

    def begins(self, made: Callable[[], SequenceCache]) -> Standing:
        """A sequence that has taken nothing in."""
        return tuple(made() for _ in self._passage.ends)

    def run(self, stands: Sequence[Standing], tokens: range, *, by_token: bool = False) -> list[mx.array]:
        """What is made of tokens, of one sequence one after another or one of each: [tokens, numbers], evaluated."""
        shape = (1, len(tokens)) if len(stands) == 1 else (len(tokens), 1)
        states = self._states[tokens.start : tokens.stop].reshape(*shape, -1)
        made = []
        for block, caches in zip(self._passage.ends, zip(*stands, strict=True), strict=True):
            slots = joined_slots(caches, by_token=by_token)
            with self._passage.only(block):
                made.append(self._passage.of_state(self._entry.parted(states), slots).hidden)
            for cache in caches:
                cache.advance(shape[1])
        if self._is_head:
            made.append(self._passage.of_head(self._last.parted(states)))
        made = [part.reshape(-1, len(tokens), part.shape[-1]) for part in made]
        mx.eval(made)
        return made


def look(trial: Trial, begun: Standing, *, by_token: bool, rows: bool) -> tuple[StepLimits, bool]:
    """What is exact here, and whether steps are to attend token by token. begun: a new sequence.
    by_token, rows: whether attention may be so, and whether several sequences may be in one run."""
    late_at = monotonic() + ENOUGH_S
    trial.run([begun], range(MOST, MOST + PROMPT_TOKENS))
    for caches in begun:
        caches.lengthen(LENGTHEN)
    alone: list[list[mx.array]] = []  # by token
    stands: list[Standing] = []  # before each of them

    def run_alone(size: int) -> None:
        for token in range(len(alone), size):
            stands.append(deepcopy(begun))
            alone.append(trial.run([begun], range(token, token + 1)))

    def is_exact(size: int, before: Sequence[Standing], *, by_token: bool = False) -> bool:
        together = trial.run(deepcopy(before), range(size), by_token=by_token)
        return all(_are_equal(part, [one[at] for one in alone[:size]]) for at, part in enumerate(together))

    def largest(holds: Callable[[int], bool]) -> int:
        exact = 1
        for size in SIZES:
            run_alone(size)
            if monotonic() > late_at or not holds(size):
                break
            exact = size
        return exact

    exact = largest(lambda size: is_exact(size, stands[:1]))
    split = largest(lambda size: is_exact(size, stands[:1], by_token=True)) if by_token and exact < MOST else 1
    together = largest(lambda size: is_exact(size, stands[:size])) if rows else 1
    is_bounded = mx.default_device() == mx.Device(mx.cpu) and trial.dtype == mx.float32
    most = max(exact, split)
    return StepLimits(most, MOST if is_bounded else most, together), split > exact


def element_type(weights: Iterable[mx.array]) -> mx.Dtype:
    """What most arrays are of that are no packed integers: states are too."""
    found = Counter(array.dtype for array in weights if mx.issubdtype(array.dtype, mx.floating))
    return found.most_common(1)[0][0] if found else mx.float32


def _are_equal(together: mx.array, alone: Sequence[mx.array]) -> bool:
    return bool(mx.array_equal(together, mx.concatenate(list(alone), axis=1)))
