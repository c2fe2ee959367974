"""What docs/failures.md says is shown by a test is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAWS = "sim/laws.py"


def rows() -> list[list[str]]:
    """The cells of each row of the table, without its head."""
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def named(cell: str) -> Iterator[tuple[str, str]]:
    """Files, each with a test, a case or a law in it; empty where the whole file is meant."""
    for name, cases in re.findall(r"`([^`]+)`((?:,? \([^)]+\))*)", cell):
        if "/" not in name:
            yield LAWS, name
        elif cases:
            yield from ((name, case) for case in re.findall(r"\(([^)]+)\)", cases))
        else:
            yield name, ""


def strings_and_functions(file: Path) -> set[str]:
    """What a case may be called in a file."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return functions | {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_failures_when_listed_then_every_row_is_whole() -> None:
    assert len(rows()) > 25
    assert {len(row) for row in rows()} == {5}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_failure_when_it_names_its_tests_then_they_are_there(row: list[str]) -> None:
    shown_by = list(named(row[-1]))
    assert shown_by
    for name, case in shown_by:
        file = ROOT / "tests" / name
        assert file.is_file()
        assert not case or case in strings_and_functions(file)
