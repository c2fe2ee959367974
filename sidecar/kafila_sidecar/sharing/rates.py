"""How quickly weights come to this machine, and into its memory: measured when enough of them did."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, TypeVar

log = logging.getLogger(__name__)

LEAST_BYTES = 4 << 20
"""Less says more of delays than of rates."""
MOST_BYTES_PER_S = 1e18
"""More was never measured: the file is damaged."""
DIGITS = 2  # what is told: small changes are no news


class HasWeights(Protocol):
    """A part of a model in memory; `runtime.shard.shard.Shard`."""

    @property
    def weight_bytes(self) -> int: ...


S = TypeVar("S", bound=HasWeights)


class Rates:
    """Of one checkpoint in one form on this machine, in bytes per second; None before anything was measured. They are
    kept in a file, so that a machine that was started again still knows them."""

    def __init__(self, file: Path, *, came: Callable[[int], None] = lambda fetched_bytes: None) -> None:
        """`came` hears of the bytes of every fetch."""
        self._file = file
        self._came = came
        self._kept = kept = _read(file)
        self.fetch_bytes_per_s = _rate_in(kept, "fetch_bytes_per_s")
        self.load_bytes_per_s = _rate_in(kept, "load_bytes_per_s")

    @contextmanager
    def fetching(self, missing_bytes: Callable[[], int]) -> Iterator[None]:
        """What comes meanwhile. `missing_bytes`: of what is fetched, now."""
        clock, before_bytes = asyncio.get_running_loop().time, missing_bytes()
        began_s = clock()
        try:
            yield
        finally:
            fetched_bytes = before_bytes - missing_bytes()
            self._came(max(0, fetched_bytes))
            rate = _rate(fetched_bytes, clock() - began_s)
            self.fetch_bytes_per_s = rate or self.fetch_bytes_per_s
            self._keep()

    def loading(self, load: Callable[..., S]) -> Callable[..., S]:
        """The same way to load a shard, measured where all of it comes anew. On the MLX thread."""

        def measured(*, before: S | None, **others: object) -> S:
            began_s = monotonic()
            shard = load(before=before, **others)
            if before is None:
                rate = _rate(shard.weight_bytes, monotonic() - began_s)
                self.load_bytes_per_s = rate or self.load_bytes_per_s
                self._keep()
            return shard

        return measured

    def _keep(self) -> None:
        """Without them the session goes on all the same."""
        now = {"fetch_bytes_per_s": self.fetch_bytes_per_s, "load_bytes_per_s": self.load_bytes_per_s}
        if now == self._kept:
            return
        self._kept = now
        beside = self._file.with_name(self._file.name + ".new")
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.write_text(json.dumps(now), encoding="utf-8")
            beside.replace(self._file)
        except OSError as error:
            log.warning("rates_not_kept error=%s", error.strerror)


def _read(file: Path) -> Any:
    """What was kept; an empty object where that can't be read."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        log.warning("rates_unreadable file=%s error=%s", file.name, error)
        return {}


def _rate_in(kept: Any, name: str) -> float | None:
    rate = kept.get(name) if isinstance(kept, dict) else None
    return float(rate) if isinstance(rate, int | float) and 0 < rate < MOST_BYTES_PER_S else None


def _rate(count_bytes: int, took_s: float) -> float | None:
    if count_bytes < LEAST_BYTES or took_s <= 0:
        return None
    return float(f"{count_bytes / took_s:.{DIGITS - 1}e}")
