"""In which pieces weights go from member to member: at most 4 MiB of one tensor, the same for everybody. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kafila_sidecar.weights.format.manifest import Manifest, Tensor
from kafila_sidecar.weights.format.ranges import Ranges

UNIT_BYTES = 4 << 20


class Unit(NamedTuple):
    """Bytes `[start, end)` of a weight file, vouched for and checked as a whole."""

    file: str
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


def units_of(tensor: Tensor) -> Iterator[Unit]:
    """The tensor's units, in order."""
    for start in range(tensor.start, tensor.end, UNIT_BYTES):
        yield Unit(tensor.file, start, min(start + UNIT_BYTES, tensor.end))


def units_in(manifest: Manifest, wanted: Mapping[str, Ranges]) -> list[Unit]:
    """All units that some of the wanted bytes (by file) are in, in the order of the files."""
    return [
        unit
        for file, ranges in sorted(wanted.items())
        for tensor in manifest.files[file].tensors
        if ranges.touches(tensor.start, tensor.end)
        for unit in units_of(tensor)
        if ranges.touches(unit.start, unit.end)
    ]


def is_unit(manifest: Manifest, unit: Unit) -> bool:
    """Whether it is one of the checkpoint's."""
    layout = manifest.files.get(unit.file)
    if layout is None:
        return False
    at = bisect_right(layout.tensors, unit.start, key=lambda tensor: tensor.start) - 1
    return at >= 0 and unit in units_of(layout.tensors[at])
