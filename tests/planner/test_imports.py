"""The planner stands alone."""

import ast
import re
import sys
from pathlib import Path

import kafila_planner

ROOT = Path(kafila_planner.__file__).parent


def imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_planner_when_its_imports_are_read_then_only_the_standard_library_and_itself() -> None:
    files = list(ROOT.rglob("*.py"))
    assert len(files) > 20
    used = set().union(*map(imported, files)) - {"kafila_planner"}
    assert used <= sys.stdlib_module_names
    assert not used & {"random", "time", "datetime", "logging", "socket", "os", "asyncio"}


def test_documented_files_when_compared_with_the_tree_then_every_module_is_named_in_its_room() -> None:
    page = (Path(__file__).parents[2] / "docs" / "planner.md").read_text()
    rows = re.findall(r"^\| (?:`(\w+)/`|top) \| (`.*?`) \|", page, re.MULTILINE)
    named = sorted(f"{room}/{name}" for room, names in rows for name in re.findall(r"`(\w+)`", names))
    files = (file.relative_to(ROOT) for file in ROOT.rglob("*.py") if file.stem != "__init__")
    assert named == sorted(f"{'' if file.parent == Path() else file.parent}/{file.stem}" for file in files)
