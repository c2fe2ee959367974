"""From blocks to tensors, sizes and byte ranges: which part of a checkpoint belongs to a stage. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kafila_sidecar.errors import Refused
from kafila_sidecar.models.anatomy import Anatomy, BlockAnatomy
from kafila_sidecar.models.family import Family, block_of, count_of, is_embedding, is_unembedding, text_of
from kafila_sidecar.models.reading import family_of
from kafila_sidecar.weights.format.manifest import Manifest, Tensor
from kafila_sidecar.weights.format.ranges import Ranges

FLOAT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
PACKED = {"U32", "U8"}
"""Dtypes of quantised matrices and, in some modes, of their scales."""


def shard_tensors(manifest: Manifest, config: Mapping[str, Any], start: int, end: int, head: bool) -> frozenset[str]:
    """Names of the tensors that a stage with blocks `[start, end)` holds, as its family says.

    Raises Refused, naming the block or matrix, if the checkpoint lacks it.
    """
    family, tied = family_of(config), is_tied(manifest, config)
    names = frozenset(
        name for name in manifest.tensors if family.holds(name, start=start, end=end, head=head, tied=tied)
    )
    refuse_incomplete(names, family, range(start, end), head=head, tied=tied, blocks=count_of(config))
    return names


def refuse_incomplete(
    names: Iterable[str], family: Family, wanted: range, *, head: bool, tied: bool, blocks: int
) -> None:
    """Raises Refused for a block or matrix of which there is nothing at all."""
    found = {block_of(name) for name in names}
    for number in wanted:
        if number not in found:
            raise Refused(f"the checkpoint has no weights for block {number} of {blocks}")
    if not head:
        return
    if not any(is_embedding(name) for name in names):
        raise Refused("the checkpoint has no weights named model.embed_tokens.*, which its head needs")
    if not tied and not any(is_unembedding(name) for name in names):
        raise Refused("the checkpoint has no weights named lm_head.*, which its head needs")
    if family.norm and not any(is_norm(name) for name in names):
        raise Refused("the checkpoint has no weights named model.norm.*, which its head needs")


def is_norm(name: str) -> bool:
    """Whether a tensor of the head is neither of its matrices."""
    return block_of(name) is None and not is_embedding(name) and not is_unembedding(name)


def whole(manifest: Manifest, config: Mapping[str, Any]) -> list[Tensor]:
    """All tensors that the text model reads."""
    return [manifest.tensors[name] for name in shard_tensors(manifest, config, 0, count_of(config), head=True)]


def anatomy_of_files(manifest: Manifest, config: Mapping[str, Any]) -> Anatomy:
    """What a checkpoint is made of as it lies in its files: right for plain transformers whose weights are loaded as
    they are stored."""
    sizes = model_sizes(manifest, config)
    blocks, held, per_token = sizes["blocks"], sizes["block_bytes"], sizes["kv_bytes_per_token_per_block"]
    return Anatomy(
        blocks=tuple(
            BlockAnatomy(size, size, per_token) for size in (held if isinstance(held, list) else [held] * blocks)
        ),
        embed_bytes=sizes["embed_bytes"],
        unembed_bytes=sizes["unembed_bytes"],
        norm_bytes=sizes["norm_bytes"],
        tied=sizes["tied"],
        activation_dtype=activation_dtype(manifest),
        quantization=quantization(manifest, config),
        parameters=parameter_count(manifest, config),
    )


def model_sizes(manifest: Manifest, config: Mapping[str, Any]) -> dict[str, Any]:
    """The planner's "model": sizes in bytes, `block_bytes` a list only where blocks differ.

    KV is counted at the dtype of the activations, for keys and values of all KV heads.
    """
    tied, held = is_tied(manifest, config), whole(manifest, config)
    blocks = [0] * count_of(config)
    for tensor in held:
        block = block_of(tensor.name)
        if block is not None:
            blocks[block] += tensor.size_bytes
    embed_bytes = total(tensor for tensor in held if is_embedding(tensor.name))
    return {
        "blocks": len(blocks),
        "block_bytes": blocks[0] if len(set(blocks)) == 1 else blocks,
        "embed_bytes": embed_bytes,
        "unembed_bytes": embed_bytes if tied else total(tensor for tensor in held if is_unembedding(tensor.name)),
        "norm_bytes": total(tensor for tensor in held if is_norm(tensor.name)),
        "tied": tied,
        "kv_bytes_per_token_per_block": 2 * kv_width(config) * FLOAT_BYTES[activation_dtype(manifest)],
    }


def total(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.size_bytes for tensor in tensors)


def kv_width(config: Mapping[str, Any]) -> int:
    """Numbers in one token's keys (or values) in one block: KV heads times head dimension."""
    config = text_of(config)
    n_q_heads = positive(config, "num_attention_heads")
    n_kv_heads = positive(config, "num_key_value_heads", n_q_heads)
    return n_kv_heads * positive(config, "head_dim", positive(config, "hidden_size") // n_q_heads)


def is_tied(manifest: Manifest, config: Mapping[str, Any]) -> bool:
    """Whether embedding and unembedding are one matrix, as the family says of this checkpoint."""
    return family_of(config).tied(config, manifest.tensors)


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
    dtypes = [tensor.dtype for name, tensor in manifest.tensors.items() if is_embedding(name)]
    floats = [dtype for dtype in dtypes if dtype in FLOAT_BYTES]
    if not dtypes:
        raise Refused("the checkpoint has no weights named model.embed_tokens.*, which its head needs")
    if not floats:
        raise Refused(
            f"the checkpoint's weights are {dtypes[0]}: choose one in bf16, f16 or f32, or in MLX's 4 or 8 bits"
        )
    return floats[0]


def quantization(manifest: Manifest, config: Mapping[str, Any]) -> str:
    """For people: "4-bit", or the dtype most of the weights are in.

    Raises Refused where tensors of a stage are in a dtype that can't be run.
    """
    packed = config.get("quantization") is not None
    runnable = FLOAT_BYTES.keys() | (PACKED if packed else set())
    bytes_by_dtype: Counter[str] = Counter()
    for tensor in whole(manifest, config):
        if tensor.dtype not in runnable:
            raise Refused(
                f"the checkpoint's {tensor.name} is {tensor.dtype}: choose a checkpoint in bf16, f16 or f32, "
                "or in MLX's 4 or 8 bits"
            )
        bytes_by_dtype[tensor.dtype] += tensor.size_bytes
    return f"{config['quantization']['bits']}-bit" if packed else bytes_by_dtype.most_common(1)[0][0]


def parameter_count(manifest: Manifest, config: Mapping[str, Any]) -> int:
    """Parameters of blocks and head; a packed matrix counts what it stands for, scales and biases not at all."""
    return sum(parameters(manifest, tensor, config) for tensor in whole(manifest, config))


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
