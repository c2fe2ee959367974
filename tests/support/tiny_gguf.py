"""A tiny random llama as GGUF, for the stock runner: what a member's own local models are.

python -m tests.support.tiny_gguf FILE
"""

import sys
from pathlib import Path

import gguf
import numpy as np

WIDTH, HEADS, BLOCKS, INNER, CONTEXT = 64, 4, 2, 128, 512
SPECIAL = ["<unk>", "<s>", "</s>"]


def write_tiny_gguf(path: Path, seed: int = 7) -> Path:
    """Random f32 weights and a byte-level vocabulary; nobody can read what it answers."""
    random = np.random.default_rng(seed)
    tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL] + [gguf.TokenType.BYTE] * 256
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(BLOCKS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, shape in _shapes(len(tokens)).items():
        ones = name.endswith("norm.weight")
        writer.add_tensor(name, np.ones(shape, np.float32) if ones else _weights(random, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _weights(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return (random.standard_normal(shape) * 0.2).astype(np.float32)


def _shapes(vocabulary: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocabulary, WIDTH),
        "output_norm.weight": (WIDTH,),
        "output.weight": (vocabulary, WIDTH),
    }
    for block in range(BLOCKS):
        shapes |= {f"blk.{block}.{part}.weight": (WIDTH,) for part in ("attn_norm", "ffn_norm")}
        shapes |= {f"blk.{block}.attn_{part}.weight": (WIDTH, WIDTH) for part in ("q", "k", "v", "output")}
        shapes |= {f"blk.{block}.ffn_{part}.weight": (INNER, WIDTH) for part in ("gate", "up")}
        shapes[f"blk.{block}.ffn_down.weight"] = (WIDTH, INNER)
    return shapes


if __name__ == "__main__":
    write_tiny_gguf(Path(sys.argv[1]))
