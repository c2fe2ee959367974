"""What a stage takes beside weights and caches, for admission. Pure; without MLX."""

from collections.abc import Mapping
from typing import Any

PREFILL_CHUNK_TOKENS = 512  # 8 MB a hop at D = 8192 in 16 bits

RESERVE_BYTES = 128 << 20  # MLX's buffers between steps, which it keeps for the next

_HIDDEN_COPIES = 8  # of [T, D] alive at once in one block: residual, norm, q, k, v, attention's output, and its copies
_INNER_COPIES = 3  # of [T, intermediate]: gate, up, and their product
_SCORE_BYTES = 4  # attention scores are float32 where the back end has no fused attention


def prefill_peak_bytes(config: Mapping[str, Any], *, context_tokens: int, item_bytes: int) -> int:
    """The most that one chunk's temporaries take in a block, over what stays.

    Counted for a back end without fused attention (CPU), whose scores are [heads, T, context]; SmolLM2 in f32 was
    measured at 28 MiB for the first 512 tokens and 40 MiB for the next, against 27 and 36 MiB by this count.
    """
    tokens = min(PREFILL_CHUNK_TOKENS, context_tokens)
    hidden = int(config.get("hidden_size", 0))
    inner = int(config.get("intermediate_size", 4 * hidden))
    heads = int(config.get("num_attention_heads", 1))
    linear = tokens * (_HIDDEN_COPIES * hidden + _INNER_COPIES * inner) * item_bytes
    return linear + heads * tokens * context_tokens * _SCORE_BYTES
