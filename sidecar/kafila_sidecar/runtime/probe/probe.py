"""What this member's machine costs and holds, measured before any weight exists: the planner's "members" entry.

Blocks made up from the checkpoint's own configuration are run at decode shape, one to eight at a time. The slope of
the times over the number of blocks is a block's cost, the intercept the fixed cost of a step. What was read is kept by
device, element type and block shape. Imports without MLX.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kafila_sidecar.errors import Refused
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.probe.host_lock import HostLock
from kafila_sidecar.runtime.probe.rounds import HEAD, Readings, Round

Reader = Callable[[Mapping[str, Any], str], Readings]

ATTEMPTS = 2
MOST_SPREAD = 1.0  # of the median: readings that differ by more say nothing
FASTEST_BYTES_PER_S = 1e14  # ten times the memory of any machine there is
FORMAT = 2  # of the files in the cache

# Of config.json, what makes no difference to how long a block or the head takes.
_IRRELEVANT = frozenset(
    (
        *("architectures", "bos_token_id", "eos_token_id", "pad_token_id", "transformers_version", "torch_dtype"),
        *("dtype", "use_cache", "_name_or_path", "max_position_embeddings", "num_hidden_layers", "layer_types"),
        *("initializer_range", "attention_dropout", "quantization_config"),
    )
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stage costs here. The steps are by batch size; head_s is empty where the head doesn't fit.

    spread: half the middle half of the times of the most blocks run, of their median.
    block_bytes: of one block's weights, as stored.
    """

    device: str
    dtype: str
    block_bytes: int
    block_s: Mapping[int, float]
    overhead_s: float
    head_s: Mapping[int, float]
    flops_per_s: float
    spread: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """A member's cost and the memory that it can lend now."""

    cost: Cost
    memory_bytes: int

    def member_json(self) -> dict[str, Any]:
        """The fields of the planner's "members" entry that are measured here."""
        cost = self.cost
        return {
            "bandwidth_bytes_per_s": cost.block_bytes / cost.block_s[1],
            "overhead_s": cost.overhead_s,
            "flops_per_s": cost.flops_per_s,
            "memory_bytes": self.memory_bytes,
            "block_s": {str(batch): seconds for batch, seconds in cost.block_s.items()},
            "head_s": {str(batch): seconds for batch, seconds in cost.head_s.items()} or None,
        }


async def probe(
    thread: MlxThread,
    config: Mapping[str, Any],
    dtype: str,
    *,
    most_rows: int,
    cache: Path,
    lock: HostLock | None = None,
    read: Reader | None = None,
) -> Measurement:
    """Measures, or takes from `cache` what was measured before; the memory is read anew.

    config: the checkpoint's config.json. dtype: of its floating-point weights, "float32", "bfloat16" or "float16".
    most_rows: sequences in one run of a stage; no more are measured, since the planner plans with what is told.
    lock: keeps members on this machine from measuring each other; one for all of them unless given.
    read: takes the readings, on the MLX thread.

    Raises: Refused when the readings make no sense twice, or not even one block fits.
    """
    device = await thread.run(_device)
    path = cache / f"{_key(device, config, dtype, most_rows)}.json"
    cost = _stored(path)
    if cost is None:
        async with lock or HostLock():
            cost = await _measured(thread, read or partial(_read, most_rows=most_rows), config, dtype, device)
        _store(path, cost)
    return Measurement(cost=cost, memory_bytes=await thread.run(_memory))


async def _measured(thread: MlxThread, read: Reader, config: Mapping[str, Any], dtype: str, device: str) -> Cost:
    doubts: list[str] = []
    for _ in range(ATTEMPTS):
        cost = cost_of(await thread.run(read, config, dtype), device=device, dtype=dtype)
        doubts = doubts_of(cost)
        if not doubts:
            return cost
        log.warning("probe_nonsense device=%s doubts=%s", device, "; ".join(doubts))
    raise Refused(f"this member's speed can't be measured ({doubts[0]}): stop what else runs on it and try again")


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
    doubts = [f"{name} took {seconds} s" for name, seconds in times.items() if not 0 < seconds < math.inf]
    if not doubts and cost.block_bytes / cost.block_s[1] > FASTEST_BYTES_PER_S:
        doubts.append(f"a block of {cost.block_bytes} bytes took {cost.block_s[1]} s")
    if not 0 < cost.flops_per_s < math.inf:
        doubts.append(f"a prefill made {cost.flops_per_s} operations a second")
    if not cost.spread <= MOST_SPREAD:
        doubts.append(f"the readings of a block differ by {cost.spread:.0%}")
    return doubts


def _key(device: str, config: Mapping[str, Any], dtype: str, most_rows: int) -> str:
    relevant = {name: value for name, value in config.items() if name not in _IRRELEVANT}
    text = json.dumps([FORMAT, device, dtype, most_rows, relevant], sort_keys=True, default=str)
    return f"probe-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def _stored(path: Path) -> Cost | None:
    """A cost stored earlier; None when there is none that makes sense."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        for name in ("block_s", "head_s"):
            fields[name] = {int(batch): float(seconds) for batch, seconds in fields[name].items()}
        cost = Cost(**fields)
        return None if doubts_of(cost) else cost
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("probe_cache_unreadable file=%s error=%s", path.name, error)
        return None


def _store(path: Path, cost: Cost) -> None:
    """For the next time; where that can't be kept, it is measured again."""
    fresh = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(asdict(cost)), encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        log.warning("measurement_not_kept error=%s", error)
        with contextlib.suppress(OSError):
            fresh.unlink()


def _device() -> str:
    from kafila_sidecar.runtime.memory import device_name

    return device_name()


def _memory() -> int:
    from kafila_sidecar.runtime.memory import usable_bytes

    return usable_bytes()


def _read(config: Mapping[str, Any], dtype: str, *, most_rows: int) -> Readings:
    from kafila_sidecar.runtime.probe.readings import read

    return read(config, dtype, most_rows=most_rows)
