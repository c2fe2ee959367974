"""How many tokens a step may have so that each has the bits of a single step: looked for at load. MLX thread only.

The first and the last block with their own weights, and on the head what is around the blocks, run a few made-up tokens
one after another and then together. Where each token's numbers have the same bits, so many are exact here. Attention
over several tokens at once rounds otherwise than token by token on some devices; where only that makes the difference,
steps attend token by token.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import deepcopy
from time import monotonic

import mlx.core as mx

from kafila_sidecar.runtime.shard.carried import Packing
from kafila_sidecar.runtime.shard.kv import SequenceCache, Sequences
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.runtime.shard.partial import PartialModel
from kafila_sidecar.runtime.shard.rows import joined_slots

log = logging.getLogger(__name__)

SIZES = (2, 3, 4, 8)  # tokens of one sequence, or sequences, that are tried
MOST = max(SIZES)
AFTER = MOST + 1  # tokens that are tried at most, and one after them

Standing = tuple[SequenceCache, ...]
"""Where a sequence stands in front of each block that is tried. Each block has caches of its own, as if no other one
were: models read a run's masks off the first cache that they are given.
"""

PROMPT_TOKENS = 19
LENGTHEN = 53  # times: sums over some thousand tokens are divided otherwise than short ones
ENOUGH_S = 1.5  # then no further size is tried


class LearntSteps:
    """What is known of a shard's steps with several tokens. They stay single until `learn` has found more.

    limits: how many tokens they may have. by_token: whether guesses attend token by token.
    """

    def __init__(
        self,
        *,
        passage: PartialModel,
        sequences: Sequences,
        entry: Packing,
        last: Packing,
        held: Collection[str],
        is_head: bool,
        can_guess: bool,
        can_attend_by_token: bool,
        takes_rows: bool,
        can_rewind: bool,
    ) -> None:
        """passage, sequences, entry, last, held, takes_rows, can_rewind: of the shard. can_guess: whether its caches
        can go back over guesses. can_attend_by_token: whether that is the same as attending to all at once."""
        self.limits = StepLimits()
        self.by_token = False
        self._has_learnt = False
        self._passage, self._sequences = passage, sequences
        self._entry, self._last = entry, last
        self._held = held
        self._is_head = is_head
        self._can_guess = can_guess
        self._can_attend_by_token = can_attend_by_token
        self._takes_rows, self._can_rewind = takes_rows, can_rewind

    def learn(self, before: "LearntSteps | None" = None) -> None:
        """Looks for it, with two of the shard's blocks; takes a second or two at most.

        Where the model's code can't run a block by itself, steps stay single. before: of another part of the same
        checkpoint, in the same form, that may have learnt it. Blocks are alike, so nothing is run again then, unless
        only we have what is around them.
        """
        if not self._can_guess:
            return
        if before is not None and before._has_learnt and before._is_head >= self._is_head:
            self.limits, self.by_token, self._has_learnt = before.limits, before.by_token, True
            return
        self._has_learnt = True
        dtype = element_type(array for name, array in self._passage.weights().items() if name in self._held)
        trial = Trial(self._passage, self._entry, self._last, dtype, is_head=self._is_head)
        try:
            self.limits, self.by_token = look(
                trial,
                trial.begins(self._sequences.made),
                by_token=self._can_attend_by_token,
                rows=self._takes_rows,
                may_differ=self._can_rewind,
            )
        except Exception as error:  # noqa: BLE001  # whatever foreign code raises for blocks that belong together
            log.info("steps_stay_single reason=%s", type(error).__name__)


class Trial:
    """Runs made-up states."""

    def __init__(self, passage: PartialModel, entry: Packing, last: Packing, dtype: mx.Dtype, *, is_head: bool) -> None:
        self._passage, self._entry, self._last, self._is_head = passage, entry, last, is_head
        self.dtype = dtype
        count = AFTER + PROMPT_TOKENS
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


class SingleSteps:
    """What single steps give from one standing, against which steps of several tokens are held."""

    def __init__(self, trial: Trial, begun: Standing, *, late_at: float) -> None:
        """late_at: when no further size is tried, on the monotonic clock."""
        self._trial, self._begun, self._late_at = trial, begun, late_at
        self._alone: list[list[mx.array]] = []  # by token
        self._stands: list[Standing] = []  # before each of them

    def most_tokens(self, *, by_token: bool = False) -> int:
        """Of one sequence, in one step that is exact, and after which single steps are."""
        return self._largest(lambda size: self._is_exact(size, self._stands[:1], by_token=by_token))

    def most_rows(self) -> int:
        """Sequences in one run that is exact."""
        return self._largest(lambda size: self._is_exact(size, self._stands[:size]))

    def _largest(self, holds: Callable[[int], bool]) -> int:
        exact = 1
        for size in SIZES:
            self._run_alone(size + 1)
            if monotonic() > self._late_at or not holds(size):
                break
            exact = size
        return exact

    def _run_alone(self, size: int) -> None:
        for token in range(len(self._alone), size):
            self._stands.append(deepcopy(self._begun))
            self._alone.append(self._trial.run([self._begun], range(token, token + 1)))

    def _is_exact(self, size: int, before: Sequence[Standing], *, by_token: bool = False) -> bool:
        stands = deepcopy(before)
        together = self._trial.run(stands, range(size), by_token=by_token)
        if not all(_are_equal(part, [one[at] for one in self._alone[:size]]) for at, part in enumerate(together)):
            return False
        if len(stands) > 1:
            return True
        after = self._trial.run(stands, range(size, size + 1))  # windows keep tokens in another order now
        return all(bool(mx.array_equal(*pair)) for pair in zip(after, self._alone[size], strict=True))


def look(
    trial: Trial, begun: Standing, *, by_token: bool, rows: bool, may_differ: bool = True
) -> tuple[StepLimits, bool]:
    """What is exact here behind a short text and a long one, and whether steps are to attend token by token. begun: a
    new sequence. by_token, rows: whether attention may be so, and whether several sequences may be in one run.
    may_differ: whether what differs a little does so in that step alone: states that are made of one another carry it
    on."""
    late_at = monotonic() + ENOUGH_S
    trial.run([begun], range(AFTER, AFTER + PROMPT_TOKENS))
    lengthy = deepcopy(begun)
    for caches in lengthy:
        caches.lengthen(LENGTHEN)
    steps = [SingleSteps(trial, one, late_at=late_at) for one in (lengthy, begun)]
    exact = min(one.most_tokens() for one in steps)
    split = min(one.most_tokens(by_token=True) for one in steps) if by_token and exact < MOST else 1
    together = min(one.most_rows() for one in steps) if rows else 1
    is_bounded = may_differ and mx.default_device() == mx.Device(mx.cpu) and trial.dtype == mx.float32
    most = max(exact, split)
    return StepLimits(most, MOST if is_bounded else most, together), split > exact


def element_type(weights: Iterable[mx.array]) -> mx.Dtype:
    """What most arrays are of that are no packed integers: states are too."""
    found = Counter(array.dtype for array in weights if mx.issubdtype(array.dtype, mx.floating))
    return found.most_common(1)[0][0] if found else mx.float32


def _are_equal(together: mx.array, alone: Sequence[mx.array]) -> bool:
    return bool(mx.array_equal(together, mx.concatenate(list(alone), axis=1)))
