"""What a stage takes beside weights and caches, for admission. Pure; without MLX."""

from collections.abc import Mapping
from typing import Any

from kafila_sidecar.models.family import text_of

MOST_ROWS_A_RUN = 8  # sequences in one run of a shard; speed is measured, and so planned, for no more
PREFILL_CHUNK_TOKENS = 512  # 8 MB a hop at D = 8192 in 16 bits; no stage takes more in one frame (RING.md)

HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim")  # under which a configuration has the width of a state

CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts")
EXPERTS_INNER = ("moe_intermediate_size", "expert_ffn_hidden_size")
"""Under which it says how many experts a token chooses, and of what width, where that is not the dense one."""

PACKED = frozenset({"quantization", "quantization_config"})  # under which a configuration says so

RESERVE_BYTES = 128 << 20  # MLX's buffers between steps, which it keeps for the next

SLICE_WEIGHTS = 1 << 20  # of a matrix that a processor turns into f32 for one product, where it has 16 bits and less
SLICES_AT_ONCE = 2
_SLICE_BYTES = 28  # of each: MLX unpacks 6 bits by way of so much; floats of 4 bits take 24, 4 and 8 bits 6

_HIDDEN_COPIES = 8  # of [T, D] alive at once in one block: residual, norm, q, k, v, attention's output, and its copies
_INNER_COPIES = 3  # of [T, intermediate]: gate, up, and their product
_EXPERT_COPIES = 3  # of both for each expert that a token chooses: what goes in and out, sorted and as it was
_SCORE_BYTES = 4  # attention scores are float32 where the back end has no fused attention


def prefill_peak_bytes(config: Mapping[str, Any], *, context_tokens: int, item_bytes: int) -> int:
    """The most that one chunk's temporaries take in a block, over what stays.

    Counted for a back end without fused attention (CPU), whose scores are [heads, T, context]; SmolLM2 in f32 was
    measured at 28 MiB for the first 512 tokens and 40 MiB for the next, against 27 and 36 MiB by this count. Experts of
    768 behind a state of 1024 were at 67 MiB for the first 512 tokens where each chose 4, and at 102 MiB where each
    chose 8, against 92 and 134 MiB.
    """
    text = text_of(config)
    tokens = min(PREFILL_CHUNK_TOKENS, context_tokens)
    hidden = _most(text, *HIDDEN)
    inner = _most(text, "intermediate_size", "ffn_hidden_size", "n_inner") or 4 * hidden
    heads = _most(text, "num_attention_heads", "n_head", "n_heads", "num_query_heads") or 1
    linear = tokens * (_HIDDEN_COPIES * hidden + _INNER_COPIES * inner) * item_bytes
    scores = heads * tokens * context_tokens * _SCORE_BYTES
    sliced = slices_bytes(hidden * inner) if item_bytes < 4 or not PACKED.isdisjoint(config) else 0
    widened = _widened(text, hidden, heads, context_tokens) if item_bytes < 4 else 0
    experts = tokens * _most(text, *CHOSEN) * (hidden + (_most(text, *EXPERTS_INNER) or inner))
    return linear + scores + max(sliced, widened) + _EXPERT_COPIES * experts * item_bytes


def slices_bytes(weights: int) -> int:
    """What a processor takes that computes 16 bits, or packed weights, through f32: slices of a matrix."""
    return min(weights, SLICES_AT_ONCE * SLICE_WEIGHTS) * _SLICE_BYTES


def _widened(text: Mapping[str, Any], hidden: int, heads: int, context_tokens: int) -> int:
    """The same for the attention to a block's keys and values."""
    elements = _most(text, "head_dim") or hidden // heads
    return 2 * context_tokens * (_most(text, "num_key_value_heads") or heads) * elements * 4


def state_bytes(config: Mapping[str, Any], *, item_bytes: int) -> int:
    """What a token's hidden state takes on its way to the next stage, at least."""
    return max(1, _most(text_of(config), *HIDDEN)) * item_bytes


def _most(config: Mapping[str, Any], *keys: str) -> int:
    """The largest number that stands under one of the keys, as one or as a list with one for each block; 0 for none."""
    values = [config[key] for key in keys if key in config]
    numbers = [number for value in values for number in (value if isinstance(value, list) else [value])]
    return max((number for number in numbers if isinstance(number, int)), default=0)
