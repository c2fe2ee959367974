"""What a checkpoint is made of, wherever it comes from; and what its small files may say."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from kafila_sidecar.errors import Refused
from kafila_sidecar.models.foreign import refuse_foreign_code
from kafila_sidecar.models.quantisation import quantisation_of, with_modelopt
from kafila_sidecar.small_files import CONFIG, INDEX, QUANT_CONFIG, SMALL_FILES, read_json, read_optional_json
from kafila_sidecar.weights.format.description import FolderDescription
from kafila_sidecar.weights.providers.files import WeightFiles, choose
from kafila_sidecar.weights.store.journal import room_on_disk

MODEL_TYPE = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A weight file as its repository announces it; None where it doesn't say."""

    name: str
    size_bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint at one revision, its small files read.

    `revision` is a commit, or for a folder a digest of configuration and weight headers. `folder` is where its weights
    go, unless it is somebody else's (`is_local`); those in `whole` (by file name) are complete on this machine already.
    """

    model: str
    revision: str
    config: Mapping[str, Any]
    small_files: Path
    small_bytes: int  # fetched now
    folder: Path
    weight_files: tuple[WeightFile, ...]
    whole: Mapping[str, Path] = field(default_factory=dict)
    is_local: bool = False
    description: FolderDescription | None = None  # of a folder, which no model host has
    tensor_files: Mapping[str, str] = field(default_factory=dict)  # the index's word where two files hold one tensor


def read_config(model: str, folder: Path) -> dict[str, Any]:
    """config.json of the small files in `folder`, with what hf_quant_config.json adds.

    Raises Refused for a checkpoint that wants code of its own run, or is quantised in a way that can't be run.
    """
    for path in sorted(folder.glob("*.json")):
        if path.name in SMALL_FILES - {INDEX, "tokenizer.json", "vocab.json"}:
            refuse_foreign_code(read_json(model, path), f"{model}'s {path.name}")
    config = with_modelopt(read_json(model, folder / CONFIG), read_optional_json(model, folder, QUANT_CONFIG))
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not MODEL_TYPE.fullmatch(model_type):
        raise Refused(f"{model} does not say in its config.json which architecture it is (model_type)")
    quantisation_of(config)
    return config


def weight_files(model: str, small_files: Path, listed: Collection[str]) -> WeightFiles:
    """The checkpoint's weight files, of those `listed`. Raises as `choose` and `read_json` do."""
    index = small_files / INDEX
    return choose(model, listed, read_json(model, index) if index.is_file() else None)


def put(path: Path, content: bytes) -> None:
    """Writes a file as a whole or not at all."""
    with room_on_disk(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as target:
            try:
                target.write(content)
                target.flush()
                os.fsync(target.fileno())
                os.replace(target.name, path)
            except BaseException:
                os.unlink(target.name)
                raise
