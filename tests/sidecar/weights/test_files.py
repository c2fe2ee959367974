"""Which files are the checkpoint: real repositories' habits, and the law that every set taken is whole."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.errors import KafilaError, NotFound, Refused
from kafila_sidecar.weights.checkpoint import open_checkpoint
from kafila_sidecar.weights.providers.files import choose
from kafila_sidecar.weights.providers.hub import Hub
from tests.support.checkpoint import write_json

Make = Callable[..., Path]
NOWHERE = Hub(endpoint="http://127.0.0.1:9")


def shards(count: int, stem: str = "model", tail: str = "") -> list[str]:
    return [f"{stem}-{number:05}-of-{count:05}{tail}.safetensors" for number in range(1, count + 1)]


def index_of(files: list[str]) -> dict[str, Any]:
    return {"weight_map": {f"tensor.{place}": file for place, file in enumerate(files)}}


TWO, THREE = shards(2), shards(3)
CHOSEN: dict[str, tuple[list[str], dict[str, Any] | None, list[str]]] = {
    "one file": (["model.safetensors"], None, ["model.safetensors"]),
    "shards and their index": (TWO, index_of(TWO), TWO),
    "shards without an index": (TWO, None, TWO),
    "a stale index beside one file": (["model.safetensors"], index_of(TWO), ["model.safetensors"]),
    "a stale index beside other shards": (THREE, index_of(TWO), THREE),
    "an index that is no map": (["model.safetensors"], {"weight_map": []}, ["model.safetensors"]),
    "an empty index": (["model.safetensors"], {"weight_map": {}}, ["model.safetensors"]),
    "one file and shards, the index decides": (["model.safetensors", *TWO], index_of(TWO), TWO),
    "one file and shards, none decides": (["model.safetensors", *TWO], None, ["model.safetensors"]),
    "a second precision": (["model.safetensors", "model.fp16.safetensors"], None, ["model.safetensors"]),
    "a second precision in shards": ([*TWO, *shards(2, "model.fp16")], None, TWO),
    "a second precision named at the end": ([*TWO, *shards(2, tail=".fp16")], index_of(TWO), TWO),
    "only a second precision": (["model.fp16.safetensors"], None, ["model.fp16.safetensors"]),
    "only a second precision in shards": (shards(2, "model.fp16"), None, shards(2, "model.fp16")),
    "remains of another set": (["model.safetensors", THREE[1]], None, ["model.safetensors"]),
    "two sets of shards, one of them torn": ([*TWO, THREE[0]], None, TWO),
    "others' files": (["model.safetensors", "consolidated.safetensors", "adapter.bin"], None, ["model.safetensors"]),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_files_when_a_repository_holds_more_than_the_checkpoint_then_one_whole_set_is_taken(name: str) -> None:
    listed, index, wanted = CHOSEN[name]
    assert list(choose("m", [*listed, "config.json"], index).names) == wanted


NONE: dict[str, tuple[list[str], dict[str, Any] | None, type[KafilaError], str]] = {
    "none": ([], None, Refused, "no safetensors"),
    "another format": (["pytorch_model.bin"], None, Refused, "no safetensors"),
    "a torn set": (THREE[:2], None, NotFound, "not all parts"),
    "an index and a torn set": (THREE[:2], index_of(THREE), NotFound, re.escape(THREE[2])),
    "a way out": (["model.safetensors"], index_of(["../x.safetensors"]), Refused, "improper"),
    "no name": (["model.safetensors"], {"weight_map": {"a": 7}}, Refused, "improper"),
}


@pytest.mark.parametrize("name", NONE)
def test_files_when_no_whole_set_is_there_then_refused_by_name(name: str) -> None:
    listed, index, error, sentence = NONE[name]
    with pytest.raises(error, match=sentence):
        choose("m", listed, index)


NAMES = st.lists(st.sampled_from(["model.safetensors", *TWO, *THREE, *shards(2, "model.fp16"), "x.safetensors"]))


@given(NAMES, st.none() | NAMES)
def test_files_when_any_are_listed_then_what_is_taken_is_there_and_whole(
    listed: list[str], indexed: list[str] | None
) -> None:
    index = None if indexed is None else index_of(indexed)
    try:
        chosen = choose("m", listed, index).names
    except (NotFound, Refused):
        return
    assert set(chosen) <= set(listed)
    by_index = indexed is not None and set(chosen) == set(indexed)
    assert by_index or len(chosen) == 1 or list(chosen) in (TWO, THREE, shards(2, "model.fp16"))


async def test_tensor_when_two_files_hold_it_then_the_index_decides(checkpoint_folder: Make, tmp_path: Path) -> None:
    folder = checkpoint_folder(files=1)
    (whole,) = folder.glob("*-of-*.safetensors")
    second = folder / "model-second.safetensors"
    second.write_bytes(whole.read_bytes())
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    names = sorted(index["weight_map"])
    index["weight_map"] |= dict.fromkeys(names[::2], second.name)
    write_json(folder / "model.safetensors.index.json", index)
    checkpoint = await open_checkpoint(str(folder), hub=NOWHERE, cache=tmp_path)
    assert {name: tensor.file for name, tensor in checkpoint.manifest.tensors.items()} == index["weight_map"]


@pytest.mark.parametrize("stale", [False, True])
async def test_folder_when_its_files_are_split_in_another_way_then_the_same_tensors(
    checkpoint_folder: Make, tmp_path: Path, stale: bool
) -> None:
    one, three = checkpoint_folder(files=1), checkpoint_folder(files=3)
    (whole,) = one.glob("*-of-*.safetensors")
    whole.rename(one / "model.safetensors")
    if not stale:
        (one / "model.safetensors.index.json").unlink()
    found = [await open_checkpoint(str(folder), hub=NOWHERE, cache=tmp_path) for folder in (one, three)]
    assert [file.name for file in found[0].manifest.files.values()] == ["model.safetensors"]
    assert found[0].manifest.tensors.keys() == found[1].manifest.tensors.keys()
    assert found[0].sizes == found[1].sizes
