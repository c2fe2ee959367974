"""The commands that the documents have people type are there, with the options that they name; those that need no
server run. Those of sessions run in tests/e2e/test_documented_sessions.py."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.support.cluster import OLLAMA
from tests.support.docs import ROOT, Document

PAGES = ["README.md", "CONTRIBUTING.md", *(str(page.relative_to(ROOT)) for page in sorted(ROOT.glob("docs/**/*.md")))]
OURS = {"kafila-rendezvous": "kafila_rendezvous", "kafila-sidecar": "kafila_sidecar", "kafila-plan": "kafila_planner"}
DRAWN = ("ollama clients (unchanged)",)
"""What a drawing begins with: nobody types it."""

pytestmark = pytest.mark.skipif(not OLLAMA.exists(), reason="make build has not been run")


@cache
def reference() -> dict[str, str]:
    """Each command's help by its words, as in "session create", from the program itself."""
    folder = ROOT / ".build" / "docs-test"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([OLLAMA, "manual", folder], check=True, timeout=60)
    sections = re.split(r"^## ollama ", (folder / "commands.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {section.partition("\n")[0]: section.partition("\n")[2] for section in sections}


@cache
def python_help(module: str) -> str:
    command = [sys.executable, "-m", module, "--help"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout


def words_of(line: str) -> str:
    """The longest command that a line begins with; empty if it is none."""
    words = [word.strip("`,.;:…") for word in line.split()[1:]]
    known = [" ".join(words[:length]) for length in range(len(words), 0, -1)]
    return next((one for one in known if one in reference()), "")


def faults(line: str) -> list[str]:
    """What a line names that is not there."""
    program, options = line.split()[0], set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", line))
    if program in OURS:
        return [option for option in options if option not in python_help(OURS[program])]
    if line.split()[1].startswith("-"):
        return [option for option in options if option not in ("--help", "--version")]
    words = words_of(line)
    lacking = [option for option in options if option not in reference().get(words, "")]
    return lacking if words else [line]


@pytest.mark.parametrize("page", PAGES)
def test_page_when_it_names_a_command_then_that_is_there_with_its_options(page: str) -> None:
    typed = [line for line in Document(page).mentioned() if re.match(r"[\w-]+ (-|[a-z]+\b)", line)]
    assert {line: found for line in typed if not line.startswith(DRAWN) and (found := faults(line))} == {}


def test_pages_when_taken_together_then_name_most_commands_of_sessions() -> None:
    named = {words_of(line) for page in PAGES for line in Document(page).mentioned() if line.split()[0] not in OURS}
    sessions = {words for words in reference() if words.startswith(("session ", "service "))}
    assert sessions - named == set()


@pytest.mark.parametrize("page", [page for page in PAGES if Document(page).commands()])
def test_page_when_it_asks_for_versions_or_help_then_these_come(page: str, tmp_path: Path) -> None:
    kafila = tmp_path / "kafila"
    kafila.symlink_to(OLLAMA)
    for line in Document(page).commands():
        program, *rest = line.split()
        if rest[-1] not in ("--version", "--help"):
            continue
        run = [sys.executable, "-m", OURS[program]] if program in OURS else [str(kafila)]
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "OLLAMA_HOST": "127.0.0.1:1"}
        done = subprocess.run([*run, *rest], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (line, done.stderr)
        assert "kafila" in done.stdout, line
