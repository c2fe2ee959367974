"""What docs/api.md says of each endpoint, field and option is shown by a test that is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rows() -> list[list[str]]:
    """The cells of each row of the tables, without their heads."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[-1] != "test" and not set(row[-1]) <= {"-"}]


def cases_in(file: Path) -> set[str]:
    """What a case may be called in a file: a function, or a text in it."""
    source = file.read_text(encoding="utf-8")
    if file.suffix == ".go":
        return set(re.findall(r"^func (Test\w+)", source, re.MULTILINE))
    if file.suffix == ".cjs":
        return set(re.findall(r'"([^"]+)"', source))
    nodes = list(ast.walk(ast.parse(source)))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return functions | {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_rows_when_listed_then_whole() -> None:
    assert len(rows()) > 40
    assert {len(row) for row in rows()} == {4}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_row_when_it_names_its_test_then_that_is_there(row: list[str]) -> None:
    named = re.findall(r"`([^`]+)`(?: \(([^)]+)\))?", row[-1])
    assert named
    for name, cases in named:
        file = ROOT / name if name.startswith("ollama/") else ROOT / "tests" / name
        assert file.is_file(), name
        wanted = set(filter(None, cases.split(", ")))
        assert wanted <= cases_in(file), wanted - cases_in(file)


def test_page_when_the_site_is_built_then_in_its_navigation_and_linked_from_the_guide() -> None:
    assert re.search(r"^\s+- api\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert "(../api.md)" in (ROOT / "docs" / "guide" / "clients.md").read_text(encoding="utf-8")
