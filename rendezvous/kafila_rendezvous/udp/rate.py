"""How many bytes a second pass: a bucket for one sender, and one for each network that many share. No clock."""

from collections import OrderedDict

from kafila_rendezvous.address import SHARES, networks
from kafila_rendezvous.holdings import Holdings

BURST_S = 0.5  # of a rate that may pass at once


class Bucket:
    """Full at first; `takes` counts what passes."""

    __slots__ = ("_bytes_per_s", "_counted_at", "_left")

    def __init__(self, bytes_per_s: float, now: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._left = bytes_per_s * BURST_S
        self._counted_at = now

    def has(self, size: int, now: float) -> bool:
        self._left = min(self._bytes_per_s * BURST_S, self._left + (now - self._counted_at) * self._bytes_per_s)
        self._counted_at = now
        return size <= self._left

    def take(self, size: int) -> None:
        self._left -= size


class SharedBuckets:
    """One for each network in which somebody holds an end: `bytes_per_s` for an address, `SHARES` times as much for the
    networks that it lies in. One that nobody draws on any more is kept until it is full by itself."""

    def __init__(self, bytes_per_s: float, holders: Holdings) -> None:
        self._bytes_per_s = bytes_per_s
        self._holders = holders
        self._buckets: dict[str, Bucket] = {}
        self._left_at: OrderedDict[str, float] = OrderedDict()  # by networks in which nobody holds one, oldest first

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, owner: str, now: float) -> tuple[Bucket, ...]:
        """Those that `owner`, as `limited` names it, draws on."""
        self._forget_full(now)
        for network, share in zip(networks(owner), SHARES, strict=False):
            self._left_at.pop(network, None)
            if network not in self._buckets:
                self._buckets[network] = Bucket(self._bytes_per_s * share, now)
        return tuple(self._buckets[network] for network in networks(owner))

    def left(self, owner: str, now: float) -> None:
        """`owner` holds one end less."""
        self._forget_full(now)
        for network in networks(owner):
            if not self._holders.of(network):
                self._left_at.setdefault(network, now)

    def _forget_full(self, now: float) -> None:
        while self._left_at and now - next(iter(self._left_at.values())) >= BURST_S:
            network, _ = self._left_at.popitem(last=False)
            del self._buckets[network]
