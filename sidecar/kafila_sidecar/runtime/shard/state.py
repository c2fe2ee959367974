"""A hidden state as it leaves a stage: raw bytes with what the next stage needs to read them. No MLX here."""

from dataclasses import dataclass
from math import prod

from kafila_sidecar.errors import InvalidInput

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class HiddenState:
    """Hidden states of T consecutive tokens of B sequences.

    payload: the elements, little-endian, row by row; bfloat16 and float16 are their raw 16 bits.
    dtype: one of `ITEM_BYTES`. shape: [B, T, D]. position: tokens of the sequence before the first one here.

    Raises: InvalidInput when the parts don't fit each other, as they come from another machine.
    """

    payload: bytes | memoryview
    dtype: str
    shape: tuple[int, int, int]
    position: int

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise InvalidInput(f"a hidden state has the unknown element type {self.dtype!r}")
        if len(self.shape) != 3 or min(self.shape) < 1 or self.position < 0:
            raise InvalidInput(f"a hidden state has the impossible shape {self.shape} at position {self.position}")
        if self.nbytes != len(self.payload):
            raise InvalidInput(f"a hidden state of shape {self.shape} has {len(self.payload)} bytes, not {self.nbytes}")

    @property
    def tokens(self) -> int:
        """T: how many tokens of each sequence this state holds."""
        return self.shape[1]

    @property
    def last_token(self) -> "HiddenState":
        """The state of the last token alone, of one sequence; the payload is not copied."""
        batch, tokens, width = self.shape
        if tokens == 1:
            return self
        payload = memoryview(self.payload)[(tokens - 1) * width * ITEM_BYTES[self.dtype] :]
        return HiddenState(payload, self.dtype, (batch, 1, width), self.position + tokens - 1)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]
