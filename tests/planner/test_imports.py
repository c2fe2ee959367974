"""The planner stands alone."""

import ast
import sys
from pathlib import Path

import kafila_planner


def imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_planner_when_its_imports_are_read_then_only_the_standard_library_and_itself() -> None:
    files = list(Path(kafila_planner.__file__).parent.rglob("*.py"))
    assert len(files) > 20
    used = set().union(*map(imported, files)) - {"kafila_planner"}
    assert used <= sys.stdlib_module_names
    assert not used & {"random", "time", "datetime", "logging", "socket", "os", "asyncio"}
