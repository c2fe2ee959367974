import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafila_sidecar.errors import Refused
from kafila_sidecar.weights.format.layout import (
    activation_dtype,
    byte_ranges,
    model_sizes,
    parameter_count,
    quantization,
    shard_tensors,
)
from kafila_sidecar.weights.format.manifest import Manifest, Tensor, header_span, make_manifest, parse_header

Make = Callable[..., Path]


def opened(folder: Path) -> tuple[Manifest, dict[str, Any]]:
    layouts = []
    for path in sorted(folder.glob("*.safetensors")):
        content = path.read_bytes()
        span = header_span(path.name, content[:8], len(content))
        layouts.append(parse_header(path.name, content[span.start : span.end], len(content)))
    return make_manifest(layouts), json.loads((folder / "config.json").read_text())


def without(manifest: Manifest, part: str) -> Manifest:
    left = {name: tensor for name, tensor in manifest.tensors.items() if part not in name}
    return Manifest(manifest.files, left)


@pytest.mark.parametrize("shape", [{"tied": True}, {"tied": False}, {"tied": False, "bits": 4, "width": 32}])
@pytest.mark.parametrize("cuts", [(0, 4), (0, 1, 4), (0, 1, 3, 4), (0, 1, 2, 3, 4)])
def test_every_tensor_is_on_exactly_one_stage(checkpoint_folder: Make, shape: Any, cuts: tuple[int, ...]) -> None:
    manifest, config = opened(checkpoint_folder(**shape))
    stages = [shard_tensors(manifest, config, start, end, head=start == 0) for start, end in pairwise(cuts)]
    assert sum(map(len, stages)) == len(manifest.tensors)
    assert frozenset().union(*stages) == manifest.tensors.keys()


def test_unembedding_is_left_out_where_the_embedding_serves_as_it(checkpoint_folder: Make) -> None:
    manifest, config = opened(checkpoint_folder(tied=False))
    names = shard_tensors(manifest, config | {"tie_word_embeddings": True}, 0, 4, head=True)
    assert manifest.tensors.keys() - names == {"lm_head.weight"}


def test_blocks_past_the_configured_count_are_left_out(checkpoint_folder: Make) -> None:
    manifest, config = opened(checkpoint_folder())
    names = shard_tensors(manifest, config | {"num_hidden_layers": 3}, 0, 3, head=True)
    assert {name.split(".")[2] for name in names if ".layers." in name} == {"0", "1", "2"}


@pytest.mark.parametrize("shape", [{"tied": True}, {"tied": False}, {"tied": False, "bits": 4, "width": 32}])
def test_sizes_add_up_to_the_checkpoint(checkpoint_folder: Make, shape: Any) -> None:
    manifest, config = opened(checkpoint_folder(**shape))
    sizes = model_sizes(manifest, config)
    unembed = 0 if sizes["tied"] else sizes["unembed_bytes"]
    parts = sizes["blocks"] * sizes["block_bytes"] + sizes["embed_bytes"] + unembed + sizes["norm_bytes"]
    assert parts == manifest.tensor_bytes
    assert sizes["tied"] == shape["tied"]
    assert sizes["kv_bytes_per_token_per_block"] == 2 * 2 * (shape.get("width", 8) // 4) * 2


def test_sizes_of_unequal_blocks_are_a_list(checkpoint_folder: Make) -> None:
    manifest, config = opened(checkpoint_folder())
    sizes = model_sizes(without(manifest, "layers.2.mlp"), config)
    assert len(set(sizes["block_bytes"])) == 2
    assert sizes["block_bytes"][2] < sizes["block_bytes"][1]


def test_quantised_checkpoint_counts_the_parameters_it_stands_for(checkpoint_folder: Make) -> None:
    plain = opened(checkpoint_folder(tied=False, width=32))
    packed = opened(checkpoint_folder(tied=False, width=32, bits=4))
    assert parameter_count(*packed) == parameter_count(*plain)
    assert quantization(*packed) == "4-bit"
    assert quantization(*plain) == "BF16"
    assert activation_dtype(packed[0]) == "BF16"


def test_byte_ranges_are_the_tensors_bytes_and_neighbours_are_one_range(checkpoint_folder: Make) -> None:
    manifest, config = opened(checkpoint_folder(files=1))
    names = shard_tensors(manifest, config, 1, 3, head=False)
    (ranges,) = byte_ranges(manifest, names).values()
    assert len(ranges.spans) == 1
    assert len(ranges) == sum(manifest.tensors[name].size_bytes for name in names)


@pytest.mark.parametrize("part", ["layers.2.", "embed_tokens", "model.norm", "lm_head"])
def test_checkpoint_that_lacks_a_part_is_refused_by_name(checkpoint_folder: Make, part: str) -> None:
    manifest, config = opened(checkpoint_folder(tied=False))
    with pytest.raises(Refused, match="block 2" if "layers" in part else part):
        shard_tensors(without(manifest, part), config, 0, 4, head=True)


@pytest.mark.parametrize("value", [0, -1, 1 << 40, 2.5, "4", True, None])
def test_configuration_with_a_senseless_count_is_refused_by_name(checkpoint_folder: Make, value: Any) -> None:
    manifest, config = opened(checkpoint_folder())
    with pytest.raises(Refused, match="num_hidden_layers"):
        model_sizes(manifest, config | {"num_hidden_layers": value})


@pytest.mark.parametrize("dtype", ["F8_E4M3", "I8", "U32"])
def test_dtype_that_cannot_be_run_is_refused(checkpoint_folder: Make, dtype: str) -> None:
    manifest, config = opened(checkpoint_folder())
    name = "model.layers.1.mlp.up_proj.weight"
    odd = Tensor(name, "model.safetensors", dtype, (1,), 0, 4)
    with pytest.raises(Refused, match=f"{name} is {dtype}"):
        quantization(Manifest(manifest.files, {**manifest.tensors, name: odd}), config)
