"""How much each member may have asked of the head at once, so that none takes what others need. Pure.

A request counts from before its prompt is looked at until its caller has the whole answer, or is gone.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from kafila_sidecar.errors import Exhausted
from kafila_sidecar.serving.intake.limits import MOST_REQUEST_BYTES

MOST_WAITING_OF_ONE = 64  # beside as many as a session runs at once
MOST_BYTES_OF_ONE = 2 * MOST_REQUEST_BYTES
MOST_BYTES = 16 * MOST_REQUEST_BYTES
SMALL_BYTES = 64 << 10
"""Who has no more than that here is never refused for what others have."""


class HeadShares:
    """What stands here of each member."""

    def __init__(self) -> None:
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    @contextmanager
    def held(self, member: str, size_bytes: int, *, concurrency: int) -> Iterator[None]:
        """While a request of this size is answered; `concurrency`: how many the session runs at once.

        Raises: Exhausted when it is more than the member's share, or than there is room for.
        """
        self._refuse_too_many(member, concurrency + MOST_WAITING_OF_ONE)
        self._refuse_too_large(member, size_bytes)
        self._add(member, 1, size_bytes)
        try:
            yield
        finally:
            self._add(member, -1, -size_bytes)

    def _refuse_too_many(self, member: str, most: int) -> None:
        if self._requests[member] >= most:
            raise Exhausted(f"{self._requests[member]} requests of {member} run or wait already: try again later")

    def _refuse_too_large(self, member: str, size_bytes: int) -> None:
        own = self._bytes[member] + size_bytes
        if own > MOST_BYTES_OF_ONE:
            most = f"{MOST_BYTES_OF_ONE / 1e6:.1f} MB"
            raise Exhausted(f"prompts of {member} with {own / 1e6:.1f} MB would wait, over {most}: try again later")
        if own > SMALL_BYTES and self._bytes.total() + size_bytes > MOST_BYTES:
            raise Exhausted(f"prompts with {self._bytes.total() / 1e6:.1f} MB wait already: try again later")

    def _add(self, member: str, requests: int, size_bytes: int) -> None:
        self._requests[member] += requests
        self._bytes[member] += size_bytes
        if not self._requests[member]:
            del self._requests[member], self._bytes[member]
