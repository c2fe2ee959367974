"""Tiny random checkpoints of any architecture that mlx-lm knows, with a byte-level tokenizer and a chat template.

    python -m tests.support.tiny OUTDIR [--type qwen3] [--dtype bf16] [--bits 4] [--set tie_word_embeddings=false …]

Nobody can read what they answer; they are for comparing one way of running a model with another.
"""

import argparse
import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.support.checkpoint import DTYPE_NAMES, Stored, made_once, write_json, write_weights

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB = 256 + len(SPECIAL_TOKENS)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
    "vocab_size": VOCAB,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""What most architectures ask for; others get what they need as `config`."""
GROUP_SIZE = 32
MLX_DTYPES = {"f32": mx.float32, "bf16": mx.bfloat16}
FILE_DTYPES = {mx.float32: "F32", mx.bfloat16: "BF16", mx.float16: "F16", mx.uint32: "U32", mx.uint8: "U8"}


def tiny_folder(
    folder: Path,
    *,
    model_type: str = "llama",
    dtype: str = "f32",
    bits: int | None = None,
    files: int = 3,
    seed: int = 7,
    config: Mapping[str, Any] | None = None,
    shape: Mapping[str, Any] = SHAPE,
) -> Path:
    """`folder` with a random model; made on the first call, with MLX on the calling thread.

    `config` goes over `shape`, so any of the architecture's ModelArgs can be set; `bits` quantises as mlx-lm's convert.
    """
    whole = {"model_type": model_type, "torch_dtype": DTYPE_NAMES[dtype], **shape, **(config or {})}

    def make(half: Path) -> None:
        model, final = random_model(whole, dtype, bits, seed)
        write_json(half / "config.json", final)
        write_json(half / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "temperature": 0.7})
        write_tokenizer(half)
        write_weights(half, weights(model), files)

    return made_once(folder, make)


def random_model(config: dict[str, Any], dtype: str, bits: int | None, seed: int) -> tuple[Any, dict[str, Any]]:
    """The model and the configuration to write, which says how it was quantised."""
    arch = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    mx.random.seed(seed)
    model = arch.Model(arch.ModelArgs.from_dict(config))
    model.load_weights([(name, telling(name, array)) for name, array in arrays(model)])
    model.set_dtype(MLX_DTYPES[dtype])
    if bits is not None:
        from mlx_lm.utils import quantize_model

        model, config = quantize_model(model, config, GROUP_SIZE, bits)
    mx.eval(model.parameters())
    return model, config


def arrays(model: Any) -> list[tuple[str, mx.array]]:
    flat: Any = tree_flatten(model.parameters())
    return list(flat)


def telling(name: str, array: mx.array) -> mx.array:
    """Values under which a mistake shows: as built, norms and biases are all alike, and a model whose embedding
    outweighs its blocks only repeats the last token."""
    if not mx.issubdtype(array.dtype, mx.floating):
        return array
    if array.ndim == 1:
        return array + 0.1 * mx.random.normal(array.shape, dtype=array.dtype)
    return 0.2 * array if "embed" in name else array


def weights(model: Any) -> Iterator[tuple[str, Stored]]:
    for name, array in arrays(model):
        raw = array.view(mx.uint16) if array.dtype == mx.bfloat16 else array
        yield name, Stored(FILE_DTYPES[array.dtype], tuple(array.shape), np.ascontiguousarray(np.array(raw)).tobytes())


def write_tokenizer(folder: Path) -> None:
    """One token a byte, after the three special ones."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(SPECIAL_TOKENS + letters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.save(str(folder / "tokenizer.json"))
    end, start, stop = SPECIAL_TOKENS
    names = {"bos_token": start, "eos_token": stop, "unk_token": end, "pad_token": end}
    more = {"clean_up_tokenization_spaces": False, "tokenizer_class": "PreTrainedTokenizerFast"}
    write_json(folder / "tokenizer_config.json", names | more)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a tiny random checkpoint.")
    parser.add_argument("outdir", type=Path, metavar="OUTDIR")
    parser.add_argument("--type", default="llama", help="the name of one of mlx-lm's model files")
    parser.add_argument("--dtype", choices=sorted(DTYPE_NAMES), default="f32")
    parser.add_argument("--bits", type=int)
    parser.add_argument("--files", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="of config.json")
    options = parser.parse_args()
    config = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in options.set)}
    kind = {"model_type": options.type, "dtype": options.dtype, "bits": options.bits, "files": options.files}
    tiny_folder(options.outdir.absolute(), config=config, **kind)


if __name__ == "__main__":
    main()
