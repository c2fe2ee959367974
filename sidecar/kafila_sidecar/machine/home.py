"""One sidecar for each home: the file that says whose it is, held locked for as long as the process lives."""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kafila_sidecar.errors import Refused

PATIENCE_S = 5.0  # for one that is about to end
PAUSE_S = 0.2
FILE = "owner"


@asynccontextmanager
async def held(folder: Path) -> AsyncIterator[None]:
    """The folder is this process' own meanwhile; the system gives it back however the process ends.

    Raises Refused, in words that say who has it, or that it can't be had.
    """
    try:
        descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise Refused(f"can't open {folder / FILE}: {error.strerror}") from error
    try:
        await _lock(descriptor, folder)
        with contextlib.suppress(OSError):  # on a full disk nobody can read whose it is; the lock holds
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


async def _lock(descriptor: int, folder: Path) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE_S
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if loop.time() >= until:
            raise Refused(
                f"{folder} belongs to another Kafila on this machine (process {_holder(descriptor)}): stop its"
                " `ollama serve`, or give this one a home of its own with KAFILA_HOME"
            )
        await asyncio.sleep(PAUSE_S)


def _holder(descriptor: int) -> str:
    said = os.pread(descriptor, 20, 0)
    return said.decode() if said.isdigit() else "not known"
