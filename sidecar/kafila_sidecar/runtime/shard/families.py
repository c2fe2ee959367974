"""The architectures on offer, and the little that the runtime must know about each. An allow-list, without MLX.

The shard runs mlx-lm's own model code for any architecture, but a wrong rule gives wrong text and no error. So only
what tests/exact has shown to be exact is in `FAMILIES`; everything else is refused before a weight is fetched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafila_sidecar.errors import Refused
from kafila_sidecar.runtime.shard.state import ITEM_BYTES


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture. Paths and prefixes are those of the checkpoint's tensor names, and of mlx-lm's modules."""

    model_type: str
    module: str  # mlx_lm.models.<module>
    blocks: str = "model.layers"
    embedding: str = "model.embed_tokens"
    norm: str = "model.norm"
    unembedding: str = "lm_head"
    tied_by_default: bool = False  # what mlx-lm takes when config.json says nothing of tie_word_embeddings
    token_ids_travel: bool = False  # blocks read token ids, so every stage must be told them
    trimmable: bool = True  # caches can drop their last tokens, so a guess can be taken back
    ignored: tuple[str, ...] = ()  # parts of tensor names that the architecture's sanitize() drops

    def width(self, config: Mapping[str, Any]) -> int:
        """D, the size of a token's hidden state."""
        return int(config["hidden_size"])

    def tied(self, config: Mapping[str, Any]) -> bool:
        """Whether the unembedding is the embedding."""
        return bool(config.get("tie_word_embeddings", self.tied_by_default))

    def block_of(self, tensor: str) -> int | None:
        """The block that a tensor of the checkpoint belongs to; None outside the blocks."""
        if not tensor.startswith(self.blocks + "."):
            return None
        index = tensor[len(self.blocks) + 1 :].split(".", 1)[0]
        return int(index) if index.isdecimal() else None

    def holds(self, tensor: str, *, start: int, end: int, head: bool, tied: bool) -> bool:
        """Whether a stage with the blocks [start, end) needs this tensor of the checkpoint."""
        if any(part in tensor for part in self.ignored):
            return False
        block = self.block_of(tensor)
        if block is not None:
            return start <= block < end
        parts = (self.embedding, self.norm) if tied else (self.embedding, self.norm, self.unembedding)
        return head and tensor.startswith(tuple(f"{part}." for part in parts))


FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        Family("llama", "llama", tied_by_default=True, ignored=("rotary_emb.inv_freq",)),
        Family("qwen3", "qwen3"),
    )
}

# Keys by which a checkpoint asks for code of its own to be run.
_FOREIGN_CODE = ("auto_map", "model_file", "custom_pipelines")

_QUANTISED_BITS = (4, 8)


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a checkpoint's config.json, with everything in it checked that would change what is computed.

    Raises: Refused, for an architecture or quantisation that no test has shown exact, or code of the checkpoint's own.
    """
    model_type = config.get("model_type")
    refuse_foreign_code(config, "config.json")
    family = FAMILIES.get(str(model_type))
    if family is None:
        offered = ", ".join(sorted(FAMILIES))
        raise Refused(f"models of type {model_type!r} are not offered: choose one of the architectures {offered}")
    quantisation_of(config)
    return family


def dtype_of(config: Mapping[str, Any]) -> str:
    """What config.json says of the element type of hidden states: "float32", "bfloat16" or "float16".

    Raises: Refused for any other.
    """
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    if dtype not in ITEM_BYTES:
        raise Refused(f"the checkpoint's weights are {dtype}: choose one in bfloat16, float16 or float32")
    return dtype


def refuse_foreign_code(config: Mapping[str, Any], where: str) -> None:
    """Raises Refused when the file asks for code of the checkpoint's own; none is ever run."""
    asked = [key for key in _FOREIGN_CODE if config.get(key)]
    if asked:
        raise Refused(f"{where} wants to run code of its own ({asked[0]}), which is never done: choose another model")


def quantisation_of(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """MLX's quantisation entry of config.json, None for a checkpoint in 16 or 32 bits.

    Raises: Refused, for other methods than MLX's own affine 4 and 8 bits.
    """
    quantisation = config.get("quantization")
    if quantisation is None:
        other = config.get("quantization_config")
        if other is not None:
            method = other.get("quant_method", "unknown") if isinstance(other, Mapping) else "unknown"
            raise Refused(f"the checkpoint is quantised by {method!r}: choose 16-bit weights, or MLX's 4 or 8 bits")
        return None
    entries = [quantisation, *(entry for entry in quantisation.values() if isinstance(entry, Mapping))]
    for entry in entries:
        mode, bits = entry.get("mode", "affine"), entry.get("bits")
        if mode != "affine" or bits not in _QUANTISED_BITS:
            raise Refused(f"the checkpoint is quantised to {bits} bits, mode {mode!r}: choose MLX's affine 4 or 8 bits")
    return dict(quantisation)
