"""Weights on disk: each file in the checkpoint's own layout, with holes, and a journal of the bytes that are there.

A folder holds one revision. A file with holes is named `.partial` and has its full length, so that the offsets in its
header hold; holes read as zeros, which would be silently wrong numbers, so only what the journal lists may be loaded.
"""

import fcntl
import hashlib
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kafila_sidecar.errors import Refused
from kafila_sidecar.weights.format.manifest import Tensor
from kafila_sidecar.weights.format.ranges import Ranges
from kafila_sidecar.weights.store import journal
from kafila_sidecar.weights.store.journal import HeldRanges, Summed, room_on_disk

JOURNAL = "journal.jsonl"
LOCK = "lock"
PARTIAL = ".partial"
SETTLE_BYTES = 8 << 20
"""After as many a span counts as far as it came: all that a crash loses, and all that one bad byte costs."""


class StoreBusy(Refused):
    """Another process is writing to the folder."""


class Store:
    """The weight files of one revision in `folder`; those in `whole` are complete elsewhere and used in place.

    Reading needs no lock between processes; writing is for one process at a time (`writing`). Any thread may call.
    """

    def __init__(self, folder: Path, *, whole: Mapping[str, Path] | None = None) -> None:
        self.folder = folder
        self._whole = dict(whole or {})
        self._lock = threading.Lock()
        self._held: dict[str, HeldRanges] = {}
        self.reload()

    def reload(self) -> None:
        """Reads the journal again: what a process before us has fetched."""
        held = journal.replay(self.folder / JOURNAL)
        found = {file: entry for file, entry in held.items() if self._lies_there(file, entry)}
        with self._lock:
            self._held = found | {file: complete(path) for file, path in self._whole.items()}

    def _lies_there(self, file: str, entry: HeldRanges) -> bool:
        path = self.path(file)
        return path.is_file() and path.stat().st_size == entry.size_bytes

    def path(self, file: str) -> Path:
        if file in self._whole:
            return self._whole[file]
        final = self.folder / file
        return final if final.is_file() else self._partial(file)

    def _partial(self, file: str) -> Path:
        return self.folder / (file + PARTIAL)

    def held(self, file: str) -> HeldRanges | None:
        """What is here of a file, as of now; None if nothing."""
        with self._lock:
            held = self._held.get(file)
            return None if held is None else held.copy()

    def missing(self, wanted: Mapping[str, Ranges]) -> dict[str, Ranges]:
        """The part of `wanted` (by file) that is not here."""
        gaps = {}
        for file, ranges in wanted.items():
            held = self.held(file)
            gap = ranges if held is None else ranges.minus(held.ranges)
            if len(gap):
                gaps[file] = gap
        return gaps

    def holds(self, tensors: Iterable[Tensor]) -> bool:
        with self._lock:
            return all(self._holds(tensor) for tensor in tensors)

    def _holds(self, tensor: Tensor) -> bool:
        held = self._held.get(tensor.file)
        return held is not None and held.ranges.covers(tensor.start, tensor.end)

    def files_for(self, tensors: Iterable[Tensor]) -> dict[Path, frozenset[str]]:
        """Which tensors to load from which file. Raises Refused for a tensor that the journal lacks."""
        names: dict[Path, set[str]] = {}
        for tensor in tensors:
            if not self.holds([tensor]):
                raise Refused(f"{tensor.name} has not been fetched to {self.folder}: fetch it before loading")
            names.setdefault(self.path(tensor.file), set()).add(tensor.name)
        return {path: frozenset(names[path]) for path in sorted(names)}

    def read(self, file: str, start: int, end: int) -> bytes:
        """Bytes of a file as they lie there, holes or not."""
        with self.path(file).open("rb") as source:
            source.seek(start)
            return source.read(end - start)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keeps the folder for this process; on entry the journal is mended and read. Raises Busy if another has it."""
        with room_on_disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / LOCK).open("a")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreBusy(f"another Kafila process is fetching to {self.folder}: wait until it is done") from None
            journal.mend(self.folder / JOURNAL)
            self.reload()
            yield

    def begin(self, file: str, size_bytes: int, etag: str | None) -> None:
        """Starts a file as `size_bytes` of holes; what was held of it is forgotten, before it is gone."""
        journal.append(self.folder / JOURNAL, {"file": file, "size": size_bytes, "etag": etag})
        (self.folder / file).unlink(missing_ok=True)
        with room_on_disk(self.folder), self._partial(file).open("wb") as target:
            target.truncate(size_bytes)
        with self._lock:
            self._held[file] = HeldRanges(size_bytes, etag)

    def writer(self, file: str, at: int) -> "SpanWriter":
        """Takes the bytes of a file that was begun, from `at` on."""
        return SpanWriter(self, file, at)

    def pwrite(self, file: str, at: int, data: bytes) -> None:
        """Writes bytes that count from `note` on. Raises Refused on a full disk."""
        with room_on_disk(self.folder), self.path(file).open("r+b", buffering=0) as target:
            while data:
                written = os.pwrite(target.fileno(), data, at)
                at, data = at + written, data[written:]

    def note(self, file: str, known: Summed) -> None:
        """These bytes have been written, and came with this sum: makes that last."""
        with room_on_disk(self.folder), self.path(file).open("rb") as target:
            os.fsync(target.fileno())
        start, end, crc32 = known
        with self._lock:
            journal.append(self.folder / JOURNAL, {"file": file, "held": [start, end], "crc32": crc32})
            self._held[file].add(start, end, crc32)

    def lose(self, file: str, start: int, end: int) -> None:
        """Bytes that are not what they were: they will be missing again. Not for files that lie elsewhere."""
        final = self.folder / file
        with self._lock:
            journal.append(self.folder / JOURNAL, {"file": file, "lost": [start, end]})
            self._held[file].lose(start, end)
            if final.is_file():
                final.rename(self._partial(file))

    def finish(self, file: str, sha256: str | None) -> None:
        """Gives a file that has become whole its own name, if its digest (where known) is right.

        Otherwise raises Refused, and the file is forgotten.
        """
        path = self._partial(file)
        if not self.is_unnamed(file):
            return
        if self.differs(file, sha256):
            self.forget(file)
            raise Refused(f"{file} is damaged: its SHA-256 is not what the model host announced; fetch it again")
        path.rename(self.folder / file)

    def is_unnamed(self, file: str) -> bool:
        """Whether a file is whole, and has not got its own name yet."""
        held = self.held(file)
        return file not in self._whole and held is not None and held.is_whole and self._partial(file).is_file()

    def differs(self, file: str, sha256: str | None) -> bool:
        """Whether such a file is another one than announced."""
        return sha256 is not None and digest_of(self._partial(file)) != sha256

    def forget(self, file: str) -> None:
        self._partial(file).unlink(missing_ok=True)
        with self._lock:
            self._held.pop(file, None)


class SpanWriter:
    """Bytes of one file in their order. One thread at a time."""

    def __init__(self, store: Store, file: str, at: int) -> None:
        self._store = store
        self._file = file
        self._noted = self._at = at
        self._crc32 = 0

    def write(self, data: bytes) -> None:
        """Raises Refused on a full disk."""
        self._store.pwrite(self._file, self._at, data)
        self._at += len(data)
        self._crc32 = zlib.crc32(data, self._crc32)
        if self._at - self._noted >= SETTLE_BYTES:
            self.settle()

    def settle(self) -> None:
        """What was written since the last time counts, also after a crash."""
        if self._at > self._noted:
            self._store.note(self._file, Summed(self._noted, self._at, self._crc32))
        self._noted, self._crc32 = self._at, 0


def complete(path: Path) -> HeldRanges:
    held = HeldRanges(path.stat().st_size, None)
    held.ranges.add(0, held.size_bytes)
    return held


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
