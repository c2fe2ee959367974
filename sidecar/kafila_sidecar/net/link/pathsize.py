"""How large a datagram the path in use carries (RFC 8899), without I/O: larger ones cost fewer packets.

Two sizes are tried by padded checks that may not be fragmented. The first check of each interval is padded to the size
in use, so that a path which stops carrying it is noticed while small checks still pass.
"""

from collections.abc import Sequence

SAFE_BYTES = 1200  # RFC 9000 section 14: what every path must carry
PROBED_BYTES = (8900, 1452)  # jumbo frames and loopback; Ethernet's 1500 less IPv6 and UDP headers
ROUNDS = 3
ROUND_S = 0.2
MISSES = 2  # padded checks in a row that got no answer where a small one did


class PathSize:
    """Of one path; a new path starts a new one. `sizes` is what to try, nothing where fragments can't be forbidden."""

    def __init__(self, sizes: Sequence[int], now: float) -> None:
        self.size_bytes = SAFE_BYTES
        self._sizes = sizes
        self._due: float | None = now if sizes else None
        self._rounds = 0
        self._open: dict[bytes, int] = {}
        self._misses = 0

    def next_timer(self) -> float | None:
        return self._due

    def handle_timer(self, now: float) -> list[int]:
        """The sizes to send probes of now; tell `sent` of each."""
        if self._due is None or now < self._due:
            return []
        wanted = [size for size in self._sizes if size > self.size_bytes]
        self._rounds += 1
        self._due = now + ROUND_S if wanted and self._rounds < ROUNDS else None
        return wanted

    def sent(self, transaction: bytes, size_bytes: int) -> None:
        self._open[transaction] = size_bytes

    def awaits(self, transaction: bytes) -> bool:
        return transaction in self._open

    def answered(self, transaction: bytes) -> None:
        """A probe came through."""
        self.size_bytes = max(self.size_bytes, self._open.pop(transaction))

    def kept(self, *, padded: bool) -> None:
        """A check of the path was answered: the padded one, or a small one after it."""
        self._misses = 0 if padded else self._misses + 1
        if self._misses >= MISSES:
            self.size_bytes = SAFE_BYTES
