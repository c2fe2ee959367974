"""The paper's evaluation, as the planner predicts it."""

import pytest

from bench.paper_table import ENOUGH, Cell, contradictions, table


@pytest.fixture(scope="module", name="cells")
def _cells() -> list[Cell]:
    return table()


def test_paper_table_when_predicted_then_enough_bottlenecks_are_close(cells: list[Cell]) -> None:
    assert sum(cell.printed_ms is not None for cell in cells) == 20
    assert sum(cell.close for cell in cells) >= ENOUGH


def test_paper_table_when_predicted_then_the_strategies_rank_as_printed(cells: list[Cell]) -> None:
    assert contradictions(cells) == []
    for kafila, memory, uniform in zip(cells[::3], cells[1::3], cells[2::3], strict=True):
        others = [cell.predicted_ms for cell in (memory, uniform) if cell.predicted_ms is not None]
        assert (kafila.predicted_ms or 0) < min(others)


def test_paper_table_when_the_paper_found_no_uniform_split_then_the_laptop_is_named(cells: list[Cell]) -> None:
    refused = [cell for cell in cells if cell.predicted_ms is None]
    assert [(cell.fleet, cell.model, cell.strategy) for cell in refused] == [
        ("Intercontinental", "Qwen3-32b", "uniform")
    ]
    assert refused[0].printed_ms is None
    assert getattr(refused[0].result, "undersized", None) == "M3 Pro"
