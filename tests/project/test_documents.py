"""What the documents and workflows name is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOR_CONTRIBUTORS = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
WORKFLOWS = (".github/actions/setup/action.yml", ".github/workflows/ci.yml", ".github/workflows/nightly.yml")


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_reading_order_when_followed_then_has_six_files_that_are_there() -> None:
    marked = re.search(r"<!-- reading order.*?-->(.*?)<!-- end", read("CONTRIBUTING.md"), re.DOTALL)
    assert marked is not None
    files = re.findall(r"^\d\. `(.+?)`", marked[1], re.MULTILINE)
    assert len(files) == 6
    assert [file for file in files if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("document", FOR_CONTRIBUTORS)
def test_document_when_it_names_a_path_then_that_is_there(document: str) -> None:
    rooms = re.findall(r"`((?:sidecar|planner|rendezvous|proto|ollama|tests|docs|bench|\.ci)/[^` ]*)`", read(document))
    links = re.findall(r"\]\((?!https:)(.+?)\)", read(document))
    assert [path for path in {*rooms, *links} - BUILT if not (ROOT / path).exists()] == []


BUILT = {"bench/history.jsonl"}
"""Comes when somebody asks for it."""


@pytest.mark.parametrize("document", [*FOR_CONTRIBUTORS, *WORKFLOWS, "README.md"])
def test_document_when_it_names_a_target_then_make_knows_it(document: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:`|run: )make ([a-z-]+)", read(document)))
    assert named <= targets


ROOTS = (
    *("", "sidecar/kafila_sidecar", "planner/kafila_planner", "rendezvous/kafila_rendezvous", "ollama/internal"),
    *(f"sidecar/kafila_sidecar/session/{room}" for room in ("coordination", "admission", "membership")),
    "sidecar/kafila_sidecar/runtime/text",
    "sidecar/kafila_sidecar/models",
)
"""Where the paths of docs/architecture.md begin: it says so, or says "beside it"."""


def test_architecture_when_it_names_a_file_or_package_then_that_is_there() -> None:
    page = read("docs/architecture.md")
    named = set(re.findall(r"`([\w./]+\.(?:py|go|toml|md))`", page))
    assert len(named) > 40
    assert [path for path in named if not any((ROOT / root / path).is_file() for root in ROOTS)] == []


def test_architecture_when_it_draws_the_tree_then_every_room_is_in_it() -> None:
    page = read("docs/architecture.md")
    drawn = set(re.findall(r"\w+", page[: page.index("## Where things are decided")]))
    packages = [file.parent for root in ROOTS[1:4] for file in (ROOT / root).rglob("__init__.py")]
    assert len(packages) > 25
    assert [str(package) for package in packages if package.name not in drawn] == []


@pytest.mark.parametrize("root", ROOTS[1:4])
def test_package_when_read_then_its_first_line_says_what_it_is_for_and_it_is_no_hall(root: str) -> None:
    for file in (ROOT / root).rglob("__init__.py"):
        assert re.match(r'"""\S.+', file.read_text(encoding="utf-8")), file
        assert len(list(file.parent.glob("*.py"))) <= 18, file.parent
