"""Every case of every client package: what a session's model gives has stock's shape."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conftest import HERE, Sides
from tests.clients.shapes import differences, shape_of

PROGRAMS = sorted(path.name for path in (HERE / "programs").glob("with_*"))


def cases_of(program: str) -> Iterator[str]:
    """The names of a program's cases, without running it."""
    text = (HERE / "programs" / program).read_text(encoding="utf-8")
    if program.endswith(".cjs"):
        yield from re.findall(r'^  "([^"]+)":', text, re.MULTILINE)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tell":
            (told,) = node.args
            assert isinstance(told, ast.Dict)
            yield from (str(key.value) for key in told.keys if isinstance(key, ast.Constant))


def title(program: str) -> str:
    """ "ollama", or "ollama (npm)"."""
    name = Path(program).stem.removeprefix("with_")
    return f"{name} (npm)" if program.endswith(".cjs") else name


CASES = [(program, case) for program in PROGRAMS for case in cases_of(program)]


@pytest.mark.parametrize(("program", "case"), CASES, ids=[f"{title(program)}: {case}" for program, case in CASES])
def test_case_when_a_session_answers_then_in_stocks_shape(sides: Sides, program: str, case: str) -> None:
    ours, stocks = (
        shape_of(sides.told(program, model)[case], models=sides.models, counts="stopped" not in case)
        for model in sides.models
    )
    assert differences(ours, stocks) == []
