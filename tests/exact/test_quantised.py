"""Packed weights, as MLX packs them or packed while loading: the ring is mlx-lm's own reading of it, bit for bit."""

import gc
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.utils import load_model, quantize_model

from kafila_planner.json.decode_problem import problem_from_json
from kafila_sidecar.errors import Refused
from kafila_sidecar.models.reading import read
from kafila_sidecar.runtime.shard.making.building import flat
from kafila_sidecar.runtime.shard.making.examine import examine
from kafila_sidecar.runtime.shard.making.loading import load_part, read_config
from tests.exact.proof import cuts_for, prove, ring, whole, write_checkpoint
from tests.exact.shapes import tiny_config
from tests.exact.shards import tensors_for
from tests.support.checkpoint import write_json
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

WIDE = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32, "num_hidden_layers": 4}
EXPERTS = {"moe_intermediate_size": 64}
MODES: dict[str, dict[str, Any]] = {
    **{f"affine {bits}": {"group_size": 32, "bits": bits, "mode": "affine"} for bits in (2, 3, 4, 5, 6, 8)},
    "mxfp4": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    "nvfp4": {"group_size": 16, "bits": 4, "mode": "nvfp4"},
    "mxfp8": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
}


@dataclass(frozen=True, slots=True)
class Described:
    dtype: str
    shape: tuple[int, ...]


OWN: dict[str, dict[str, Any]] = {
    "qwen3_moe": EXPERTS,
    "deepseek_v3": EXPERTS | {"num_key_value_heads": 4},
    "gpt_oss": {"layer_types": ["sliding_attention", "full_attention"] * 2},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2, "block_dim": 128},
}
NAMES = {mx.float32: "F32", mx.bfloat16: "BF16", mx.float16: "F16", mx.uint32: "U32", mx.uint8: "U8"}


def headers_of(folder: Path) -> Mapping[str, Described]:
    arrays: Any = {}
    for file in sorted(folder.glob("*.safetensors")):
        arrays |= mx.load(str(file))
    return {name: Described(NAMES[array.dtype], tuple(array.shape)) for name, array in arrays.items()}


def check(folder: Path) -> None:
    reading = read(read_config(folder), headers_of(folder))
    reference = whole(folder)
    for cuts in cuts_for(4, ()):
        answer = ring(reading, folder, cuts)
        assert all(mx.array_equal(ours, theirs) for ours, theirs in zip(answer, reference, strict=True))


@pytest.mark.parametrize("mode", MODES)
def test_ring_when_packed_in_any_of_mlxs_ways_then_the_whole_models_logits(mode: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model", tiny_config("llama", **WIDE), **MODES[mode])
    check(tmp_path / "model")


def test_ring_when_a_file_of_its_own_says_how_it_is_packed_then_the_whole_models_logits(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_checkpoint(folder, tiny_config("llama", **WIDE), **MODES["nvfp4"])
    config = json.loads((folder / "config.json").read_text())
    del config["quantization"]
    write_json(folder / "config.json", config)
    told = {"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    write_json(folder / "hf_quant_config.json", told)
    with pytest.raises(Refused):  # never as plain weights
        examine(config, headers_of(folder))
    check(folder)


@pytest.mark.parametrize("module", OWN)
def test_ring_when_experts_and_states_are_packed_then_the_whole_models_logits(module: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model", tiny_config(module, **WIDE, **OWN[module]), **MODES["affine 4"])
    check(tmp_path / "model")


def test_ring_when_single_layers_have_settings_of_their_own_then_the_whole_models_logits(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    own = {"lm_head": {"group_size": 64, "bits": 8}, "model.layers.1.mlp.down_proj": {"group_size": 32, "bits": 6}}
    write_checkpoint(folder, tiny_config("llama", **WIDE), group_size=32, bits=4, overrides=own)
    assert json.loads((folder / "config.json").read_text())["quantization"]["lm_head"]["bits"] == 8
    check(folder)


@pytest.mark.parametrize("bits", [4, 8])
def test_shards_when_packed_while_loading_then_what_mlx_lms_convert_makes(bits: int, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    config = tiny_config("qwen3_moe", **WIDE, **EXPERTS)
    write_checkpoint(folder, config)
    model, _ = load_model(folder)
    converted, _ = quantize_model(model, config, 64, bits)
    reference = dict(flat(converted))
    names = list(headers_of(folder))
    reading = read(config, names)
    file = folder / "model.safetensors"
    seen: set[str] = set()
    for start, end in pairwise((0, 1, 4)):
        head = start == 0
        ours = [name for name in names if reading.holds(name, start=start, end=end, head=head)]
        built = load_part(config, {file: ours}, start=start, end=end, head=head, bits=bits)
        held = {name: array for name, array in flat(built.model) if built.is_of(name, start, end, head=head)}
        assert all(mx.array_equal(array, reference[name]) for name, array in held.items())
        assert examine(config, headers_of(folder), bits=bits).blocks[start].held_bytes == sum(
            array.nbytes for name, array in held.items() if built.block_of(name) == start
        )
        seen |= held.keys()
    assert seen == reference.keys()


def test_shard_when_packed_while_loading_then_memory_peaks_less_than_a_block_above_it(tmp_path: Path) -> None:
    config = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8, "head_dim": 128}
    folder = tiny_folder(tmp_path / "model", dtype="bf16", config=config)
    whole_config = json.loads((folder / "config.json").read_text())
    headers = headers_of(folder)
    block = examine(whole_config, headers).blocks[0].held_bytes
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    files: dict[Path, list[str]] = {}
    for name, file in index.items():
        files.setdefault(folder / file, []).append(name)
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    built = load_part(whole_config, files, start=0, end=8, head=True, bits=4)
    peak = mx.get_peak_memory() - before
    assert peak <= built.weight_bytes(0, 8, head=True) + block


def test_head_when_packed_while_loading_then_its_large_matrices_come_while_there_is_room(tmp_path: Path) -> None:
    config = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 12, "head_dim": 128}
    folder = tiny_folder(tmp_path / "model", dtype="bf16", config=config | {"vocab_size": 20_000})
    whole_config = json.loads((folder / "config.json").read_text())
    block = examine(whole_config, headers_of(folder)).blocks[0].held_bytes
    files = tensors_for(folder, 0, 12, head=True)
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    built = load_part(whole_config, files, start=0, end=12, head=True, bits=4)
    embedding = 20_000 * 512 * 2
    assert embedding > 3 * block
    assert mx.get_peak_memory() - before <= built.weight_bytes(0, 12, head=True) + block


@pytest.mark.parametrize(("dtype", "named"), [("bf16", "BF16"), ("f32", "F32")])
def test_anatomy_when_packed_while_loading_then_smaller_and_it_says_from_what(
    dtype: str, named: str, tmp_path: Path
) -> None:
    folder = tiny_folder(tmp_path / "model", dtype=dtype)
    config = json.loads((folder / "config.json").read_text())
    plain, packed = (examine(config, headers_of(folder), bits=bits) for bits in (0, 8))
    assert packed.quantization == f"8-bit, made here from {named}"
    assert packed.blocks[0].held_bytes < plain.blocks[0].held_bytes
    assert packed.activation_dtype == plain.activation_dtype == named
    assert packed.parameters == plain.parameters


def test_anatomy_when_no_matrix_can_be_packed_then_refused(tmp_path: Path) -> None:
    narrow = {"hidden_size": 32, "intermediate_size": 96, "head_dim": 8}
    folder = tiny_folder(tmp_path / "model", config=narrow)
    with pytest.raises(Refused, match="no matrix of this model can be quantised"):
        examine(json.loads((folder / "config.json").read_text()), headers_of(folder), bits=4)


def test_checkpoint_when_packed_already_then_not_packed_again(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "model", tiny_config("llama", **WIDE), **MODES["affine 4"])
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    names = list(headers_of(tmp_path / "model"))
    with pytest.raises(Refused, match="quantised already"):
        examine(config, headers_of(tmp_path / "model"), bits=4)
    with pytest.raises(Refused, match="quantised already"):
        load_part(config, {tmp_path / "model" / "model.safetensors": names}, start=0, end=4, head=True, bits=4)


@pytest.mark.parametrize("module", ["qwen3_moe", "gemma3n", "deepseek_v3"])
def test_anatomy_when_made_from_headers_then_the_bytes_that_shards_hold(module: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    finding = prove(module, folder)
    config = json.loads((folder / "config.json").read_text())
    anatomy = examine(config, headers_of(folder))
    assert anatomy.no_cut_after == finding.uncuttable
    held = sum(block.held_bytes for block in anatomy.blocks) + anatomy.embed_bytes + anatomy.norm_bytes
    held += 0 if anatomy.tied else anatomy.unembed_bytes
    file = folder / "model.safetensors"
    arrays: Any = mx.load(str(file))
    assert held == sum(array.nbytes for array in arrays.values())
    chosen = [block.read_bytes < block.held_bytes for block in anatomy.blocks]
    assert any(chosen) is (module != "gemma3n")


@pytest.mark.parametrize(
    ("module", "field"),
    [("gemma3n", "no_cut_after"), ("lfm2", "kv_fixed_bytes"), ("gpt_oss", "kv_window_tokens")],
)
def test_anatomy_when_planned_with_then_the_planner_reads_caches_and_cuts(
    module: str, field: str, tmp_path: Path
) -> None:
    config = tiny_config(module)
    write_checkpoint(tmp_path / "model", config)
    anatomy = examine(config, headers_of(tmp_path / "model"))
    model = problem_from_json({"model": anatomy.sizes, "members": [{"name": "ada"}]}).model
    assert model.block_bytes == tuple(block.held_bytes for block in anatomy.blocks)
    assert model.block_read_bytes == tuple(block.read_bytes for block in anatomy.blocks)
    assert model.kv_fixed_bytes == tuple(block.kv_fixed_bytes for block in anatomy.blocks)
    assert model.kv_window_tokens == tuple(block.kv_window_tokens for block in anatomy.blocks)
    assert model.no_cut_after == anatomy.no_cut_after
    assert any(getattr(model, field))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"drop": "model.layers.2.mlp.up_proj.weight"}, "lack model.layers.2.mlp.up_proj.weight"),
        ({"add": "model.layers.2.mlp.up_proj.bias"}, "have model.layers.2.mlp.up_proj.bias"),
        ({"add": "model.gain"}, "have model.gain"),
        ({"shape": "model.layers.1.self_attn.k_proj.weight"}, "model.layers.1.self_attn.k_proj.weight has the shape"),
    ],
)
def test_headers_when_they_do_not_fit_the_configuration_then_refused_by_name(
    change: dict[str, str], named: str, tmp_path: Path
) -> None:
    config = tiny_config("llama", **WIDE)
    write_checkpoint(tmp_path / "model", config)
    headers = dict(headers_of(tmp_path / "model"))
    if "drop" in change:
        del headers[change["drop"]]
    if "add" in change:
        headers[change["add"]] = Described("F32", (256,))
    if "shape" in change:
        headers[change["shape"]] = Described("F32", (5, 128))
    with pytest.raises(Refused, match=named):
        examine(config, headers)
