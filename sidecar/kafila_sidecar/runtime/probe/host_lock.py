"""A lock that one process on this machine holds at a time, whoever runs it."""

import asyncio
import fcntl
import logging
import os
import stat
import tempfile
from pathlib import Path
from types import TracebackType

log = logging.getLogger(__name__)

NAME = "kafila-probe.lock"  # in the folder for temporary files, which all users share
WAIT_S = 60.0  # several members may measure before us, a few seconds each
RETRY_S = 0.05


class HostLock:
    """An advisory lock on a file, freed by the system when its holder dies. `async with` waits for it.

    Every user of the machine may hold it, and one who means ill for ever. So who can't have it within `wait_s`, or has
    no such file, measures all the same: that costs accuracy, not the session.
    """

    def __init__(self, path: Path | None = None, *, wait_s: float = WAIT_S) -> None:
        self._path = path
        self._wait_s = wait_s
        self._file = -1

    async def __aenter__(self) -> None:
        try:
            self._file = _opened(self._path or Path(tempfile.gettempdir()) / NAME)
        except OSError as error:
            log.warning("measuring_unguarded error=%s", error)
            return
        try:
            async with asyncio.timeout(self._wait_s):
                while not _locked(self._file):  # noqa: ASYNC110 - its holder is another process
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            self._release()
            log.warning("measuring_unguarded waited_s=%.0f", self._wait_s)
        except BaseException:
            self._release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _opened(path: Path) -> int:
    """The file, which may be another user's: reading is enough to lock it. Raises OSError for what is no plain file;
    opening a pipe would wait for its other end.
    """
    how = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(path, how | os.O_CREAT, 0o644)
    except PermissionError:
        file = os.open(path, how)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is no plain file")
    return file


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
