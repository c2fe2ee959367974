"""Weights packed as their publishers ship them: FP8 in blocks, and experts in MXFP4. mlx-lm's logits, bit for bit."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from kafila_sidecar.models.quantisation import quantisation_of
from kafila_sidecar.models.reading import read
from kafila_sidecar.runtime.shard.making.building import flat
from kafila_sidecar.runtime.shard.making.examine import examine
from kafila_sidecar.runtime.shard.shard import Shard
from tests.exact.proof import model_of, rings_answers, telling, whole
from tests.exact.shapes import tiny_config
from tests.support.checkpoint import Stored, write_json, write_safetensors

pytestmark = pytest.mark.mlx

BLOCK = 128
SHAPE = {"hidden_size": 128, "num_hidden_layers": 4}


def raw(array: mx.array, dtype: str) -> Stored:
    mx.eval(array)
    return Stored(dtype, tuple(array.shape), np.array(array).tobytes())


def bf16(array: mx.array) -> Stored:
    return Stored("BF16", tuple(array.shape), np.array(array.astype(mx.bfloat16).view(mx.uint16)).tobytes())


def in_fp8(array: mx.array) -> tuple[Stored, Stored]:
    """A matrix of one block at most, and the inverse of its scale."""
    assert max(array.shape) <= BLOCK or array.shape[0] % BLOCK == 0
    rows = -(-array.shape[0] // BLOCK)
    scale = mx.full((rows, -(-array.shape[1] // BLOCK)), 0.001)
    return raw(mx.to_fp8(array / 0.001), "F8_E4M3"), raw(scale, "F32")


def fp8(folder: Path) -> None:
    config = tiny_config("deepseek_v3", **SHAPE, intermediate_size=128, moe_intermediate_size=128)
    tensors: dict[str, Stored] = {}
    for name, array in flat(model_of("deepseek_v3", config)):
        value = telling(name, array)
        if ".mlp." in name and value.ndim == 2 and "switch" not in name and ".gate.weight" not in name:
            tensors[name], tensors[f"{name}_scale_inv"] = in_fp8(value)
        else:  # MLX multiplies experts on CPU in float32 only
            tensors[name] = raw(value, "F32")
    write_safetensors(folder / "model.safetensors", tensors)
    packed = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    write_json(folder / "config.json", config | {"quantization_config": packed})


def mxfp4(folder: Path) -> None:
    config = tiny_config(
        "gpt_oss", **SHAPE, intermediate_size=128, layer_types=["sliding_attention", "full_attention"] * 2
    )
    arrays = {name: telling(name, array) for name, array in flat(model_of("gpt_oss", config))}
    tensors = {name: bf16(array) for name, array in arrays.items() if ".experts." not in name}
    for layer in range(4):
        stem = f"model.layers.{layer}.mlp.experts"
        gate, up = (arrays[f"{stem}.{one}_proj.weight"] for one in ("gate", "up"))
        both = mx.stack([gate, up], axis=2).reshape(gate.shape[0], -1, gate.shape[2])
        for name, matrix in (("gate_up_proj", both), ("down_proj", arrays[f"{stem}.down_proj.weight"])):
            packed, scales, *_ = mx.quantize(matrix, group_size=32, bits=4, mode="mxfp4")
            blocks = packed.view(mx.uint8).reshape(*packed.shape[:2], -1, 16)
            tensors[f"{stem}.{name}_blocks"] = raw(blocks, "U8")
            tensors[f"{stem}.{name}_scales"] = raw(scales, "U8")
        gate, up = (arrays[f"{stem}.{one}_proj.bias"] for one in ("gate", "up"))
        tensors[f"{stem}.gate_up_proj_bias"] = bf16(mx.stack([gate, up], axis=2).reshape(gate.shape[0], -1))
        tensors[f"{stem}.down_proj_bias"] = bf16(arrays[f"{stem}.down_proj.bias"])
    write_safetensors(folder / "model.safetensors", tensors)
    write_json(folder / "config.json", config | {"quantization_config": {"quant_method": "mxfp4"}})


def headers_in(file: Path) -> dict[str, Stored]:
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    entries: dict[str, Any] = json.loads(content[8 : 8 + size])
    entries.pop("__metadata__")
    return {name: Stored(entry["dtype"], tuple(entry["shape"]), b"") for name, entry in entries.items()}


@pytest.mark.parametrize("write", [fp8, mxfp4])
def test_ring_when_packed_as_shipped_then_the_whole_models_logits(write: Any, tmp_path: Path) -> None:
    write(tmp_path)
    file = tmp_path / "model.safetensors"
    headers, config = headers_in(file), json.loads((tmp_path / "config.json").read_text())
    reference = whole(tmp_path)
    reading = read(config, headers)
    shards = []
    for start, end in pairwise((0, 1, 3, 4)):
        ours = [name for name in headers if reading.holds(name, start=start, end=end, head=start == 0)]
        shards.append(Shard.load(folder=tmp_path, files={file: ours}, start=start, end=end, head=start == 0))
    anatomy, sizes = examine(config, headers), [shard.weight_bytes for shard in shards]
    assert [block.held_bytes for block in anatomy.blocks][3] == sizes[2]
    answer = rings_answers(shards)
    assert all(bool(mx.isfinite(logits).all()) for logits in reference)
    assert all(mx.array_equal(ours, theirs) for ours, theirs in zip(answer, reference, strict=True))


def test_experts_when_shipped_in_four_bit_integers_then_read() -> None:
    weights = {"num_bits": 4, "group_size": 32, "symmetric": True, "type": "int", "strategy": "group"}
    entry = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"a": {"weights": weights}},
    }
    read_back = quantisation_of({"text_config": {"quantization_config": entry}})
    assert read_back is not None
    assert (read_back.group_size, read_back.bits, read_back.mode) == (32, 4, "affine")
