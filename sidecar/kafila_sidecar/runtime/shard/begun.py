"""A run that was built, and whose sequences have taken in their tokens. MLX thread only, but for `told`."""

from collections.abc import Sequence
from functools import partial

import mlx.core as mx

from kafila_sidecar.runtime.handed_over import HandedOver
from kafila_sidecar.runtime.shard.arrays import as_raw, dtype_name, parted_rows
from kafila_sidecar.runtime.shard.finite import NotFinite, TokenLayout, flaw, made_well, or_not_finite
from kafila_sidecar.runtime.shard.state import HiddenState


class BegunRun:
    """made: [B, T, W], lazy. positions: of each row, before it. layout: of what leaves."""

    def __init__(self, made: mx.array, positions: Sequence[int], *, layout: TokenLayout) -> None:
        self._raw, self._dtype = as_raw(made), dtype_name(made)
        self._positions, self._layout = positions, layout

    def hand_over(self) -> HandedOver[list[HiddenState | NotFinite]]:
        """Gives it to the device."""
        mx.async_eval(self._raw)  # type: ignore[no-untyped-call]
        return HandedOver(self.told)

    def told(self) -> list[HiddenState | NotFinite]:
        """The rows, evaluated; in a row's place why there is none. On any thread once it was handed over."""
        mx.eval(self._raw)
        rows = parted_rows(self._raw, self._dtype, self._positions)
        if not flaw(memoryview(self._raw).cast("B"), self._dtype, self._layout):  # type: ignore[arg-type]
            return list(rows)
        return [or_not_finite(partial(made_well, row, self._layout)) for row in rows]
