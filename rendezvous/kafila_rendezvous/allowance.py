"""What the system allows this process to have: open files, and threads. Looked at once, when it starts. And what this
process allows the system to keep of it."""

import contextlib
import os
import resource
import threading

NEEDED_FILES = 64  # of a server that idles, and a few connections
_FURTHER_TRIES = (65536, 10240)  # macOS calls its limit infinite and refuses that number


def raise_file_limit() -> int:
    """Lets this process open as many files as it may at most, and says how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, *_FURTHER_TRIES):
        if 0 <= wanted <= soft:
            break
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def leave_no_core() -> None:
    """Should this process crash, no picture of its memory stays on the disk: keys and prompts are in it. Nor of those
    that it starts."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def grpc_threads() -> int:
    """What gRPC starts at least; it ends the process where it can't."""
    return min(16, max(2, os.cpu_count() or 2)) + 6


def startable_threads(wanted: int) -> int:
    """How many of so many threads the system starts, beside those that run."""
    enough = threading.Event()
    started: list[threading.Thread] = []
    with contextlib.suppress(RuntimeError, MemoryError):
        for _ in range(wanted):
            thread = threading.Thread(target=enough.wait, daemon=True)
            thread.start()
            started.append(thread)
    enough.set()
    for thread in started:
        thread.join()
    return len(started)


def lacking(*, files: int, threads: int) -> str:
    """One sentence on what is too little of these; empty when there is enough. Raises the limit of files first."""
    allowed = raise_file_limit()
    if 0 <= allowed < files:
        return (
            f"this process may open {allowed} files at once and needs {files}: raise the limit where it is started"
            f" (`ulimit -n {files}`)"
        )
    return lacking_threads(threads)


def lacking_threads(wanted: int) -> str:
    """As `lacking`, of threads alone."""
    if (started := startable_threads(wanted)) < wanted:
        return (
            f"this process can start {started} more threads and needs {wanted}: raise the limits of its user's"
            " processes (`ulimit -u`), of its memory (`ulimit -v`) or of its container, or end other processes"
        )
    return ""
