"""A step that is built before its input is there. MLX thread only.

MLX's graphs are made in Python, block after block, before anything is computed: on a GPU that takes as long as the
computing. While the states of a sequence, or of those of one run, are on their way round the ring, their next step is
built over an input without content. When the states come, their bytes are put in and all is evaluated. If something
else comes of any of them, the caches get back the arrays that they had, and nothing was computed.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import mlx.core as mx
import numpy as np

from kafila_sidecar.runtime.shard.arrays import RAW
from kafila_sidecar.runtime.shard.kv import Saved, SequenceCache, restore
from kafila_sidecar.runtime.shard.state import HiddenState

Step = TypeVar("Step")


class LateInput:
    """States whose bytes come later. array: [B, T, W], to build with."""

    def __init__(self, dtype: str, shape: tuple[int, int, int]) -> None:
        self._dtype, view = RAW[dtype]
        raw = mx.array(np.zeros(shape, self._dtype))
        mx.eval(raw)
        self._content = np.array(raw, copy=False)  # lies over the array's own memory, and so keeps it from being reused
        self.array = raw if view is None else raw.view(view)

    def write(self, states: Sequence[HiddenState]) -> None:
        """A state for each row."""
        for row, state in enumerate(states):
            self._content[row] = np.frombuffer(state.payload, dtype=self._dtype).reshape(state.shape[1:])


class Ahead(Generic[Step]):
    """What was built of the next step of some sequences, and stands at each of their caches as `ahead`. wants: what it
    was built for, other than that it has to be undone."""

    def __init__(
        self, caches: Sequence[SequenceCache], late: LateInput, build: Callable[[mx.array], Step], wants: object
    ) -> None:
        self.caches = caches
        self.wants = wants
        self._late = late
        self._saved: Saved = [one for cache in caches for one in cache.saved()]
        try:
            self._step = build(late.array)
        except BaseException:
            self.undo()
            raise
        for cache in caches:
            cache.ahead = self

    def given(self, states: Sequence[HiddenState]) -> Step:
        """The step, ready to be evaluated."""
        self._late.write(states)
        self._saved = []  # else all that the step changes would be copied
        return self._step

    def undo(self) -> None:
        """The caches are as they were."""
        restore(self._saved)
        self._saved = []
        for cache in self.caches:
            cache.ahead = None
