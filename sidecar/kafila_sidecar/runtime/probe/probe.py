"""What this member's machine costs and holds, measured before any weight exists: the planner's "members" entry.

Blocks made up from the checkpoint's own configuration are run at decode shape, one to eight at a time. The slope of
the times over the number of blocks is a block's cost, the intercept the fixed cost of a step. Imports without MLX.
"""

import asyncio
import logging
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kafila_sidecar.errors import Refused
from kafila_sidecar.runtime.activity import Activity
from kafila_sidecar.runtime.mlx_thread import CallingThread
from kafila_sidecar.runtime.probe.cost import Cost
from kafila_sidecar.runtime.probe.host_lock import HostLock
from kafila_sidecar.runtime.probe.kept import LASTS_S, SERVED_LASTS_S, CostStore, key_of
from kafila_sidecar.runtime.probe.rounds import HEAD, Readings, Round

Reader = Callable[[Mapping[str, Any], str], Readings]

ATTEMPTS = 2
MOST_READINGS = 3  # of one attempt: again while they differ much
WIDE_SPREAD = 0.08  # of the median
MOST_READ_S = 8.0  # no further reading that would make it longer
MOST_SPREAD = 1.0  # of the median: readings that differ by more say nothing
QUIET_S = 2.0  # without a step of any session: longer than most circuits of a token take
MOST_WAIT_S = 20.0  # for that: who opens or joins a session waits as long
FASTEST_BYTES_PER_S = 1e14  # ten times the memory of any machine there is

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A member's cost and the memory that it can lend now."""

    cost: Cost
    memory_bytes: int
    key: str = ""  # by which it is kept

    def member_json(self) -> dict[str, Any]:
        """The fields of the planner's "members" entry that are measured here."""
        cost = self.cost
        prefill_s = {str(tokens): seconds for tokens, seconds in cost.prefill_s.items()}
        return {
            "bandwidth_bytes_per_s": cost.block_bytes / cost.block_s[1],
            "overhead_s": cost.overhead_s,
            "flops_per_s": cost.flops_per_s,
            "memory_bytes": self.memory_bytes,
            "block_s": {str(batch): seconds for batch, seconds in cost.block_s.items()},
            "head_s": {str(batch): seconds for batch, seconds in cost.head_s.items()} or None,
            **({"prefill_s": prefill_s} if prefill_s else {}),
        }


async def probe(
    thread: CallingThread,
    config: Mapping[str, Any],
    dtype: str,
    *,
    most_rows: int,
    cache: Path,
    activity: Activity | None = None,
    most_wait_s: float = MOST_WAIT_S,
    lock: HostLock | None = None,
    read: Reader | None = None,
) -> Measurement:
    """Measures, or takes from `cache` what was measured before; the memory is read anew.

    While this machine answers, everything takes longer: that is waited for, though not for ever, and what was read
    beside answers is kept for a short while only.

    config: the checkpoint's config.json. dtype: of its floating-point weights, "float32", "bfloat16" or "float16".
    most_rows: sequences in one run of a stage; no more are measured, since the planner plans with what is told.
    activity: of this machine's sessions.
    lock: keeps members on this machine from measuring each other; one for all of them unless given.
    read: takes the readings, on the MLX thread.

    Raises: Refused when the readings make no sense twice, or not even one block fits.
    """
    device = await thread.run(_device)
    store = CostStore(cache)
    key = key_of(device, config, dtype, most_rows)
    cost = _sensible(store.load(key))
    if cost is None:
        activity = activity or Activity()
        await _quiet(activity, most_wait_s)
        async with lock or HostLock():
            began = asyncio.get_running_loop().time()
            cost = await _measured(thread, read or partial(_read, most_rows=most_rows), config, dtype, device)
        store.keep(key, cost, lasts_s=LASTS_S if activity.was_quiet_since(began) else SERVED_LASTS_S)
    return Measurement(cost=cost, memory_bytes=await thread.run(_memory), key=key)


async def _quiet(activity: Activity, most_wait_s: float) -> None:
    """Returns once this machine answers nobody, or has not stopped doing so."""
    try:
        async with asyncio.timeout(most_wait_s):
            await activity.until_quiet(QUIET_S)
    except TimeoutError:
        log.info("measuring_beside_answers waited_s=%.0f", most_wait_s)


async def _measured(thread: CallingThread, read: Reader, config: Mapping[str, Any], dtype: str, device: str) -> Cost:
    doubts: list[str] = []
    for _ in range(ATTEMPTS):
        cost = await _read_well(thread, read, config, dtype, device)
        doubts = doubts_of(cost)
        if not doubts:
            return cost
        log.warning("probe_nonsense device=%s doubts=%s", device, "; ".join(doubts))
    raise Refused(f"this member's speed can't be measured ({doubts[0]}): stop what else runs on it and try again")


async def _read_well(thread: CallingThread, read: Reader, config: Mapping[str, Any], dtype: str, device: str) -> Cost:
    """Readings that differ much are taken again, and count together."""
    began = time.monotonic()
    readings = await thread.run(read, config, dtype)
    one_s = time.monotonic() - began
    cost = cost_of(readings, device=device, dtype=dtype)
    for _ in range(MOST_READINGS - 1):
        if not WIDE_SPREAD < cost.spread <= MOST_SPREAD or time.monotonic() - began + one_s > MOST_READ_S:
            break
        readings = readings.with_(await thread.run(read, config, dtype))
        cost = cost_of(readings, device=device, dtype=dtype)
    return cost


def _sensible(cost: Cost | None) -> Cost | None:
    return None if cost is None or doubts_of(cost) else cost


def cost_of(readings: Readings, *, device: str, dtype: str) -> Cost:
    """The lines through the median times of each number of blocks, and the head's."""
    times = {batch: _medians(rounds) for batch, rounds in readings.rounds_s.items()}
    head_s = {batch: seconds.pop(HEAD) for batch, seconds in times.items() if HEAD in seconds}
    lines = {batch: line(seconds) for batch, seconds in times.items()}
    most = max(times[1])
    return Cost(
        device=device,
        dtype=dtype,
        block_bytes=readings.block_bytes,
        block_s={batch: slope for batch, (slope, _) in lines.items()},
        overhead_s=max(0.0, lines[1][1]),
        head_s=head_s,
        flops_per_s=readings.flops_per_s,
        spread=spread([seconds[most] for seconds in readings.rounds_s[1] if most in seconds]),
        prefill_s=dict(readings.prefill_s),
    )


def _medians(rounds: Sequence[Round]) -> dict[int, float]:
    counts = dict.fromkeys(count for seconds in rounds for count in seconds)
    return {count: statistics.median(seconds[count] for seconds in rounds if count in seconds) for count in counts}


def line(times: Mapping[int, float]) -> tuple[float, float]:
    """Slope and intercept of the least-squares line through (blocks, seconds); through the origin for one point."""
    if len(times) == 1:
        ((count, seconds),) = times.items()
        return seconds / count, 0.0
    slope, intercept = statistics.linear_regression(list(times), list(times.values()))
    return slope, intercept


def spread(values: list[float]) -> float:
    """Half the range of the middle half, of the median."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / 2 / middle if middle else math.inf


def doubts_of(cost: Cost) -> list[str]:
    """What in a measurement makes no sense, in words."""
    times = {f"a block at batch {batch}": seconds for batch, seconds in cost.block_s.items()}
    times |= {f"the head at batch {batch}": seconds for batch, seconds in cost.head_s.items()}
    times |= {f"a block of {tokens} tokens": seconds for tokens, seconds in cost.prefill_s.items()}
    doubts = [f"{name} took {seconds} s" for name, seconds in times.items() if not 0 < seconds < math.inf]
    if not doubts and cost.block_bytes / cost.block_s[1] > FASTEST_BYTES_PER_S:
        doubts.append(f"a block of {cost.block_bytes} bytes took {cost.block_s[1]} s")
    if not 0 < cost.flops_per_s < math.inf:
        doubts.append(f"a prefill made {cost.flops_per_s} operations a second")
    if not cost.spread <= MOST_SPREAD:
        doubts.append(f"the readings of a block differ by {cost.spread:.0%}")
    return doubts


def _device() -> str:
    from kafila_sidecar.runtime.memory import device_name

    return device_name()


def _memory() -> int:
    from kafila_sidecar.runtime.memory import usable_bytes

    return usable_bytes()


def _read(config: Mapping[str, Any], dtype: str, *, most_rows: int) -> Readings:
    from kafila_sidecar.runtime.probe.readings import read

    return read(config, dtype, most_rows=most_rows)
