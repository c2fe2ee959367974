"""Checkpoints as publishers name and split their tensors, a stage with its own files alone: mlx-lm's logits."""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from kafila_sidecar.models.family import block_of
from kafila_sidecar.models.reading import read
from kafila_sidecar.runtime.shard.making.building import flat
from kafila_sidecar.runtime.shard.shard import Shard
from tests.exact.proof import model_of, rings_answers, telling, whole
from tests.exact.shapes import tiny_config
from tests.exact.test_quantised import NAMES, Described
from tests.support.checkpoint import write_json

pytestmark = pytest.mark.mlx

EXPERTS = {"switch_mlp.gate_proj": "gate_proj", "switch_mlp.down_proj": "down_proj", "switch_mlp.up_proj": "up_proj"}
MIXTRAL = {"switch_mlp.gate_proj": "w1", "switch_mlp.down_proj": "w2", "switch_mlp.up_proj": "w3"}
CASES: dict[str, dict[str, str]] = {
    **{"mixtral": MIXTRAL, "qwen3_moe": EXPERTS, "deepseek_v3": EXPERTS, "olmoe": EXPERTS, "hunyuan": EXPERTS},
    **{"llama": {}, "gemma3": {}},
}


def published(name: str, array: mx.array, experts: dict[str, str]) -> Iterator[tuple[str, mx.array]]:
    """A tensor under its publisher's name; experts one by one."""
    for ours, theirs in experts.items():
        if f".{ours}." in name:
            stem, _, leaf = name.partition(f".{ours}.")
            yield from ((f"{stem}.experts.{index}.{theirs}.{leaf}", part) for index, part in enumerate(array))
            return
    yield name, array


def write_split(folder: Path, module: str, experts: dict[str, str]) -> dict[str, Path]:
    """One file for each block, and one for the rest. Returns where each tensor is."""
    config = tiny_config(module)
    folder.mkdir()
    mx.random.seed(4)
    by_file: dict[str, dict[str, mx.array]] = {}
    for name, array in flat(model_of(module, config)):
        for raw, part in published(name, telling(name, array), experts):
            number = block_of(raw)
            file = f"model-{0 if number is None else number + 1:05}.safetensors"
            by_file.setdefault(file, {})[raw] = mx.contiguous(part)
    if module == "gemma3":  # towers that the text model doesn't have
        by_file["model-00000.safetensors"]["vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight"] = mx.zeros(
            (4, 4)
        )
    for file, arrays in by_file.items():
        mx.save_safetensors(str(folder / file), arrays, metadata={"format": "pt"})
    write_json(folder / "config.json", config)
    return {name: folder / file for file, arrays in by_file.items() for name in arrays}


def shards_of(folder: Path, where: dict[str, Path], cuts: Sequence[int]) -> list[Shard]:
    arrays: Any = {}
    for file in sorted(set(where.values())):
        arrays |= mx.load(str(file))
    headers = {name: Described(NAMES[array.dtype], tuple(array.shape)) for name, array in arrays.items()}
    reading = read(json.loads((folder / "config.json").read_text()), headers)
    shards = []
    for start, end in pairwise(cuts):
        files: dict[Path, list[str]] = {}
        for name, file in where.items():
            if reading.holds(name, start=start, end=end, head=start == 0):
                files.setdefault(file, []).append(name)
        shard = Shard.load(folder=folder, files=files, start=start, end=end, head=start == 0, headers=headers)
        shard.learn_steps()  # of whatever family, it neither fails nor leaves anything behind
        shards.append(shard)
    return shards


@pytest.mark.parametrize("module", CASES)
def test_ring_when_tensors_are_named_and_split_as_published_then_the_whole_models_logits(
    module: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    where = write_split(folder, module, CASES[module])
    reference = whole(folder)
    answer = rings_answers(shards_of(folder, where, (0, 2, 4, 6)))
    assert all(mx.array_equal(ours, theirs) for ours, theirs in zip(answer, reference, strict=True))
