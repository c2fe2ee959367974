"""A folder that only this user can enter, and whose lock the system takes back when its process ends, however it ends.

So a folder whose lock is free is nobody's any more. `ollama serve` keeps the same rule for its own
(ollama/internal/sidecar/folder.go): each clears away what any of them left.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)

PREFIX = "kafila-run-"
LONGEST_PARENT = 66  # a unix socket's name has 104 bytes at most
TRIES = 4  # a folder may be cleared away by somebody before it is locked


class HeldFolder:
    """Made on construction, in `parent` or where temporary files belong; gone after `close`."""

    def __init__(self, parent: Path | None = None) -> None:
        """Raises OSError when there is no place for it."""
        self._parent = parent or _place()
        clear_stale(self._parent)
        self.path, self._lock = self._made()

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def _made(self) -> tuple[Path, int]:
        for _ in range(TRIES):
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._parent))
            if (lock := locked(path)) is not None:
                return path, lock
        raise OSError(f"no folder in {self._parent} can be locked")


def clear_stale(parent: Path) -> None:
    """Removes this user's folders there that nobody holds; only who has a folder's lock removes it."""
    with contextlib.suppress(OSError):
        for path in parent.glob(f"{PREFIX}*"):
            if (lock := locked(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)
                logger.info("stale_folder_removed folder=%s", path)


def locked(path: Path) -> int | None:
    """The descriptor that holds a folder; None for what is somebody's, a link, or nothing that `HeldFolder` makes."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_own(os.fstat(lock)) and os.path.samestat(os.fstat(lock), path.lstat()):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _is_own(found: os.stat_result) -> bool:
    return found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == stat.S_IRWXU


def _place() -> Path:
    usual = Path(tempfile.gettempdir())
    return usual if len(str(usual)) < LONGEST_PARENT else Path("/tmp")
