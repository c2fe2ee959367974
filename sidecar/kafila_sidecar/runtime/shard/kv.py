"""The caches of a shard's sequences: made at their first frame, gone at their release. MLX thread only."""

from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx_lm.models.cache import make_prompt_cache

from kafila_sidecar.errors import InvalidInput, NotFound


class SequenceCache:
    """One sequence's caches, with a slot for every block of the model, as the architecture's own code expects.

    The slot of a block that isn't ours borrows one of our caches of the same kind, since masks are built from it; with
    none of that kind, a shadow that only counts stands in.
    """

    def __init__(self, model: Module, *, start: int, end: int) -> None:
        made = make_prompt_cache(model)
        self.position = 0  # tokens taken in so far
        self._ours = made[start:end]
        first = {_kind(cache): cache for cache in reversed(made)}
        first |= {_kind(cache): cache for cache in reversed(self._ours)}
        self.slots: list[Any] = [first[_kind(cache)] for cache in made]
        self.slots[start:end] = self._ours
        own = {_kind(cache) for cache in self._ours}
        self._shadows = [cache for kind, cache in first.items() if kind not in own]

    def advance(self, tokens: int) -> None:
        """Counts tokens whose frame has gone through our blocks."""
        self.position += tokens
        for shadow in self._shadows:
            shadow.offset += tokens

    @property
    def arrays(self) -> list[Any]:
        """What has to be evaluated when the output of a frame is not."""
        return [cache.state for cache in self._ours]


class Sequences:
    """All sequences of one shard, by the session's sequence numbers."""

    def __init__(self, model: Module, *, start: int, end: int) -> None:
        self._model, self._start, self._end = model, start, end
        self._caches: dict[int, SequenceCache] = {}

    def at(self, sequence: int, position: int) -> SequenceCache:
        """The caches of a sequence whose next frame is at `position`; new ones at position 0.

        Raises: NotFound when the sequence was released or never began; InvalidInput when a frame is missing or twice.
        """
        cache = self._caches.get(sequence)
        if cache is None:
            if position != 0:
                raise NotFound(f"sequence {sequence} is not known here, yet its frame is at position {position}")
            cache = self._caches[sequence] = SequenceCache(self._model, start=self._start, end=self._end)
        if cache.position != position:
            raise InvalidInput(f"sequence {sequence} stands at {cache.position} tokens, its frame at {position}")
        return cache

    def of(self, sequence: int) -> SequenceCache:
        """The caches of a sequence that has begun.

        Raises: NotFound.
        """
        try:
            return self._caches[sequence]
        except KeyError:
            raise NotFound(f"sequence {sequence} is not known here: it was released or never began") from None

    def position(self, sequence: int) -> int:
        """Tokens taken in so far; 0 for a sequence that hasn't begun."""
        cache = self._caches.get(sequence)
        return 0 if cache is None else cache.position

    def release(self, sequence: int) -> None:
        """Frees a sequence's caches; one that isn't there is nobody's fault."""
        if self._caches.pop(sequence, None) is not None:
            mx.clear_cache()

    def release_all(self) -> None:
        self._caches.clear()
        mx.clear_cache()

    def __len__(self) -> int:
        return len(self._caches)


def _kind(cache: Any) -> tuple[str, int | None]:
    return type(cache).__name__, getattr(cache, "max_size", None)
