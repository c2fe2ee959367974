"""How often something was done in the present minute."""

from collections import Counter
from collections.abc import Hashable

from kafila_rendezvous.address import SHARES, networks
from kafila_rendezvous.errors import LimitReached

WINDOW_S = 60.0
LARGEST_TABLE = 100_000  # keys in one minute; more are refused, so that the table stays bounded


class Meter:
    """Counts by key in windows of one minute; the whole table is dropped when a new window starts.

    A key that is text is an address as `limited` names it, and its wider networks are counted with it.
    """

    def __init__(self, limit: int, what: str) -> None:
        self._limit = limit
        self._what = what
        self._window_end = float("-inf")
        self._counts: Counter[Hashable] = Counter()

    def count(self, key: Hashable, now: float) -> None:
        """Raises LimitReached when the key has used up its minute."""
        if now >= self._window_end:
            self._counts.clear()
            self._window_end = now + WINDOW_S
        keys = networks(key) if isinstance(key, str) else (key,)
        full = len(self._counts) >= LARGEST_TABLE and key not in self._counts
        if full or any(self._counts[one] >= self._limit * share for one, share in zip(keys, SHARES, strict=False)):
            raise LimitReached(f"more than {self._limit} {self._what} in a minute: wait a minute and try again")
        self._counts.update(keys)
