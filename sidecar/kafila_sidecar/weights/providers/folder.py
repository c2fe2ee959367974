"""Checkpoints that are a folder on somebody's machine: read in place there, and laid down on others' disks."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kafila_sidecar.errors import NotFound, Refused
from kafila_sidecar.small_files import MORE_TEMPLATES, MOST_SMALL_BYTES, read_bytes, small_files_of
from kafila_sidecar.weights.format.description import FolderDescription, SmallFile, WeightHead, described, parse
from kafila_sidecar.weights.format.manifest import MAX_HEADER_BYTES, PREFIX_BYTES, header_span, parse_header
from kafila_sidecar.weights.providers.files import WEIGHT_FILE
from kafila_sidecar.weights.providers.source import (
    Source,
    WeightFile,
    put,
    read_config,
    weight_files,
)
from kafila_sidecar.weights.store.store import Store

SHELF = "folder"
"""Below it lies what came of others' folders: folder/NAME/REVISION."""
RECORD = "description.json"
MAX_TEXT_BYTES = 1 << 20
MAX_DESCRIBING_BYTES = 512 << 20
"""Of all small files and headers of one folder."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", re.ASCII)

Read = Callable[[int], bytes]
"""The next so many bytes. Raises KafilaError if they don't come."""


def folder_name(path: str) -> str:
    """What others are told of a folder's path: its last part, as far as that can be part of names and paths."""
    last = re.sub(r"[^A-Za-z0-9._-]", "-", Path(path).name).lstrip("._-")[:96]
    return last or "model"


def describe(folder: Path, names: Iterable[str]) -> FolderDescription:
    """Of a folder that lies here, with these weight files. Reads small files and headers; blocks."""
    found = small_files_in(folder)
    files = [SmallFile(name, len(content := read_bytes(folder.name, folder / name)), digest(content)) for name in found]
    weights = [head_of(folder / name) for name in names]
    return described(files, weights)


def small_files_in(folder: Path) -> list[str]:
    there = [path for path in (*folder.iterdir(), *(folder / MORE_TEMPLATES).glob("*")) if path.is_file()]
    return small_files_of(path.relative_to(folder).as_posix() for path in there)


def refuse_leading_out(model: str, folder: Path) -> None:
    """Raises Refused for a link to a file outside: members are sent what lies in a folder, whoever made it. From a
    snapshot of the Hub's library, links lead to its blobs."""
    place = folder.resolve()
    home = place.parent.parent if place.parent.name == "snapshots" else place
    for path in (*(folder / name for name in small_files_in(folder)), *folder.glob("*.safetensors")):
        if not path.resolve().is_relative_to(home):
            raise Refused(f"{path.name} in {model} is a link that leads out of that folder: put the file itself there")


def head_of(path: Path) -> WeightHead:
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(PREFIX_BYTES)
        span = header_span(path.name, prefix, size_bytes)
        header = prefix + file.read(span.end - span.start)
    return WeightHead(path.name, size_bytes, len(header), digest(header))


def read_description(text: bytes, revision: str) -> FolderDescription:
    """A description that another machine gave. Raises Refused unless it is that of the revision, and within bounds."""
    description = parse(text)
    if description.revision != revision:
        raise Refused("the session's host describes another folder than the session was made with: make it again")
    check_bounds(description)
    return description


def check_bounds(description: FolderDescription) -> None:
    names = [file.name for file in description.files] + [head.name for head in description.weights]
    is_proper = (
        len(set(names)) == len(names)
        and all(small_files_of([file.name]) and 0 <= file.size_bytes <= MOST_SMALL_BYTES for file in description.files)
        and all(
            WEIGHT_FILE.fullmatch(head.name)
            and PREFIX_BYTES < head.header_bytes <= PREFIX_BYTES + MAX_HEADER_BYTES
            and head.header_bytes <= head.size_bytes < 1 << 50
            for head in description.weights
        )
        and description.describing_bytes <= MAX_DESCRIBING_BYTES
    )
    if not is_proper:
        raise Refused("the session's host describes a folder with files that no checkpoint has, or too large ones")


def contents(description: FolderDescription, folder: Path, store: Store) -> Iterator[bytes]:
    """What `lay_down` reads, in its order: the text after its length, small files, headers. Blocks."""
    yield len(description.text).to_bytes(4, "big") + description.text
    for file in description.files:
        yield (folder / file.name).read_bytes()
    for head in description.weights:
        yield store.read(head.name, 0, head.header_bytes)


def take_description(read: Read, revision: str) -> FolderDescription:
    """The beginning of what `contents` gives. Raises Refused for what is none of this revision; blocks."""
    length = int.from_bytes(read(4), "big")
    if length > MAX_TEXT_BYTES:
        raise Refused(f"the session's host describes its folder in {length} bytes, which are too many")
    return read_description(read(length), revision)


def lay_down(description: FolderDescription, read: Read, folder: Path) -> None:
    """The rest, into `folder`. Each part is checked before it is kept; blocks."""
    for file in description.files:
        put(folder / file.name, proved(file.name, read(file.size_bytes), file.sha256))
    store = Store(folder)
    with store.writing():
        for head in description.weights:
            header = proved(head.name, read(head.header_bytes), head.sha256)
            parse_header(head.name, header[PREFIX_BYTES:], head.size_bytes)
            if not held_already(store, head):
                store.begin(head.name, head.size_bytes, None)
                writer = store.writer(head.name, 0)
                writer.write(header)
                writer.settle()
    put(folder / RECORD, description.text)


def held_already(store: Store, head: WeightHead) -> bool:
    held = store.held(head.name)
    return (
        held is not None
        and held.size_bytes == head.size_bytes
        and held.ranges.covers(0, head.header_bytes)
        and digest(store.read(head.name, 0, head.header_bytes)) == head.sha256
    )


def proved(name: str, content: bytes, sha256: str) -> bytes:
    if digest(content) != sha256:
        raise Refused(f"the session's host gave another {name} than it described: make the session again")
    return content


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# ---- Sources


def folder_source(model: str, revision: str | None = None) -> Source:
    """A folder that lies on this machine; its files are used in place. Raises NotFound, Refused; blocks."""
    folder = Path(model)
    if not os.path.isdir(model):  # unlike Path.is_dir, for names too that no folder can have
        raise NotFound(f"there is no folder {model[:200]} on this machine")
    refuse_leading_out(model, folder)
    config = read_config(model, folder)
    chosen = weight_files(model, folder, [path.name for path in folder.glob("*.safetensors") if path.is_file()])
    whole = {name: folder / name for name in chosen.names}
    description = describe(folder, chosen.names)
    if revision not in (None, description.revision):
        raise Refused(f"{model} on this machine is not the one of the session")
    files = tuple(WeightFile(name, path.stat().st_size) for name, path in whole.items())
    return Source(
        model, description.revision, config, folder, 0, folder, files, whole, True, description, chosen.tensors
    )


def shelf(cache: Path, name: str, revision: str) -> Path:
    """Where what came of another machine's folder lies. Raises Refused for what can't be part of a path."""
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise Refused(f"the session's model has the revision {revision[:80]!r}, which is none of a folder")
    return cache / SHELF / named(name) / revision


def named(name: str) -> str:
    """The name of another machine's folder. Raises Refused for what can't be part of a path."""
    if not NAME.fullmatch(name):
        raise Refused(f"the session's model is called {name[:80]!r}, which is no name of a folder")
    return name


def described_source(cache: Path, name: str, revision: str) -> Source | None:
    """A folder of another machine as far as it came here; None if it was not described here yet. Blocks."""
    folder = shelf(cache, name, revision)
    try:
        description = read_description((folder / RECORD).read_bytes(), revision)
    except (FileNotFoundError, Refused):
        return None
    config = read_config(name, folder)
    chosen = weight_files(name, folder, [head.name for head in description.weights])
    files = tuple(WeightFile(head.name, head.size_bytes) for head in description.weights)
    return Source(
        name, revision, config, folder, 0, folder, files, description=description, tensor_files=chosen.tensors
    )
