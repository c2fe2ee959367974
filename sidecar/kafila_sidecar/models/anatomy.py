"""What a checkpoint is made of, in bytes as they will lie in memory: what the planner and admission need to know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class Header(Protocol):
    """A tensor as its file's header describes it; dtype: safetensors' name for it, as "BF16"."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


Headers = Mapping[str, Header]


@dataclass(frozen=True, slots=True)
class BlockAnatomy:
    """One block. read_bytes: of its weights, by one token: of experts only those that are chosen.

    Of its cache, for one sequence: bytes per token, up to window_tokens (None: without end), and bytes in any case.
    """

    held_bytes: int
    read_bytes: int
    kv_bytes_per_token: int
    kv_fixed_bytes: int = 0
    kv_window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Anatomy:
    """A text model. norm_bytes: of all outside the blocks that is neither embedding nor unembedding.

    no_cut_after: blocks i between which and i + 1 no cut may be. activation_dtype: of hidden states, "F32", "F16" or
    "BF16". quantization: for people, "4-bit" or "BF16". most_tokens: how long a sequence may get, None for any length.
    notices: what people should be told.
    """

    blocks: tuple[BlockAnatomy, ...]
    embed_bytes: int
    unembed_bytes: int
    norm_bytes: int
    tied: bool
    activation_dtype: str
    quantization: str
    parameters: int
    no_cut_after: tuple[int, ...] = ()
    most_tokens: int | None = None
    notices: tuple[str, ...] = field(default=())

    @property
    def sizes(self) -> dict[str, Any]:
        """The planner's "model"."""
        sizes: dict[str, Any] = {
            "blocks": len(self.blocks),
            "block_bytes": _short([block.held_bytes for block in self.blocks]),
            "embed_bytes": self.embed_bytes,
            "unembed_bytes": self.unembed_bytes,
            "norm_bytes": self.norm_bytes,
            "tied": self.tied,
            "kv_bytes_per_token_per_block": _short([block.kv_bytes_per_token for block in self.blocks]),
        }
        if any(block.read_bytes != block.held_bytes for block in self.blocks):
            sizes["block_read_bytes"] = _short([block.read_bytes for block in self.blocks])
        if any(block.kv_fixed_bytes for block in self.blocks):
            sizes["kv_fixed_bytes"] = _short([block.kv_fixed_bytes for block in self.blocks])
        if any(block.kv_window_tokens for block in self.blocks):
            sizes["kv_window_tokens"] = _short([block.kv_window_tokens for block in self.blocks])
        if self.no_cut_after:
            sizes["no_cut_after"] = list(self.no_cut_after)
        return sizes


def _short(values: Sequence[int | None]) -> Any:
    """A list only where blocks differ."""
    return values[0] if len(set(values)) == 1 else list(values)
