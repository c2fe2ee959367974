"""What this machine lacks, in one sentence: read from what the system, Python and MLX raise when there is too little.

Everywhere else such an error may be left to pass: whoever ends a call, a session or the process by an exception asks
`as_typed` first, so that a full disk is never called a bug.
"""

import errno
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafila_rendezvous.allowance import raise_file_limit
from kafila_sidecar.errors import Exhausted, KafilaError, Refused, Unavailable

_MLX_ALLOCATION = re.compile(r"\[(?:\w+::)?malloc(?:_or_wait)?\].*?allocate (\d+) bytes")
_NO_THREAD = "can't start new thread"
_NO_FOLDER = "No usable temporary directory"
_NOT_OURS = {errno.EACCES, errno.EPERM, errno.EROFS}

MEMORY = "end other programs, or raise the limit of this process (`ulimit -v`) or of its container"
THREADS = "raise the limits of its user's processes (`ulimit -u`), of its memory (`ulimit -v`) or of its container"
INSTALL = "install it with all that a member needs: pip install 'kafila[node]'"


def as_typed(error: BaseException) -> KafilaError | None:
    """The error in words, if it says that something is lacking, or is in words already; None for a bug."""
    if isinstance(error, KafilaError):
        return error
    match error:
        case BaseExceptionGroup():
            found = [as_typed(one) for one in error.exceptions]
            return None if None in found else found[0]
        case ImportError():
            return Unavailable(of_import(error))
        case MemoryError():
            return Exhausted(f"this process gets no more memory: {MEMORY}")
        case OSError():
            return _of_system(error)
        case RuntimeError():
            return _of_runtime(str(error))
    return None


@contextmanager
def in_words() -> Iterator[None]:
    """What is lacking within is raised as a KafilaError."""
    try:
        yield
    except Exception as error:
        typed = as_typed(error)
        if typed is None or typed is error:
            raise
        raise typed from error


def keep_file_limit() -> None:
    """Raises the limit of open files as far as it goes, and keeps it there: mlx-lm, when it is imported, sets one of
    2,048 for the whole process, which fails where less is allowed, and takes away what is more."""
    raise_file_limit()
    set_limit = resource.setrlimit

    def set_others(kind: int, limits: tuple[int, int]) -> None:
        if kind != resource.RLIMIT_NOFILE:
            set_limit(kind, limits)

    resource.setrlimit = set_others


def own_folder(path: Path) -> Path:
    """A folder that only its owner can enter, made unless it is there. Raises Refused when it can't be written."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(_unwritable(path, error)) from error
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise Refused(_unwritable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES))))
    return path


def of_import(error: ImportError) -> str:
    """Why a library can't be used."""
    text = str(error)
    if "Too many open files" in text:
        return f"a library can't be opened: {_files()}"
    if "failed to map segment" in text or "Cannot allocate memory" in text:
        return f"there is too little memory to load a library ({text}): {MEMORY}"
    if isinstance(error, ModuleNotFoundError):
        return f"the Python package {(error.name or text).partition('.')[0]} is missing: {INSTALL}"
    return f"a library can't be loaded ({text}): {INSTALL}"


def _of_system(error: OSError) -> KafilaError | None:
    place = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    match error.errno:
        case errno.EMFILE:
            return Exhausted(_files())
        case errno.ENFILE:
            return Exhausted("this machine can't open any more files: end other programs, or raise fs.file-max")
        case errno.ENOMEM | errno.ENOBUFS:
            return Exhausted(f"the system has no more memory for this process: {MEMORY}")
        case errno.ENOSPC | errno.EDQUOT:
            return Refused(f"the disk is full{f' at {place}' if place else ''}: make room there")
        case number if place and number in _NOT_OURS:
            return Refused(_unwritable(place, error))
        case errno.ENOENT if _NO_FOLDER in str(error):
            return Refused("no folder for temporary files can be written: make /tmp writable, or name one in TMPDIR")
    return None


def _of_runtime(text: str) -> KafilaError | None:
    if text == _NO_THREAD:
        return Exhausted(f"this process can't start any more threads: {THREADS}")
    if found := _MLX_ALLOCATION.search(text):
        return Refused(
            f"MLX got no memory for {int(found[1]) / 1e6:,.1f} MB more: {MEMORY}, or lend the session less (--memory)"
        )
    return None


def _files() -> str:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"this process has its {most} files open: raise the limit where it is started (`ulimit -n`)"


def _unwritable(path: Path, error: OSError) -> str:
    return f"{path} can't be used ({error.strerror}): make it this user's own, or name another folder in KAFILA_HOME"
