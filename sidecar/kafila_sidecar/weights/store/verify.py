"""Whether bytes on disk are still what came over the network: disks, and those who clean them up, err."""

import logging
import zlib
from collections.abc import Mapping

from kafila_sidecar.weights.format.ranges import Ranges
from kafila_sidecar.weights.store.store import Store

log = logging.getLogger(__name__)

READ_BYTES = 4 << 20


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


def is_sound(store: Store, file: str, start: int, end: int) -> bool:
    """Whether these bytes are still as they came, as far as that is known. Reads whole spans as they came; blocks."""
    held = store.held(file)
    return held is not None and all(
        crc32_of(store, file, at, until) == crc32 for at, until, crc32 in held.sums if at < end and start < until
    )


def crc32_of(store: Store, file: str, start: int, end: int) -> int:
    crc32 = 0
    with store.path(file).open("rb", buffering=0) as source:
        source.seek(start)
        while start < end and (data := source.read(min(READ_BYTES, end - start))):
            crc32 = zlib.crc32(data, crc32)
            start += len(data)
    return crc32
