"""The architectures that are tried, what is out of the ordinary about each, and why some are left out.

Rules stand here and nowhere else: `make models` proves them and writes them into the allow-list.
"""

from typing import Any

from kafila_sidecar.models.family import Beside, Spread

PER_LAYER = (Beside("per_layer_input", Spread.EACH),)
RULES: dict[str, dict[str, Any]] = {
    "gemma3n": {"beside": PER_LAYER},
    "gemma4": {"returns": 3, "beside": PER_LAYER},
    "gemma4_text": {"returns": 3, "beside": PER_LAYER},
    "hunyuan": {"returns": 2},
    "longcat_flash_ngram": {"embedding": "model.ngram_embeddings"},
    "rwkv7": {"returns": 2, "beside": (Beside("v_first", Spread.CHAINED),)},
    "talkie": {"state": "x", "beside": (Beside("e_x", Spread.SAME),)},
}
"""Keyword arguments of `Family` that differ from what is found by looking at the Model."""

REFUSED: dict[str, str] = {
    "afm7": "two lists of blocks, the second of which reads the caches of the first",
    "bitnet": "its matrices are multiplied by a Metal kernel, which can't be tried everywhere",
    "dbrx": "its code reads numbers back in the middle of a block, so that it can't be rehearsed from headers",
    "deepseek_v41": "several streams and values for later blocks travel beside the state",
    "iquestloopcoder": "its blocks are run more than once",
    "kimi_k3": "the states after earlier blocks travel beside the state",
    "muse_spark": "its attention is a Metal kernel, which can't be tried everywhere",
    "olmo": "its code needs another package",
    "phi3small": "mlx-lm's own logits are no numbers for it here",
    "prism_hadamard_qwen35": "weights in a packing of its own",
}
"""Model files of mlx-lm that aren't offered, and why."""

FIRST = (
    *("llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe", "gpt_oss", "gemma2", "gemma3"),
    *("gemma3_text", "gemma3n", "gemma4", "gemma4_text", "mistral3", "ministral3", "mixtral", "phi3", "glm4"),
    *("glm4_moe", "deepseek_v2", "deepseek_v3", "kimi_k25", "minimax", "lfm2", "smollm3", "olmo3", "granite"),
    *("cohere2", "ernie4_5", "hunyuan", "hunyuan_v1_dense", "seed_oss"),
)
"""What people run."""

TWELVE = (
    *("llama", "qwen3_next", "gpt_oss", "gemma3n", "gemma4", "ministral3", "deepseek_v3", "lfm2", "rwkv7", "talkie"),
    *("nemotron_h", "longcat_flash_ngram"),
)
"""One of each kind: for every run of the tests."""

NO_FAMILY = {
    *("activations", "base", "bitlinear_layers", "cache", "gated_delta", "mla", "pipeline", "rope_utils", "ssm"),
    "switch_layers",
}
"""Files among mlx-lm's models that hold no model."""
