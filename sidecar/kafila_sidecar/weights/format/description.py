"""What a folder with a checkpoint consists of, told so that others can have it. Pure.

A description lists small files and the headers of weight files with their sizes and digests. Its own digest is the
folder's revision, so whoever knows that can check everything that it is given.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafila_sidecar.errors import Refused

REVISION_LENGTH = 40  # of a hexadecimal digest: that of a commit


class SmallFile(NamedTuple):
    """`sha256` in hexadecimal."""

    name: str
    size_bytes: int
    sha256: str


class WeightHead(NamedTuple):
    """A weight file of `size_bytes` and its first `header_bytes`, whose digest is `sha256`."""

    name: str
    size_bytes: int
    header_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class FolderDescription:
    """`text` is what is digested, and where the rest was read from."""

    text: bytes
    files: tuple[SmallFile, ...]
    weights: tuple[WeightHead, ...]

    @property
    def revision(self) -> str:
        return hashlib.sha256(self.text).hexdigest()[:REVISION_LENGTH]

    @property
    def describing_bytes(self) -> int:
        """What a machine that has nothing of the folder is sent before it can plan."""
        return (
            len(self.text)
            + sum(file.size_bytes for file in self.files)
            + sum(head.header_bytes for head in self.weights)
        )


def described(files: Sequence[SmallFile], weights: Sequence[WeightHead]) -> FolderDescription:
    """The description that lists these."""
    text = json.dumps({"files": files, "weights": weights}, separators=(",", ":")).encode()
    return FolderDescription(text, tuple(files), tuple(weights))
    return FolderDescription(text, tuple(files), tuple(weights))


def parse(text: bytes) -> FolderDescription:
    """Raises Refused for what is no description."""
    try:
        told = json.loads(text)
        return FolderDescription(
            text,
            tuple(SmallFile(*checked(entry, (str, int, str))) for entry in told["files"]),
            tuple(WeightHead(*checked(entry, (str, int, int, str))) for entry in told["weights"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Refused("the session's host describes its folder in a way that can't be read: use its version") from None


def checked(entry: Any, types: tuple[type, ...]) -> list[Any]:
    if not isinstance(entry, list) or [type(value) for value in entry] != list(types):
        raise ValueError("another entry than was due")
    return entry
