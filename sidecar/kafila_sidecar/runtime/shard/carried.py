"""What goes from one stage's blocks to the next one's: the hidden state, and what some architectures need beside it.

On the wire it is one array [B, T, W]: the state's streams and the values beside it, next to one another in the last
axis. MLX thread only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import mlx.core as mx

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.shard.finite import TokenLayout


@dataclass(frozen=True, slots=True)
class Carried:
    """hidden: [B, T, D], or [S, B, T, D] where an architecture runs S streams. beside: by parameter, [B, T, …]."""

    hidden: mx.array
    beside: dict[str, Any] = field(default_factory=dict)

    @property
    def single(self) -> mx.array:
        """[B, T, D]: the state, or its first stream."""
        return self.hidden if self.hidden.ndim == 3 else self.hidden[0]

    def last_token(self) -> "Carried":
        """The same of the last token alone."""
        return Carried(self.hidden[..., -1:, :], {name: value[:, -1:] for name, value in self.beside.items()})


def stacked(rows: Sequence[Carried]) -> Carried:
    """Several of one shape and B = 1 as one with B rows."""
    names = rows[0].beside
    return Carried(
        mx.concatenate([row.hidden for row in rows], axis=-3),
        {name: mx.concatenate([row.beside[name] for row in rows]) for name in names},
    )


@dataclass(frozen=True, slots=True)
class Packing:
    """How a `Carried` lies in one array where two stages meet: D, how many streams (0: no axis for them), and the
    shape behind [B, T] of each value beside."""

    width: int
    streams: int = 0
    beside: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def layout(self) -> TokenLayout:
        """Of one token on the wire, W elements."""
        state = self.width * (self.streams or 1)
        return TokenLayout(state + sum(prod(shape) for shape in self.beside.values()), state)

    def joined(self, carried: Carried) -> mx.array:
        """One array [B, T, W].

        Raises: InvalidInput where parts have different element types, which would change their bits.
        """
        hidden = carried.hidden
        if self.streams:
            hidden = mx.moveaxis(hidden, 0, 2)
        parts = [hidden, *(carried.beside[name] for name in self.beside)]
        if len({part.dtype for part in parts}) > 1:
            raise InvalidInput("what travels beside the hidden state has another element type than the state")
        if not self.streams and len(parts) == 1:
            return hidden
        return mx.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=-1)

    def parted(self, array: mx.array) -> Carried:
        """What `joined` was given.

        Raises: InvalidInput for an array of another width.
        """
        layout = self.layout
        if array.shape[2] != layout.width:
            raise InvalidInput(f"a hidden state is {array.shape[2]} wide, this model's are {layout.width}")
        at = layout.state
        hidden, beside = array[..., :at] if self.beside else array, {}
        for name, shape in self.beside.items():
            beside[name] = array[..., at : at + prod(shape)].reshape(*array.shape[:2], *shape)
            at += prod(shape)
        if self.streams:
            hidden = mx.moveaxis(hidden.reshape(*array.shape[:2], self.streams, self.width), 2, 0)
        return Carried(hidden, beside)
