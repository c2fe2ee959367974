"""`--record`: a bench appends its figures to bench/history.jsonl, with date, commit and machine.

One JSON object a line: bench, date (UTC), commit, modified (whether the tree differs from it), machine, figures.
The machine is told by what makes it quick or slow, never by its name.
"""

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parents[1]
HISTORY = ROOT / "bench" / "history.jsonl"

Figures: TypeAlias = "Mapping[str, float | Figures | None]"
"""By name, with the unit in it (`ring_s`), or a group of such."""


def add_record_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--record", action="store_true", help="append the figures to bench/history.jsonl")


def record(bench: str, figures: Figures, *, history: Path = HISTORY) -> None:
    """Raises: ValueError for a figure that is no number; nothing is written then."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    line = {"bench": bench, "date": date, **state_of(ROOT), "machine": machine(), "figures": figures}
    text = json.dumps(line, allow_nan=False) + "\n"
    with history.open("a", encoding="utf-8") as file:
        file.write(text)


def state_of(tree: Path) -> dict[str, str | bool | None]:
    """Which code was measured; None where there is no git. The history itself is no code."""
    commit = _output("git", "-C", str(tree), "rev-parse", "HEAD")
    changes = _output("git", "-C", str(tree), "status", "--porcelain", "-uno", "--", ".", ":!bench/history.jsonl")
    return {"commit": commit or None, "modified": None if changes is None else bool(changes)}


def machine() -> dict[str, str | int | None]:
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "mlx": metadata.version("mlx"),
        "mlx_lm": metadata.version("mlx-lm"),
    }


def _cpu() -> str:
    """The processor's model as its system calls it; its architecture where that says nothing."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()


def _output(*command: str) -> str | None:
    """What a command prints; None where it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
