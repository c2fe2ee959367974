"""Whether bytes on disk are still what came over the network: disks, and those who clean them up, err."""

import logging
import zlib
from collections import deque
from collections.abc import Mapping

from kafila_sidecar.weights.format.ranges import Ranges
from kafila_sidecar.weights.store.journal import Summed
from kafila_sidecar.weights.store.store import Store

log = logging.getLogger(__name__)

READ_BYTES = 4 << 20
REMEMBERED = 8
"""Spans: as many as are given away side by side."""


def damaged(store: Store, wanted: Mapping[str, Ranges]) -> int:
    """Reads what is held of `wanted` (by file) and forgets what has changed; how many bytes that were.

    Reads whole spans as they came, so somewhat more than what is wanted. Blocks, for as long as reading takes; most of
    it is in memory afterwards for the loader.
    """
    lost_bytes = 0
    for file, ranges in wanted.items():
        held = store.held(file)
        for start, end, crc32 in [] if held is None else held.sums:
            if ranges.touches(start, end) and crc32_of(store, file, start, end) != crc32:
                log.warning("weights_damaged file=%s start=%d end=%d", file, start, end)
                store.lose(file, start, end)
                lost_bytes += end - start
    return lost_bytes


class Soundness:
    """Whether bytes that are to be given away are still as they came. Any thread may ask; it blocks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: deque[tuple[str, Summed]] = deque(maxlen=REMEMBERED)  # spans that were right a moment ago

    def holds(self, file: str, start: int, end: int) -> bool:
        """As far as that is known. Reads the spans in which these bytes came, unless it has just done so."""
        held = self._store.held(file)
        return held is not None and all(
            self._is_right(file, known) for known in held.sums if known.start < end and start < known.end
        )

    def _is_right(self, file: str, known: Summed) -> bool:
        if (file, known) in self._read:
            return True
        if crc32_of(self._store, file, known.start, known.end) != known.crc32:
            log.warning("weights_damaged file=%s start=%d end=%d", file, known.start, known.end)
            return False
        self._read.append((file, known))
        return True


def crc32_of(store: Store, file: str, start: int, end: int) -> int:
    crc32 = 0
    with store.path(file).open("rb", buffering=0) as source:
        source.seek(start)
        while start < end and (data := source.read(min(READ_BYTES, end - start))):
            crc32 = zlib.crc32(data, crc32)
            start += len(data)
    return crc32
