"""Writes Hub-style checkpoint folders: JSON files, and safetensors in several files with an index."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DTYPE_NAMES = {"f32": "float32", "bf16": "bfloat16"}
"""What `config.json` calls the dtypes that folders are written in."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as it lies in a file: the safetensors name of its dtype, its shape, its bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def stored(array: NDArray[np.float32], dtype: str) -> Stored:
    """`array` in "f32", or in "bf16" rounded to the nearest even."""
    array = np.ascontiguousarray(array, dtype=np.float32)
    if dtype == "f32":
        return Stored("F32", array.shape, array.tobytes())
    bits = array.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return Stored("BF16", array.shape, rounded.astype("<u2").tobytes())


def write_safetensors(path: Path, tensors: Mapping[str, Stored]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + len(tensor.data)
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.writelines(tensor.data for tensor in tensors.values())


def write_weights(folder: Path, tensors: Iterable[tuple[str, Stored]], files: int) -> None:
    """Spreads `tensors` in their order over `files` files of about equal size, and writes the index."""
    pairs = list(tensors)
    total = sum(len(tensor.data) for _, tensor in pairs)
    parts: list[dict[str, Stored]] = [{} for _ in range(files)]
    written = 0
    for name, tensor in pairs:
        parts[min(files - 1, written * files // total)][name] = tensor
        written += len(tensor.data)
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05}-of-{files:05}.safetensors"
        write_safetensors(folder / file, part)
        weight_map |= dict.fromkeys(part, file)
    write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, made by `make` in a folder beside it and renamed when whole; makers may run at the same time."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        make(half)
        half.chmod(0o755)
        try:
            os.rename(half, folder)
        except OSError:
            if not folder.is_dir():  # else somebody was quicker, with the same content
                raise
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return folder
