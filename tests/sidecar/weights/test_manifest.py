import json
from pathlib import Path
from typing import Any

import pytest

from kafila_sidecar.weights.format.manifest import (
    FileLayout,
    HostileHeader,
    header_span,
    make_manifest,
    parse_header,
)
from tests.support.checkpoint import Stored, write_safetensors

FILE = "model.safetensors"
MATRIX = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def parsed(header: Any, data_bytes: int = 16) -> FileLayout:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return parse_header(FILE, text, 8 + len(text) + data_bytes)


def test_layout_of_a_written_file_finds_each_tensors_bytes(tmp_path: Path) -> None:
    tensors = {
        "a": Stored("F32", (2,), b"12345678"),
        "empty": Stored("BF16", (0, 4), b""),
        "b": Stored("U8", (3,), b"xyz"),
    }
    write_safetensors(tmp_path / FILE, tensors)
    content = (tmp_path / FILE).read_bytes()
    span = header_span(FILE, content[:8], len(content))
    layout = parse_header(FILE, content[span.start : span.end], len(content))
    assert layout.header_bytes == span.end
    assert {t.name: Stored(t.dtype, t.shape, content[t.start : t.end]) for t in layout.tensors} == tensors


@pytest.mark.parametrize("length", [0, 1, 93, 1 << 32, (1 << 64) - 1])
def test_header_that_does_not_fit_its_file_is_refused_by_name(length: int) -> None:
    with pytest.raises(HostileHeader, match=rf"{FILE} is no safetensors file: it has 100 bytes"):
        header_span(FILE, length.to_bytes(8, "little"), 100)


def test_file_too_short_for_a_header_is_refused() -> None:
    with pytest.raises(HostileHeader):
        header_span(FILE, b"abc", 3)


HOSTILE: dict[str, Any] = {
    "not json": b"{",
    "not an object": [],
    "deep": b"[" * 100_000,
    "name twice": b'{"a": {"dtype": "U8", "shape": [16], "data_offsets": [0, 16]}, "a": 1}',
    "not a tensor": {"a": 7},
    "unknown key": {"a": {**MATRIX, "code": "x"}},
    "unknown dtype": {"a": {**MATRIX, "dtype": "F99"}},
    "empty name": {"": MATRIX},
    "endless name": {"a" * 2000: MATRIX},
    "negative shape": {"a": {**MATRIX, "shape": [-2, -2]}},
    "shape of booleans": {"a": {**MATRIX, "shape": [True, 4]}},
    "fractional place": {"a": {**MATRIX, "data_offsets": [0, 16.0]}},
    "backwards": {"a": {**MATRIX, "data_offsets": [16, 0]}},
    "shape contradicts place": {"a": {**MATRIX, "shape": [2, 3]}},
    "shape overflows": {"a": {**MATRIX, "shape": [1 << 62, 1 << 62]}},
    "past the end": {"a": {**MATRIX, "data_offsets": [16, 32]}},
    "overlap": {"a": MATRIX, "b": MATRIX},
    "hole": {"a": {"dtype": "U8", "shape": [4], "data_offsets": [12, 16]}},
    "bytes left over": {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_header_that_contradicts_itself_is_refused_by_name(name: str) -> None:
    with pytest.raises(HostileHeader, match=FILE):
        parsed(HOSTILE[name])


def test_tensor_in_two_files_is_refused() -> None:
    layout = parsed({"a": MATRIX})
    again = parse_header("other.safetensors", json.dumps({"a": MATRIX}).encode(), layout.size_bytes)
    with pytest.raises(HostileHeader, match=r"a is in both model\.safetensors and other\.safetensors"):
        make_manifest([layout, again])
