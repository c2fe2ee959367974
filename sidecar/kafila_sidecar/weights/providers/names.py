"""Short names for models that people ask for, as Ollama's users write them: `qwen3:32b`. Pure.

The table is small on purpose: whatever else the Hub has is called by its repository id.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

GB = 1_000_000_000
PLANNED_CONTEXT_TOKENS = 8192
"""For one conversation, in what a machine is said to need."""
BESIDE_BYTES = int(1.2 * GB)
"""Roughly what a machine needs beside its part of weights and caches: the program, and room to compute."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """`weight_bytes` as the repository has them; the rest is what its caches follow from."""

    name: str
    repo: str
    weight_bytes: int
    blocks: int
    n_kv_heads: int
    head_dim: int
    note: str = ""

    def needed_bytes(self, machines: int) -> int:
        """On each of several equal machines, for one conversation of `PLANNED_CONTEXT_TOKENS`; a size, no promise."""
        kv_bytes = 2 * 2 * self.blocks * self.n_kv_heads * self.head_dim * PLANNED_CONTEXT_TOKENS
        return (self.weight_bytes + kv_bytes) // machines + BESIDE_BYTES


GATED = "its terms have to be accepted at the Hub"
TABLE: tuple[NamedModel, ...] = (
    NamedModel("smollm2:135m", "HuggingFaceTB/SmolLM2-135M-Instruct", int(0.27 * GB), 30, 3, 64),
    NamedModel("smollm2:360m", "HuggingFaceTB/SmolLM2-360M-Instruct", int(0.72 * GB), 32, 5, 64),
    NamedModel("smollm2:1.7b", "HuggingFaceTB/SmolLM2-1.7B-Instruct", int(3.4 * GB), 24, 32, 64),
    NamedModel("qwen2.5:0.5b", "Qwen/Qwen2.5-0.5B-Instruct", int(1.0 * GB), 24, 2, 64),
    NamedModel("qwen2.5:1.5b", "Qwen/Qwen2.5-1.5B-Instruct", int(3.1 * GB), 28, 2, 128),
    NamedModel("qwen2.5:3b", "Qwen/Qwen2.5-3B-Instruct", int(6.2 * GB), 36, 2, 128),
    NamedModel("qwen2.5:7b", "Qwen/Qwen2.5-7B-Instruct", int(15.2 * GB), 28, 4, 128),
    NamedModel("qwen2.5:14b", "Qwen/Qwen2.5-14B-Instruct", int(29.5 * GB), 48, 8, 128),
    NamedModel("qwen2.5:32b", "Qwen/Qwen2.5-32B-Instruct", int(65.5 * GB), 64, 8, 128),
    NamedModel("qwen2.5:72b", "Qwen/Qwen2.5-72B-Instruct", int(145.4 * GB), 80, 8, 128),
    NamedModel("qwen3:0.6b", "Qwen/Qwen3-0.6B", int(1.5 * GB), 28, 8, 128),
    NamedModel("qwen3:1.7b", "Qwen/Qwen3-1.7B", int(4.1 * GB), 28, 8, 128),
    NamedModel("qwen3:4b", "Qwen/Qwen3-4B", int(8.0 * GB), 36, 8, 128),
    NamedModel("qwen3:8b", "Qwen/Qwen3-8B", int(16.4 * GB), 36, 8, 128),
    NamedModel("qwen3:8b-4bit", "mlx-community/Qwen3-8B-4bit", int(4.6 * GB), 36, 8, 128),
    NamedModel("qwen3:14b", "Qwen/Qwen3-14B", int(29.5 * GB), 40, 8, 128),
    NamedModel("qwen3:14b-4bit", "mlx-community/Qwen3-14B-4bit", int(8.3 * GB), 40, 8, 128),
    NamedModel("qwen3:32b", "Qwen/Qwen3-32B", int(65.5 * GB), 64, 8, 128),
    NamedModel("qwen3:32b-4bit", "mlx-community/Qwen3-32B-4bit", int(18.4 * GB), 64, 8, 128),
    NamedModel("qwen3:30b-a3b", "Qwen/Qwen3-30B-A3B", int(61.1 * GB), 48, 4, 128),
    NamedModel("qwen3:30b-a3b-4bit", "mlx-community/Qwen3-30B-A3B-4bit", int(17.2 * GB), 48, 4, 128),
    NamedModel("qwen3:235b-a22b", "Qwen/Qwen3-235B-A22B", int(470.2 * GB), 94, 4, 128),
    NamedModel("llama3.2:1b", "meta-llama/Llama-3.2-1B-Instruct", int(2.5 * GB), 16, 8, 64, GATED),
    NamedModel("llama3.2:3b", "meta-llama/Llama-3.2-3B-Instruct", int(6.4 * GB), 28, 8, 128, GATED),
    NamedModel("llama3.1:8b", "meta-llama/Llama-3.1-8B-Instruct", int(16.1 * GB), 32, 8, 128, GATED),
    NamedModel("llama3.1:70b", "meta-llama/Llama-3.1-70B-Instruct", int(141.1 * GB), 80, 8, 128, GATED),
    NamedModel("llama3.3:70b", "meta-llama/Llama-3.3-70B-Instruct", int(141.1 * GB), 80, 8, 128, GATED),
    NamedModel("llama3.3:70b-4bit", "mlx-community/Llama-3.3-70B-Instruct-4bit", int(39.7 * GB), 80, 8, 128),
    NamedModel("gpt-oss:20b", "openai/gpt-oss-20b", int(13.8 * GB), 24, 8, 64),
    NamedModel("gpt-oss:120b", "openai/gpt-oss-120b", int(65.3 * GB), 36, 8, 64),
    NamedModel("gemma3:1b", "google/gemma-3-1b-it", int(2.0 * GB), 26, 1, 256, GATED),
    NamedModel("mistral:7b", "mistralai/Mistral-7B-Instruct-v0.3", int(14.5 * GB), 32, 8, 128),
    NamedModel("mixtral:8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1", int(93.4 * GB), 32, 8, 128),
    NamedModel("phi4:14b", "microsoft/phi-4", int(29.3 * GB), 40, 10, 128),
)
DEFAULTS = {
    **{"smollm2": "1.7b", "qwen2.5": "7b", "qwen3": "8b", "llama3.2": "3b", "llama3.1": "8b", "llama3.3": "70b"},
    **{"gpt-oss": "20b", "gemma3": "1b", "mistral": "7b", "mixtral": "8x7b", "phi4": "14b"},
}
"""What a name without a size means, as in Ollama's library; `:latest` means the same."""

_BY_NAME = {model.name: model for model in TABLE}


def known_as(name: str) -> NamedModel | None:
    """The model of a short name, in any case of letters; None for anything else."""
    family, _, size = name.strip().lower().partition(":")
    if size in ("", "latest"):
        size = DEFAULTS.get(family, "")
    return _BY_NAME.get(f"{family}:{size}")


def also_known_as(model: NamedModel) -> tuple[str, ...]:
    """The names without a size that mean it."""
    family, _, size = model.name.partition(":")
    return (family, f"{family}:latest") if DEFAULTS.get(family) == size else ()


def is_short(name: str) -> bool:
    """Whether it can only be a short name: a repository id has no colon."""
    return ":" in name and "/" not in name


def alike(name: str, most: int = 3) -> Iterator[str]:
    """Short names that may have been meant."""
    family = name.strip().lower().partition(":")[0]
    same = [model.name for model in TABLE if model.name.startswith(f"{family}:")]
    yield from (same or get_close_matches(name.lower(), _BY_NAME, n=most, cutoff=0.5))[:most]
