"""The journal of a store: which bytes of which file are on disk. Lines of JSON, appended after those bytes are safe.

{"file": "model.safetensors", "size": 4096, "etag": "\\"5d41…\\""}     the file begins anew
{"file": "model.safetensors", "held": [0, 1024], "crc32": 907060870}     these bytes are on disk, and came with this sum
{"file": "model.safetensors", "lost": [0, 1024]}                         they are not what they were
"""

import errno
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kafila_sidecar.errors import Refused
from kafila_sidecar.weights.format.ranges import Ranges, Span

log = logging.getLogger(__name__)


class Summed(NamedTuple):
    """Bytes `[start, end)` of a file with their CRC-32 as they came over the network."""

    start: int
    end: int
    crc32: int


@dataclass(slots=True)
class HeldRanges:
    """What is known of one file: length, the host's tag for its content, the bytes that are here.

    `sums` may leave bytes out: files that somebody else wrote, and journals of older versions, have none.
    """

    size_bytes: int
    etag: str | None
    ranges: Ranges = field(default_factory=Ranges)
    sums: list[Summed] = field(default_factory=list)

    def add(self, start: int, end: int, crc32: int | None) -> None:
        """These bytes are on disk; what was known of any of them is out of date."""
        self.lose(start, end)
        self.ranges.add(start, end)
        if crc32 is not None:
            self.sums.append(Summed(start, end, crc32))

    def lose(self, start: int, end: int) -> None:
        """These bytes don't count any more, nor do sums that any of them went into."""
        self.ranges = self.ranges.minus(Ranges([Span(start, end)]))
        self.sums = [known for known in self.sums if known.end <= start or known.start >= end]

    @property
    def is_whole(self) -> bool:
        return self.ranges.covers(0, self.size_bytes)

    def copy(self) -> "HeldRanges":
        return HeldRanges(self.size_bytes, self.etag, Ranges(list(self.ranges)), list(self.sums))


def replay(journal: Path) -> dict[str, HeldRanges]:
    """What a journal says is held, up to its first line that is torn or makes no sense."""
    held: dict[str, HeldRanges] = {}
    try:
        lines = journal.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return held
    except OSError as error:
        raise Refused(f"{journal} can't be read: {error.strerror}") from None
    for line in lines:
        match parsed(line):
            case {"file": str(file), "size": int(size), "etag": str() | None as etag}:
                held[file] = HeldRanges(size, etag)
            case {"file": str(file), "held": [int(start), int(end)], **rest} if file in held and start < end:
                crc32 = rest.get("crc32")
                held[file].add(start, end, crc32 if isinstance(crc32, int) else None)
            case {"file": str(file), "lost": [int(start), int(end)]} if file in held and start < end:
                held[file].lose(start, end)
            case _:
                log.warning("journal_torn path=%s", journal)
                break
    return held


def parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def mend(journal: Path) -> None:
    """Rewrites a journal as its shortest equal, without the torn line that a crash may have left."""
    lines = []
    for file, held in replay(journal).items():
        lines.append({"file": file, "size": held.size_bytes, "etag": held.etag})
        lines += [{"file": file, "held": [start, end], "crc32": crc32} for start, end, crc32 in held.sums]
        unsummed = held.ranges.minus(Ranges.of(Span(known.start, known.end) for known in held.sums))
        lines += [{"file": file, "held": list(span)} for span in unsummed]
    fresh = journal.with_suffix(".new")
    with room_on_disk(fresh), fresh.open("wb") as target:
        target.writelines(map(encoded, lines))
        target.flush()
        os.fsync(target.fileno())
    fresh.replace(journal)


def append(journal: Path, line: dict[str, Any]) -> None:
    with room_on_disk(journal), journal.open("ab", buffering=0) as target:
        target.write(encoded(line))
        os.fsync(target.fileno())


def encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


@contextmanager
def room_on_disk(path: Path) -> Iterator[None]:
    """Turns what the system says of a full or forbidden disk into Refused."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Refused(f"the disk is full at {path}: make room there; what was fetched is kept") from None
        raise Refused(f"{path} can't be written: {error.strerror}") from None
