"""A small private file that survives a crash at any moment: it is there as it was before, or as it is now.

A line that names kind and version, the SHA-256 of what follows, and that. What can't be read is set aside.
"""

import hashlib
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

HEADER = b"kafila kept session 1\n"
LARGEST_BYTES = 4 * 1024 * 1024


def write_whole(path: Path, content: bytes) -> None:
    """Replaces the file, which only its owner can read; the folder is made. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(HEADER + hashlib.sha256(content).digest() + content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    _sync_folder(path.parent)


def read_whole(path: Path) -> bytes | None:
    """What was written last; None where there is nothing, or what is there was set aside, which is logged."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("kept_file_unread path=%s error=%s", path, error.strerror)
        return None
    digest_end = len(HEADER) + hashlib.sha256().digest_size
    content = data[digest_end:]
    fits = len(data) <= LARGEST_BYTES and data.startswith(HEADER)
    if fits and hashlib.sha256(content).digest() == data[len(HEADER) : digest_end]:
        return content
    set_aside(path, "it is damaged, or of another version of Kafila")
    return None


def set_aside(path: Path, why: str) -> None:
    """Out of the way, for a person to look at."""
    broken = path.with_name(path.name + ".broken")
    try:
        path.replace(broken)
    except OSError as error:
        log.warning("kept_file_stays path=%s error=%s", path, error.strerror)
        return
    log.warning("%s can't be used: %s; it was renamed to %s", path, why, broken.name)


def _sync_folder(folder: Path) -> None:
    """The new name is on the disk too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
