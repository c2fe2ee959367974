"""The limits of `bench/planner.py`."""

import importlib.util
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.timeout(600)
def test_planner_when_timed_then_within_its_limits(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("bench_planner", Path(__file__).parents[2] / "bench" / "planner.py")
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    assert bench.main([]) == 0, capsys.readouterr().out
