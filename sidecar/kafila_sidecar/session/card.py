"""What `show` tells of a session's model beyond its name and size."""

from collections.abc import Mapping
from typing import Any

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.models.family import count_of, text_of
from kafila_sidecar.runtime.text.templates import DEFAULT, find_templates
from kafila_sidecar.small_files import read_text
from kafila_sidecar.weights.checkpoint import Checkpoint

_FIGURES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "num_experts_per_tok": "expert_used_count",
    "vocab_size": "vocab_size",
}
"""Keys of config.json, and what model files call them."""

_LICENSES = ("LICENSE", "LICENSE.txt", "LICENSE.md")
"""In folders; from a model host none of them is fetched."""


def card_of(checkpoint: Checkpoint) -> pb.ModelCard:
    """Blocks. Raises KafilaError for files that can't be read."""
    folder = checkpoint.small_files
    texts = (read_text(checkpoint.name, folder / name) for name in _LICENSES if (folder / name).is_file())
    return pb.ModelCard(
        template=find_templates(checkpoint.name, folder).get(DEFAULT, ""),
        license=next(texts, ""),
        info=_figures(checkpoint.config),
    )


def _figures(config: Mapping[str, Any]) -> dict[str, int]:
    text = text_of(config)
    found = {name: text[key] for key, name in _FIGURES.items() if type(text.get(key)) is int and text[key] > 0}
    return {"block_count": count_of(config), **found}
