"""How quickly weights come to this machine, and into its memory: measured when enough of them did."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol, TypeVar

LEAST_BYTES = 4 << 20
"""Less says more of delays than of rates."""
DIGITS = 2  # what is told: small changes are no news


class HasWeights(Protocol):
    """A part of a model in memory; `runtime.shard.shard.Shard`."""

    @property
    def weight_bytes(self) -> int: ...


S = TypeVar("S", bound=HasWeights)


class Rates:
    """Of one session on this machine, in bytes per second; None before anything was measured."""

    def __init__(self) -> None:
        self.fetch_bytes_per_s: float | None = None
        self.load_bytes_per_s: float | None = None

    @contextmanager
    def fetching(self, missing_bytes: Callable[[], int]) -> Iterator[None]:
        """What comes meanwhile. `missing_bytes`: of what is fetched, now."""
        clock, before_bytes = asyncio.get_running_loop().time, missing_bytes()
        began_s = clock()
        try:
            yield
        finally:
            rate = _rate(before_bytes - missing_bytes(), clock() - began_s)
            self.fetch_bytes_per_s = rate or self.fetch_bytes_per_s

    def loading(self, load: Callable[..., S]) -> Callable[..., S]:
        """The same way to load a shard, measured where all of it comes anew. On the MLX thread."""

        def measured(*, before: S | None, **others: object) -> S:
            began_s = monotonic()
            shard = load(before=before, **others)
            if before is None:
                rate = _rate(shard.weight_bytes, monotonic() - began_s)
                self.load_bytes_per_s = rate or self.load_bytes_per_s
            return shard

        return measured


def _rate(count_bytes: int, took_s: float) -> float | None:
    if count_bytes < LEAST_BYTES or took_s <= 0:
        return None
    return float(f"{count_bytes / took_s:.{DIGITS - 1}e}")
