"""What a checkpoint is made of, wherever it comes from; and what its small files may say."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafila_sidecar.errors import NotFound, Refused
from kafila_sidecar.models.foreign import refuse_foreign_code
from kafila_sidecar.models.quantisation import quantisation_of

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
INDEX = "model.safetensors.index.json"
SMALL_FILES = frozenset(
    {
        *{CONFIG, GENERATION_CONFIG, "hf_quant_config.json", INDEX},
        *{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"},
        *{"vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "tiktoken.model", "spiece.model"},
        *{"chat_template.jinja", "chat_template.json"},
    }
)
"""All that is ever taken from a repository beside weights; code is not."""
WEIGHT_FILE = re.compile(r"[A-Za-z0-9][\w.-]{0,200}\.safetensors", re.ASCII)
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

    `revision` is a commit, or for a folder a digest of configuration and weight headers. `folder` is where its
    weights go; those in `whole` (by file name) are complete on this machine already.
    """

    model: str
    revision: str
    config: Mapping[str, Any]
    small_files: Path
    small_bytes: int  # fetched now
    folder: Path
    weight_files: tuple[WeightFile, ...]
    whole: Mapping[str, Path] = field(default_factory=dict)


def read_config(model: str, folder: Path) -> dict[str, Any]:
    """config.json of the small files in `folder`.

    Raises Refused for a checkpoint that wants code of its own run, or is quantised in a way that can't be run.
    """
    for path in sorted(folder.glob("*.json")):
        if path.name in SMALL_FILES - {INDEX, "tokenizer.json", "vocab.json"}:
            refuse_foreign_code(read_json(model, path), f"{model}'s {path.name}")
    config = read_json(model, folder / CONFIG)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not MODEL_TYPE.fullmatch(model_type):
        raise Refused(f"{model} does not say in its config.json which architecture it is (model_type)")
    quantisation_of(config)
    return config


def read_json(model: str, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise NotFound(f"{model} has no {path.name}: it is no checkpoint that can be run") from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise Refused(f"{model} has a {path.name} that is no JSON object")
    return content


def read_optional_json(model: str, folder: Path, name: str) -> dict[str, Any]:
    """As `read_json`; {} where the checkpoint has no such file."""
    return read_json(model, folder / name) if (folder / name).is_file() else {}


def weight_names(model: str, small_files: Path, listed: Iterable[str]) -> list[str]:
    """Names of the weight files: the index's where there is one, else `model*.safetensors` of those `listed`."""
    index = small_files / INDEX
    if index.is_file():
        weight_map = read_json(model, index).get("weight_map")
        names = set(weight_map.values()) if isinstance(weight_map, dict) else set()
    else:
        names = {name for name in listed if name.startswith("model") and name.endswith(".safetensors")}
    if not names:
        raise Refused(f"{model} has no safetensors weights: choose a checkpoint in that format")
    for name in names:
        if not isinstance(name, str) or not WEIGHT_FILE.fullmatch(name):
            raise Refused(f"{model} has a weight file with the improper name {str(name)[:80]!r}")
    return sorted(names)
