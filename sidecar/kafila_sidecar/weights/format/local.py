"""Weight files that lie here, whole or with holes, opened with the format's own library before they are relied on."""

from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError, safe_open

from kafila_sidecar.errors import Refused
from kafila_sidecar.weights.format.manifest import MAX_HEADER_BYTES, PREFIX_BYTES, HostileHeader, Tensor


def check_file(path: Path, tensors: Iterable[Tensor]) -> None:
    """That the file is as its header was when the checkpoint was opened, as far as these tensors go.

    Raises HostileHeader for a file that the library refuses, Refused for one that was changed since, both by name.
    """
    try:
        _read_header(path)
        with safe_open(path, framework="numpy") as file:
            there = set(file.keys())
            for tensor in tensors:
                found = file.get_slice(tensor.name) if tensor.name in there else None
                if found is None or (found.get_dtype(), tuple(found.get_shape())) != (tensor.dtype, tensor.shape):
                    raise Refused(f"{path} was changed since this model was opened ({tensor.name}): start again")
    except (SafetensorError, OSError) as error:
        raise HostileHeader(f"{path} is no safetensors file any more: {error}") from None


def _read_header(path: Path) -> None:
    """So that what opens the file next, here or to load it, finds this in memory: libraries that open files keep all
    threads of this process waiting meanwhile, for ever where the disk does not answer. This keeps only its own."""
    with path.open("rb") as file:
        file.read(min(int.from_bytes(file.read(PREFIX_BYTES), "little"), MAX_HEADER_BYTES))
