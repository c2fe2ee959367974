"""The history of measurements: what a recorded line says, and what it doesn't."""

import json
import math
import os
import platform
import subprocess
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from bench.record import Figures, record, state_of

FIGURES: Figures = {"ring_s": 0.0423, "direct at 0 ms": {"whole": 0.21, "wanted": None}}


def recorded(history: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]


def test_record_when_asked_then_the_line_has_figures_date_and_machine(tmp_path: Path) -> None:
    record("ring", FIGURES, history=tmp_path / "history.jsonl")
    [line] = recorded(tmp_path / "history.jsonl")
    assert line["bench"] == "ring"
    assert line["figures"] == FIGURES
    assert abs(datetime.now(UTC) - datetime.fromisoformat(line["date"])) < timedelta(hours=1)
    assert line["machine"].pop("cpu")
    assert line["machine"] == {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "mlx": metadata.version("mlx"),
        "mlx_lm": metadata.version("mlx-lm"),
    }


def test_record_when_there_is_a_history_then_appends(tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text('{"bench": "older"}\n', encoding="utf-8")
    record("link", FIGURES, history=history)
    record("ring", FIGURES, history=history)
    assert [line["bench"] for line in recorded(history)] == ["older", "link", "ring"]


def test_record_when_a_figure_is_no_number_then_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        record("ring", {"ring_s": math.nan}, history=tmp_path / "history.jsonl")
    assert not (tmp_path / "history.jsonl").exists()


def test_state_when_files_change_then_says_whether_the_commit_was_measured(tmp_path: Path) -> None:
    assert state_of(tmp_path) == {"commit": None, "modified": None}
    code, history = tmp_path / "code.py", tmp_path / "bench" / "history.jsonl"
    history.parent.mkdir()
    for file in (code, history):
        file.write_text("1\n", encoding="utf-8")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "a change")
    commit = git(tmp_path, "rev-parse", "HEAD")

    history.write_text("2\n", encoding="utf-8")
    assert state_of(tmp_path) == {"commit": commit, "modified": False}
    code.write_text("2\n", encoding="utf-8")
    assert state_of(tmp_path) == {"commit": commit, "modified": True}


def git(folder: Path, *arguments: str) -> str:
    author = ("-c", "user.name=Somebody", "-c", "user.email=somebody@localhost")
    command = ["git", *author, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
