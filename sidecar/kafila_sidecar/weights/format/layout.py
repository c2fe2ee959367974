"""From blocks to tensors, sizes and byte ranges: which part of a checkpoint belongs to a stage. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kafila_sidecar.errors import Refused
from kafila_sidecar.weights.format.manifest import Manifest, Tensor
from kafila_sidecar.weights.format.ranges import Ranges

BLOCK = re.compile(r"model\.layers\.(\d+)\.")
EMBED = "model.embed_tokens."
NORM = "model.norm."
UNEMBED = "lm_head."
FLOAT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
PACKED = {"U32", "U8"}
"""Dtypes of quantised matrices and, in some modes, of their scales."""


def shard_tensors(manifest: Manifest, config: Mapping[str, Any], start: int, end: int, head: bool) -> frozenset[str]:
    """Names of the tensors that a stage with blocks `[start, end)` holds.

    The head also holds embedding, norm and, unless they are one matrix, unembedding. A quantised matrix comes with
    its scales and biases. Raises Refused, naming the block or matrix, if the checkpoint lacks it.
    """
    blocks = block_tensors(manifest, config)
    mine = [tensor for block in blocks[start:end] for tensor in block]
    if head:
        mine += head_tensors(manifest, config)
    return frozenset(tensor.name for tensor in mine)


def block_tensors(manifest: Manifest, config: Mapping[str, Any]) -> list[list[Tensor]]:
    """The tensors of each block; blocks past the configured count (extra prediction layers) are left out."""
    blocks: list[list[Tensor]] = [[] for _ in range(block_count(config))]
    for tensor in manifest.tensors.values():
        found = BLOCK.match(tensor.name)
        if found and int(found[1]) < len(blocks):
            blocks[int(found[1])].append(tensor)
    for number, block in enumerate(blocks):
        if not block:
            raise Refused(f"the checkpoint has no weights for block {number} of {len(blocks)}")
    return blocks


def head_tensors(manifest: Manifest, config: Mapping[str, Any]) -> list[Tensor]:
    prefixes = [EMBED, NORM] if is_tied(config) else [EMBED, NORM, UNEMBED]
    return [tensor for prefix in prefixes for tensor in under(manifest, prefix)]


def under(manifest: Manifest, prefix: str) -> list[Tensor]:
    tensors = [tensor for name, tensor in manifest.tensors.items() if name.startswith(prefix)]
    if not tensors:
        raise Refused(f"the checkpoint has no weights named {prefix}*, which its head needs")
    return tensors


def model_sizes(manifest: Manifest, config: Mapping[str, Any]) -> dict[str, Any]:
    """The planner's "model": sizes in bytes, `block_bytes` a list only where blocks differ.

    KV is counted at the dtype of the activations, for keys and values of all KV heads.
    """
    blocks = [total(block) for block in block_tensors(manifest, config)]
    embed_bytes = total(under(manifest, EMBED))
    tied = is_tied(config)
    return {
        "blocks": len(blocks),
        "block_bytes": blocks[0] if len(set(blocks)) == 1 else blocks,
        "embed_bytes": embed_bytes,
        "unembed_bytes": embed_bytes if tied else total(under(manifest, UNEMBED)),
        "norm_bytes": total(under(manifest, NORM)),
        "tied": tied,
        "kv_bytes_per_token_per_block": 2 * kv_width(config) * FLOAT_BYTES[activation_dtype(manifest)],
    }


def total(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.size_bytes for tensor in tensors)


def block_count(config: Mapping[str, Any]) -> int:
    return positive(config, "num_hidden_layers")


def kv_width(config: Mapping[str, Any]) -> int:
    """Numbers in one token's keys (or values) in one block: KV heads times head dimension."""
    n_q_heads = positive(config, "num_attention_heads")
    n_kv_heads = positive(config, "num_key_value_heads", n_q_heads)
    return n_kv_heads * positive(config, "head_dim", positive(config, "hidden_size") // n_q_heads)


def is_tied(config: Mapping[str, Any]) -> bool:
    """Whether embedding and unembedding are one matrix; mlx-lm's default where a configuration doesn't say."""
    return bool(config.get("tie_word_embeddings", True))


def positive(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A count from config.json. Raises Refused, naming it, unless it is a sensible positive whole number."""
    number = config.get(key)
    if number is None and default is not None:
        return default
    if type(number) is not int or not 0 < number < 1 << 31:
        raise Refused(f"the model's config.json says {key} = {number!r}, where a positive whole number is needed")
    return number


def activation_dtype(manifest: Manifest) -> str:
    """ "F32", "F16" or "BF16": what the embedding yields, or its scales where it is quantised."""
    floats = [tensor.dtype for tensor in under(manifest, EMBED) if tensor.dtype in FLOAT_BYTES]
    if not floats:
        dtype = under(manifest, EMBED)[0].dtype
        raise Refused(f"the checkpoint's weights are {dtype}: choose one in bf16, f16 or f32, or in MLX's 4 or 8 bits")
    return floats[0]


def quantization(manifest: Manifest, config: Mapping[str, Any]) -> str:
    """For people: "4-bit", or the dtype most of the weights are in.

    Raises Refused where tensors of a stage are in a dtype that can't be run.
    """
    packed = config.get("quantization") is not None
    runnable = FLOAT_BYTES.keys() | (PACKED if packed else set())
    bytes_by_dtype: Counter[str] = Counter()
    for name in shard_tensors(manifest, config, 0, block_count(config), head=True):
        tensor = manifest.tensors[name]
        if tensor.dtype not in runnable:
            raise Refused(
                f"the checkpoint's {name} is {tensor.dtype}: choose a checkpoint in bf16, f16 or f32, "
                "or in MLX's 4 or 8 bits"
            )
        bytes_by_dtype[tensor.dtype] += tensor.size_bytes
    return f"{config['quantization']['bits']}-bit" if packed else bytes_by_dtype.most_common(1)[0][0]


def parameter_count(manifest: Manifest, config: Mapping[str, Any]) -> int:
    """Parameters of blocks and head; a packed matrix counts what it stands for, scales and biases not at all."""
    names = shard_tensors(manifest, config, 0, block_count(config), head=True)
    return sum(parameters(manifest, manifest.tensors[name], config) for name in names)


def parameters(manifest: Manifest, tensor: Tensor, config: Mapping[str, Any]) -> int:
    stem, _, leaf = tensor.name.rpartition(".")
    if f"{stem}.scales" not in manifest.tensors:
        return tensor.size_bytes // FLOAT_BYTES[tensor.dtype]
    setting = config["quantization"].get(stem) or config["quantization"]
    return tensor.size_bytes * 8 // setting["bits"] if leaf == "weight" else 0


def byte_ranges(manifest: Manifest, names: Iterable[str]) -> dict[str, Ranges]:
    """The bytes of the named tensors by file; neighbours become one range, and no other byte is in it."""
    by_file: dict[str, Ranges] = {}
    for tensor in (manifest.tensors[name] for name in names):
        by_file.setdefault(tensor.file, Ranges()).add(tensor.start, tensor.end)
    return dict(sorted(by_file.items()))
