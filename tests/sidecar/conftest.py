"""Small checkpoints with the tensor names of the real ones, made without MLX."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.checkpoint import Stored, stored, write_json, write_weights

Make = Callable[..., Path]


@pytest.fixture(scope="session")
def checkpoint_folder(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes a random checkpoint: `tied`, `bits` (quantised), `files`, further keys of config.json."""

    def make(*, tied: bool = True, bits: int | None = None, files: int = 3, width: int = 8, **config: Any) -> Path:
        folder = tmp_path_factory.mktemp("checkpoint") / "model"
        folder.mkdir()
        whole = {
            "model_type": "llama",
            "num_hidden_layers": 4,
            "hidden_size": width,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "tie_word_embeddings": tied,
            **({} if bits is None else {"quantization": {"bits": bits, "group_size": 32}}),
        }
        write_json(folder / "config.json", whole | config)
        write_json(folder / "tokenizer.json", {"model": {}})
        write_json(folder / "tokenizer_config.json", {"eos_token": "</s>"})
        (folder / "README.md").write_text("not needed")
        (folder / "modeling.py").write_text("raise SystemExit")
        write_weights(folder, tensors(tied, bits, width), files)
        return folder

    return make


def tensors(tied: bool, bits: int | None, width: int) -> list[tuple[str, Stored]]:
    names = ["model.embed_tokens"]
    for block in range(4):
        names += [f"model.layers.{block}.{leaf}" for leaf in ("input_layernorm", "self_attn.q_proj", "mlp.up_proj")]
    names += ["model.norm"] + ([] if tied else ["lm_head"])
    random = np.random.default_rng(1)
    made: list[tuple[str, Stored]] = []
    for name in names:
        if "norm" in name:
            made.append((f"{name}.weight", stored(random.random(width, dtype=np.float32), "bf16")))
        elif bits is None:
            made.append((f"{name}.weight", stored(random.random((3 * width, width), dtype=np.float32), "bf16")))
        else:
            packed = random.integers(0, 1 << 32, (3 * width, width * bits // 32), dtype=np.uint32)
            made.append((f"{name}.weight", Stored("U32", packed.shape, packed.tobytes())))
            for leaf in ("scales", "biases"):
                made.append((f"{name}.{leaf}", stored(random.random((3 * width, 1), dtype=np.float32), "bf16")))
    return made
