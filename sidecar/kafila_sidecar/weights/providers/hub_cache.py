"""The Hub library's own cache on this machine, read only: what it holds need not be fetched again.

Its layout: `models--ORG--NAME/refs/main` holds a commit, `…/snapshots/COMMIT/FILE` links to whole files, which lie in
`…/blobs`. A link that leads out of `models--ORG--NAME` is none of the library's, and what it leads to is not read.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from kafila_sidecar.small_files import MORE_TEMPLATES

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REF_BYTES = 100  # as much of a ref as counts


@dataclass(frozen=True, slots=True)
class HubCache:
    """`folder` is what HF_HUB_CACHE names; None means that there is none."""

    folder: Path | None

    def revision(self, repo: str) -> str | None:
        """The commit that `main` was when somebody last looked; None where nothing says so."""
        ref = self._repo(repo) / "refs" / "main"
        if self.folder is None or not ref.is_file():
            return None
        with ref.open("rb") as file:
            said = file.read(_REF_BYTES).decode(errors="replace").strip()
        return said if _COMMIT.fullmatch(said) else None

    def files(self, repo: str, revision: str) -> dict[str, Path]:
        """The files at the top of a repository that are here, and its further chat templates, by their place in it. A
        link that leads out of the repository's part of the cache counts as none."""
        snapshot = self._repo(repo) / "snapshots" / revision
        if self.folder is None or not snapshot.is_dir():
            return {}
        here = [*snapshot.iterdir(), *snapshot.glob(f"{MORE_TEMPLATES}/*.jinja")]
        home = self._repo(repo).resolve()
        files = {str(path.relative_to(snapshot)): path.resolve() for path in sorted(here) if path.is_file()}
        return {place: path for place, path in files.items() if path.is_relative_to(home)}

    def _repo(self, repo: str) -> Path:
        return (self.folder or Path()) / f"models--{repo.replace('/', '--')}"
