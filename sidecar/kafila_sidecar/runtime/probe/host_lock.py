"""A lock that one process on this machine holds at a time, whoever runs it."""

import asyncio
import fcntl
import logging
import os
import tempfile
from pathlib import Path
from types import TracebackType

from kafila_sidecar.errors import TimedOut

log = logging.getLogger(__name__)

NAME = "kafila-probe.lock"  # in the folder for temporary files, which all users share
WAIT_S = 60.0  # several members may measure before us, a few seconds each
RETRY_S = 0.05


class HostLock:
    """An advisory lock on a file, freed by the system when its holder dies. `async with` waits for it.

    Where no such file can be had, nobody is kept from measuring at once: that costs accuracy, not the session.

    Raises: TimedOut when others hold it for `wait_s`.
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
            raise TimedOut(f"others on this machine have been measuring for {self._wait_s:.0f} s: try again") from None
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


def _opened(path: Path) -> int:
    """The file, which may be another user's: reading is enough to lock it."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
