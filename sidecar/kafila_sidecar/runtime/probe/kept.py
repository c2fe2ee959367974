"""What was measured, kept by device, element type and block shape, for a while: machines are throttled and freed again.

What a stage really took while it served stands above what was measured, for a shorter while.
"""

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kafila_planner.correction import Slowness
from kafila_sidecar.runtime.probe.cost import Cost

log = logging.getLogger(__name__)

FORMAT = 4  # of the files, and of what is measured: prompts of mixtures are read otherwise since
LASTS_S = 7 * 24 * 3600.0  # then the machine is measured anew
SERVED_LASTS_S = 2 * 3600.0  # what slows a machine down is there for hours, or for good; the next session measures that

DAMAGED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What comes of reading anything but what was written."""

# Of config.json, what makes no difference to how long a block or the head takes.
_IRRELEVANT = frozenset(
    (
        *("architectures", "bos_token_id", "eos_token_id", "pad_token_id", "transformers_version", "torch_dtype"),
        *("dtype", "use_cache", "_name_or_path", "max_position_embeddings", "num_hidden_layers", "layer_types"),
        *("initializer_range", "attention_dropout", "quantization_config"),
    )
)


def key_of(device: str, config: Mapping[str, Any], dtype: str, most_rows: int) -> str:
    """The same for checkpoints whose blocks cost the same."""
    relevant = {name: value for name, value in config.items() if name not in _IRRELEVANT}
    text = json.dumps([FORMAT, device, dtype, most_rows, relevant], sort_keys=True, default=str)
    return f"probe-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


class CostStore:
    """A folder of this user's, one file a key. now: seconds of the day's clock, since files outlive processes."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now = now

    def load(self, key: str) -> Cost | None:
        """None when there is none that can be read and still counts."""
        path = self._path(key)
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            if not 0 <= self._now() - told["at"] < told["lasts_s"]:
                return None
            return _cost(told["cost"])
        except FileNotFoundError:
            return None
        except (OSError, *DAMAGED) as error:
            log.warning("probe_cache_unreadable file=%s error=%s", path.name, error)
            return None

    def keep(self, key: str, cost: Cost, *, lasts_s: float = LASTS_S) -> None:
        """Whole or not at all; where that can't be kept, it is measured again."""
        path = self._path(key)
        fresh = path.with_suffix(f".{os.getpid()}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            told = json.dumps({"at": self._now(), "lasts_s": lasts_s, "cost": asdict(cost)})
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(told)
            fresh.replace(path)
        except OSError as error:
            log.warning("measurement_not_kept error=%s", error)
            with contextlib.suppress(OSError):
                fresh.unlink()

    def served(self, key: str, measured: Cost, slowness: Slowness) -> None:
        """While a session ran, it took so many times as long as had been measured."""
        self.keep(key, measured.slowed(slowness), lasts_s=SERVED_LASTS_S)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def _cost(fields: dict[str, Any]) -> Cost:
    for name in ("block_s", "head_s", "prefill_s"):
        fields[name] = {int(size): float(seconds) for size, seconds in fields[name].items()}
    return Cost(**fields)
