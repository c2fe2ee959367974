"""One word, one meaning: no two classes of the project have the same name."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("sidecar", "planner", "rendezvous", "tests", "bench")

TWICE: set[str] = set()
"""Still to be renamed; nothing may come in here, and what is mended goes out."""


def classes(file: Path) -> Iterator[str]:
    """Every class in a file, private and nested ones too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield node.name


def places() -> Mapping[str, list[str]]:
    """Where each name is given to a class."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for name in classes(file):
                found[name].append(str(file.relative_to(ROOT)))
    return found


def test_class_when_named_then_no_other_class_has_the_name() -> None:
    known = places()
    assert len(known) > 300
    twice = {name: files for name, files in known.items() if len(files) > 1}
    assert not twice.keys() - TWICE, {name: twice[name] for name in twice.keys() - TWICE}
    assert not TWICE - twice.keys(), f"no longer twice, so take them out of TWICE: {TWICE - twice.keys()}"
