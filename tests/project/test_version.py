"""The version: from the tag into the package, and shown by `--version`."""

import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

ROOT = Path(__file__).parents[2]
AUTHOR = ("-c", "user.name=Somebody", "-c", "user.email=somebody@localhost")


class Tree:
    """A source tree with what tells our version, at first without git."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / ".ci").mkdir()
        for file in ("pyproject.toml", ".ci/version"):
            shutil.copy(ROOT / file, folder / file)

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *AUTHOR, *arguments], cwd=self._folder, check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", ".")
        self.git("commit", "--allow-empty", "-m", "a change")

    def version(self) -> str:
        """What the Python package and the Go build both say."""
        package = _output([sys.executable, "-m", "setuptools_scm"], self._folder)
        assert _output([".ci/version"], self._folder) == package
        return package


def _output(command: list[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_version_when_there_is_no_git_then_that_of_the_first_release_to_come(tree: Tree) -> None:
    assert tree.version() == "0.1.0.dev0"


def test_version_when_nothing_is_tagged_then_counts_commits_towards_the_first_release(tree: Tree) -> None:
    tree.git("init")
    tree.commit()
    tree.commit()
    assert re.fullmatch(r"0\.1\.0\.dev2\+g[0-9a-f]{7,}", tree.version())


def test_version_when_a_tag_is_checked_out_then_is_the_tag(tree: Tree) -> None:
    tree.git("init")
    tree.commit()
    tree.git("tag", "v1.2.3")
    assert tree.version() == "1.2.3"


def test_version_when_commits_follow_a_candidate_then_counts_them_towards_the_next(tree: Tree) -> None:
    tree.git("init")
    tree.commit()
    tree.git("tag", "-a", "v2.0rc9", "-m", "a candidate")
    tree.commit()
    assert re.fullmatch(r"2\.0rc10\.dev1\+g[0-9a-f]{9}", tree.version())


def test_version_when_a_tag_names_no_version_then_does_not_follow_it(tree: Tree) -> None:
    tree.git("init")
    tree.commit()
    tree.git("tag", "nightly-2026.11.28")
    assert re.fullmatch(r"0\.1\.0\.dev1\+g[0-9a-f]{9}", tree.version())


def test_version_when_the_tree_is_an_sdist_then_is_the_one_it_was_built_with(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: kafila\nVersion: 1.2.3\n", encoding="utf-8")
    assert tree.version() == "1.2.3"


def test_version_when_commits_follow_a_tag_then_counts_them_towards_the_next(tree: Tree) -> None:
    tree.git("init")
    tree.commit()
    tree.git("tag", "v1.2.3")
    tree.commit()
    assert re.fullmatch(r"1\.2\.4\.dev1\+g[0-9a-f]{7,}", tree.version())


def test_sidecar_when_asked_for_its_version_then_says_all_that_members_compare(tmp_path: Path) -> None:
    package, compared = _output([sys.executable, "-m", "kafila_sidecar", "--version"], tmp_path).splitlines()
    name, version = package.split()
    assert name == "kafila"
    assert Version(version) >= Version("0.1.0.dev0")
    assert re.fullmatch(rf"protocol \d+, planner \w+, mlx-lm {re.escape(metadata.version('mlx-lm'))}", compared)


def test_sidecar_when_asked_for_its_version_then_leaves_mlx_alone(tmp_path: Path) -> None:
    code = "import sys; from kafila_sidecar.versions import versions; versions(); print(*sys.modules)"
    imported = _output([sys.executable, "-c", code], tmp_path).split()
    assert "kafila_sidecar.versions" in imported
    assert not {"mlx", "mlx.core", "mlx_lm"} & set(imported)
