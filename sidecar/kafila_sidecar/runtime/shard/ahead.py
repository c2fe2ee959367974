"""A step that is built before its input is there. MLX thread only.

MLX's graphs are made in Python, block after block, before anything is computed: on a GPU that takes as long as the
computing. While a sequence's state is on its way round the ring, its next step is built over an input without content.
When the state comes, its bytes are put in and all is evaluated. If something else comes, the caches get back the arrays
that they had, and nothing was computed.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import mlx.core as mx
import numpy as np

from kafila_sidecar.runtime.shard.arrays import RAW
from kafila_sidecar.runtime.shard.kv import Saved, SequenceCache
from kafila_sidecar.runtime.shard.state import HiddenState

Step = TypeVar("Step")


class LateInput:
    """A state whose bytes come later. array: [B, T, W], to build with."""

    def __init__(self, dtype: str, shape: tuple[int, int, int]) -> None:
        self._dtype, view = RAW[dtype]
        raw = mx.array(np.zeros(shape, self._dtype))
        mx.eval(raw)
        self._content = np.array(raw, copy=False)  # lies over the array's own memory, and so keeps it from being reused
        self.array = raw if view is None else raw.view(view)

    def write(self, state: HiddenState) -> None:
        self._content[...] = np.frombuffer(state.payload, dtype=self._dtype).reshape(state.shape)


class Ahead(Generic[Step]):
    """What was built of a sequence's next step. wants: what it was built for, other than that it has to be undone."""

    def __init__(self, cache: SequenceCache, late: LateInput, build: Callable[[mx.array], Step], wants: object) -> None:
        self.cache = cache
        self.wants = wants
        self._late = late
        self._saved: Saved | None = cache.saved()
        try:
            self._step = build(late.array)
        except BaseException:
            self.undo()
            raise

    def given(self, state: HiddenState) -> Step:
        """The step, ready to be evaluated."""
        self._late.write(state)
        self._saved = None  # else all that the step changes would be copied
        return self._step

    def undo(self) -> None:
        """The caches are as they were."""
        if self._saved is not None:
            self.cache.restore(self._saved)
