"""All weights on this disk, over all models: what there is, what may go, and room for what comes.

Sidecars of one user share the folder, so whoever uses a revision holds a shared lock on it (`in_use`), and only what
nobody uses is removed.
"""

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafila_sidecar.errors import NotFound, Refused
from kafila_sidecar.weights.store.journal import room_on_disk
from kafila_sidecar.weights.store.store import JOURNAL, Store, StoreBusy

log = logging.getLogger(__name__)

USE = "use"
"""In a revision's folder: locked by who uses it; its time of change is when that began or ended last."""
BLOCK_BYTES = 512  # of st_blocks (POSIX)


@dataclass(frozen=True, slots=True)
class HeldModel:
    """One revision. `disk_bytes`: what its files take; `last_used_s`: seconds since the epoch; whether `in_use` now."""

    model: str
    revision: str
    folder: Path
    disk_bytes: int
    is_whole: bool
    last_used_s: float
    in_use: bool


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Keeps a revision's folder from being removed meanwhile, by any process."""
    with room_on_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / USE).open("a")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        os.utime(lock.fileno())
        try:
            yield
        finally:
            os.utime(lock.fileno())


class Library:
    """The folder that holds ORG/NAME/REVISION. `limit_bytes`: the most that it should take, 0 for no limit."""

    def __init__(self, folder: Path, *, limit_bytes: int = 0) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes

    def models(self) -> list[HeldModel]:
        """The most recently used first."""
        found = [self._described(record.parent) for record in self._folder.glob(f"**/{JOURNAL}")]
        return sorted(found, key=lambda held: held.last_used_s, reverse=True)

    def remove(self, model: str, revision: str = "") -> int:
        """Removes a model, or one revision of it; how many bytes that frees.

        Raises NotFound when there is none, Refused when all there is of it is in use.
        """
        wanted = [held for held in self.models() if held.model == model and held.revision.startswith(revision)]
        if not wanted:
            raise NotFound(f"no weights of {model[:200]} are on this machine: `ollama session weights` lists them")
        freed_bytes = [self._removed(held) for held in wanted]
        if all(freed is None for freed in freed_bytes):
            raise Refused(f"{model} is used by a session on this machine: leave that first (`ollama session leave`)")
        return sum(freed or 0 for freed in freed_bytes)

    def prune(self, *, unused_for_s: float) -> int:
        """Removes what nobody has used for so long; how many bytes that frees."""
        before_s = time.time() - unused_for_s
        return sum(self._removed(held) or 0 for held in self.models() if held.last_used_s <= before_s)

    def make_room(self, needed_bytes: int, keep: Path) -> None:
        """Removes what was not used for longest, until so many more bytes keep within the limit. `keep` stays.

        Raises Refused when what is in use leaves too little.
        """
        if not self._limit_bytes:
            return
        held = self.models()
        over_bytes = sum(one.disk_bytes for one in held) + needed_bytes - self._limit_bytes
        for one in reversed(held):
            if over_bytes > 0 and one.folder != keep:
                over_bytes -= self._removed(one) or 0
        if over_bytes > 0:
            raise Refused(
                f"{needed_bytes / 1e9:.1f} GB of weights don't fit within the limit of {self._limit_bytes / 1e9:.1f} GB"
                f" for {self._folder}: raise KAFILA_WEIGHTS_LIMIT, or leave a session that uses others"
            )

    def left_bytes(self) -> int | None:
        """How many more bytes keep within the limit while everything stays; None without a limit."""
        if not self._limit_bytes:
            return None
        return max(0, self._limit_bytes - sum(one.disk_bytes for one in self.models()))

    # ---- Private

    def _described(self, folder: Path) -> HeldModel:
        used = folder / USE
        files = [path for path in folder.iterdir() if path.is_file()]
        weights = [path for path in files if ".safetensors" in path.name and not path.name.endswith(".json")]
        return HeldModel(
            model=folder.parent.relative_to(self._folder).as_posix(),
            revision=folder.name,
            folder=folder,
            disk_bytes=sum(path.stat().st_blocks * BLOCK_BYTES for path in files),
            is_whole=bool(weights) and all(path.name.endswith(".safetensors") for path in weights),
            last_used_s=(used if used.is_file() else folder / JOURNAL).stat().st_mtime,
            in_use=not _free(folder),
        )

    def _removed(self, held: HeldModel) -> int | None:
        """How many bytes that frees; None when somebody uses it, or fetches it."""
        try:
            with _alone(held.folder), Store(held.folder).writing():
                shutil.rmtree(held.folder)
        except (BlockingIOError, StoreBusy):
            return None
        for folder in (held.folder.parent, held.folder.parent.parent):
            if folder != self._folder and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        log.info("weights_removed bytes=%d", held.disk_bytes)
        return held.disk_bytes


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError while somebody uses the folder."""
    with (folder / USE).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _free(folder: Path) -> bool:
    if not (folder / USE).is_file():
        return True
    with (folder / USE).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
