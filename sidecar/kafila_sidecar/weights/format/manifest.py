"""What a checkpoint's safetensors files contain, read from their headers alone. Pure.

A file is: the length of the header (8 bytes, little-endian), the header (JSON), the tensors' bytes without a hole.
Headers come from strangers: each claim is checked against the file's length before anybody relies on it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from kafila_sidecar.errors import Refused
from kafila_sidecar.weights.format.ranges import Span

PREFIX_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors reference implementation."""
MAX_NAME_LENGTH = 1024
DTYPE_BITS = {
    **{"F64": 64, "I64": 64, "U64": 64, "C64": 64},
    **{"F32": 32, "I32": 32, "U32": 32},
    **{"F16": 16, "BF16": 16, "I16": 16, "U16": 16},
    **{"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8},
}


class HostileHeader(Refused):
    """A safetensors header that contradicts itself or its file."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor; `[start, end)` are its bytes in the file `file`."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class FileLayout:
    """One weight file: its length, where its header ends, and what follows."""

    name: str
    size_bytes: int
    header_bytes: int
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """All tensors of a checkpoint by name, and its files by name."""

    files: Mapping[str, FileLayout]
    tensors: Mapping[str, Tensor]

    @property
    def header_bytes(self) -> int:
        return sum(file.header_bytes for file in self.files.values())

    @property
    def tensor_bytes(self) -> int:
        return sum(tensor.size_bytes for tensor in self.tensors.values())


def header_span(file: str, prefix: bytes, size_bytes: int) -> Span:
    """Where the header's JSON lies in a file of `size_bytes` whose first 8 bytes are `prefix`."""
    length = int.from_bytes(prefix, "little")
    if len(prefix) != PREFIX_BYTES or not 2 <= length <= min(MAX_HEADER_BYTES, size_bytes - PREFIX_BYTES):
        raise HostileHeader(f"{file} is no safetensors file: it has {size_bytes} bytes and claims a header of {length}")
    return Span(PREFIX_BYTES, PREFIX_BYTES + length)


def parse_header(file: str, text: bytes, size_bytes: int) -> FileLayout:
    """The layout of `file`, whose header's JSON is `text`.

    Raises HostileHeader, naming file and tensor, unless the tensors fill the rest of the file exactly, in some order.
    """
    header_end = PREFIX_BYTES + len(text)
    entries = decoded(file, text)
    entries.pop("__metadata__", None)
    tensors = sorted((tensor_of(file, name, entry, header_end) for name, entry in entries.items()), key=by_place)
    at = header_end
    for tensor in tensors:
        if tensor.start != at:
            raise HostileHeader(f"{file}: {tensor.name} starts at byte {tensor.start}, where {at} was due")
        at = tensor.end
    if at != size_bytes:
        raise HostileHeader(f"{file} has {size_bytes} bytes, but its tensors end at {at}")
    return FileLayout(file, size_bytes, header_end, tuple(tensors))


def by_place(tensor: Tensor) -> tuple[int, int]:
    return tensor.start, tensor.end


def decoded(file: str, text: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("a name stands twice")
        return dict(pairs)

    try:
        entries = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise HostileHeader(f"{file} has an unreadable header: {error}") from None
    if not isinstance(entries, dict):
        raise HostileHeader(f"{file} has an unreadable header: not a JSON object")
    return entries


def tensor_of(file: str, name: str, entry: Any, header_end: int) -> Tensor:
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, end], **rest} if not rest:
            pass
        case _:
            raise HostileHeader(f"{file}: {name[:80]!r} is not described as a tensor")
    if not name or len(name) > MAX_NAME_LENGTH or dtype not in DTYPE_BITS:
        raise HostileHeader(f"{file}: {name[:80]!r} has the unknown type {dtype[:20]!r}, or no proper name")
    if not all(is_count(number) for number in [*shape, start, end]):
        raise HostileHeader(f"{file}: {name[:80]!r} has a shape or place that is not made of natural numbers")
    if end - start != prod(shape) * DTYPE_BITS[dtype] // 8:
        raise HostileHeader(f"{file}: {name[:80]!r} takes {end - start} bytes, which its shape contradicts")
    return Tensor(name, file, dtype, tuple(shape), header_end + start, header_end + end)


def is_count(number: Any) -> bool:
    return type(number) is int and 0 <= number < 1 << 63


def make_manifest(files: Iterable[FileLayout], tensor_files: Mapping[str, str] | None = None) -> Manifest:
    """All tensors of `files`. `tensor_files`, an index's word, decides which of two tensors of one name counts.

    Raises HostileHeader if two files hold a tensor of the same name and nothing decides.
    """
    by_name = {file.name: file for file in files}
    tensors: dict[str, Tensor] = {}
    for tensor in (tensor for file in by_name.values() for tensor in file.tensors):
        decided = (tensor_files or {}).get(tensor.name)
        if decided in by_name and decided != tensor.file:
            continue
        if tensor.name in tensors:
            raise HostileHeader(f"{tensor.name} is in both {tensors[tensor.name].file} and {tensor.file}")
        tensors[tensor.name] = tensor
    return Manifest(by_name, tensors)
