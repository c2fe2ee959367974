"""The sentences that the troubleshooting page starts from are those that people see."""

import re

import pytest

from tests.support.docs import ROOT

PAGE = (ROOT / "docs/guide/troubleshooting.md").read_text(encoding="utf-8")
OF_OTHERS = ('unknown command "session"', "GLIBC_2.35", "libmlx.so", "Permission denied", "Read-only file system")
"""What stock Ollama, the loader, MLX and the system say."""
SHORTEST = 8


def sources() -> str:
    """Ours, with strings that go on in the next line made whole."""
    rooms = [*ROOT.glob("ollama/internal/*/*.go"), *ROOT.glob("sidecar/**/*.py"), *ROOT.glob("rendezvous/**/*.py")]
    whole = "\n".join(file.read_text(encoding="utf-8") for file in rooms if not file.name.endswith("_test.go"))
    return re.sub(r'"(?: \+)?\n\s*f?"', "", whole)


def said() -> list[str]:
    """The parts of each sentence between what differs from machine to machine."""
    sentences = re.findall(r"`([^`]+)`", " ".join(re.findall(r"^\*\*(.+?)\*\*", PAGE, re.MULTILINE)))
    parts = [part.strip(" .()") for sentence in sentences for part in re.split(r"…|[()]", sentence)]
    return [part for part in parts if len(part) >= SHORTEST and not any(one in part for one in OF_OTHERS)]


@pytest.mark.parametrize("part", said())
def test_sentence_when_the_page_names_it_then_the_program_says_it(part: str) -> None:
    assert re.sub(r"\W+", " ", part) in re.sub(r"\W+", " ", sources())


def test_page_when_read_then_it_starts_from_what_people_see() -> None:
    assert len(said()) >= 6
