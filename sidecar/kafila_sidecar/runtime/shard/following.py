"""Tokens one after another where one shard has all the blocks. MLX thread only.

A GPU computes a step in about the time that Python takes to build one. So while it computes, the next step is built
over that one's token, which nobody has read yet, and handed over: as mlx-lm does. What turns out not to be wanted is
forgotten like a guess.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafila_sidecar.runtime.shard.picking import Picked, Scores, may_choose, no_choice
from kafila_sidecar.runtime.text.sample import Sampler

if TYPE_CHECKING:
    import mlx.core as mx

    from kafila_sidecar.runtime.shard.kv import SequenceCache, Sequences
    from kafila_sidecar.runtime.shard.partial import PartialModel

UNDER_WAY = 2  # steps: one is computed, one waits behind it


@dataclass(frozen=True, slots=True)
class Follow:
    """The token at `position` of a sequence, after which one is wanted. more: so many are wanted after that one, unless
    it ends the answer. top: as of `Pick`."""

    sequence: int
    position: int
    token: int
    sampler: Sampler
    more: int = 0
    top: int | None = None


@dataclass(frozen=True, slots=True)
class OneToken:
    """A step that was handed over: scores [V], the token of one id, whether there was a choice."""

    logits: "mx.array"
    token: "mx.array"
    is_choice: "mx.array"
    scores: Scores | None

    @property
    def arrays(self) -> "Sequence[mx.array]":
        return [self.token, self.is_choice, *(self.scores.arrays if self.scores else ())]

    def told(self) -> Picked:
        """Waits for it. Raises: NotFinite."""
        from kafila_sidecar.runtime.shard.arrays import raw_of

        token: Any = self.token.item()
        if not self.is_choice.item():
            raise no_choice(*raw_of(self.logits))
        return Picked(token, None, self.scores.told() if self.scores else None)


class UnderWay:
    """The steps of one sequence that nobody has asked for yet, over its caches, which are that far already."""

    def __init__(self, passage: "PartialModel", cache: "SequenceCache", row: Follow) -> None:
        import mlx.core as mx

        self.wants: object = _asks(row, row.token)
        self.cache = cache
        self._passage, self._row = passage, row
        self._steps: deque[OneToken] = deque()
        self._last = mx.array([row.token], dtype=mx.int32)
        self._failure: Exception | None = None  # of what nobody had asked for yet

    @property
    def caches(self) -> "Sequence[SequenceCache]":
        return (self.cache,)

    def go_on(self, most: int) -> None:
        """Hands over steps until so many are under way."""
        while len(self._steps) < min(most, UNDER_WAY):
            self._hand_over()

    def next(self, row: Follow) -> Picked:
        """The token of the oldest step. Raises: NotFinite, and what went wrong with a later one."""
        if self._failure is not None:
            raise self._failure
        self._row = row
        self.go_on(1 + row.more)
        picked = self._steps.popleft().told()
        row.sampler.take(picked.token)
        self.cache.advance(1)
        self.wants = _asks(row, picked.token)
        return picked

    def prepare(self) -> None:
        """Hands over what will be asked for; who asks hears what goes wrong."""
        try:
            self.go_on(self._row.more)
        except Exception as error:  # noqa: BLE001  # whatever the model's code raises
            self._failure = error

    def undo(self) -> None:
        """What is under way is forgotten."""
        steps, begins = len(self._steps), self.cache.position
        self._steps.clear()
        self.cache.advance(steps)
        self.cache.go_back(begins)

    def _hand_over(self) -> None:
        import mlx.core as mx

        row = self._row
        logits = self._passage.of_whole(self._last[None], self.cache.slots)[0, -1]
        token = row.sampler.choose(logits, [step.token for step in self._steps])
        scores = None if row.top is None else Scores(row.sampler.of_tokens(logits), token, row.top)
        step = OneToken(logits, token, may_choose(logits), scores)
        mx.async_eval(*step.arrays)  # type: ignore[no-untyped-call]
        self._steps.append(step)
        self._last = token.reshape(1).astype(mx.int32)


class TokenRunner:
    """Picks token after token. MLX thread only."""

    def __init__(self, *, passage: "PartialModel", sequences: "Sequences") -> None:
        self._passage = passage
        self._sequences = sequences

    def follow(self, row: Follow) -> Picked:
        """The token that follows the row's.

        Raises: NotFound for a sequence that isn't here; NotFinite for scores without a choice.
        """
        self._sequences.check(row.sequence)
        under_way: UnderWay | None = self._sequences.ahead([(row.sequence, row.position)], _asks(row, row.token))
        if under_way is None:
            under_way = UnderWay(self._passage, self._sequences.at(row.sequence, row.position), row)
        under_way.cache.ahead = under_way
        try:
            return under_way.next(row)
        except BaseException:
            under_way.cache.drop_ahead()
            raise

    def prepare(self, sequence: int) -> None:
        """Hands over what `follow` will be asked for, if the sequence is still here and nothing else came of it."""
        under_way = self._sequences.under_way(sequence)
        if isinstance(under_way, UnderWay):
            under_way.prepare()


def _asks(row: Follow, token: int) -> object:
    """What tells apart for which rows steps are under way. token: before them."""
    return row.sampler, row.top, token
