"""What the system, Python and MLX say of too little, and the sentence that people read; a bug stays a bug."""

import asyncio
import errno
import os
from collections.abc import Sequence

import pytest

from kafila_sidecar.errors import Exhausted, KafilaError, Refused, Unavailable
from kafila_sidecar.lack import as_typed, in_words
from kafila_sidecar.net.candidates import Address, Candidate, Interface
from kafila_sidecar.net.nat.classify import Strays
from kafila_sidecar.net.nat.monitor import NetworkMonitor


def _system(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path) if path else OSError(number, os.strerror(number))


LACKS: list[tuple[str, BaseException, type[KafilaError], str]] = [
    ("files of this process", _system(errno.EMFILE, "/proc/net/dev"), Exhausted, "ulimit -n"),
    ("files of the machine", _system(errno.ENFILE), Exhausted, "fs.file-max"),
    ("memory of the system", _system(errno.ENOMEM), Exhausted, "ulimit -v"),
    ("memory of Python", MemoryError(), Exhausted, "ulimit -v"),
    ("memory of a socket", _system(errno.ENOBUFS), Exhausted, "memory"),
    ("a full disk", _system(errno.ENOSPC, "/home/x/y"), Refused, "the disk is full at /home/x/y"),
    ("a quota", _system(errno.EDQUOT), Refused, "the disk is full: make room"),
    ("a read-only disk", _system(errno.EROFS, "/home/x"), Refused, "/home/x can't be used (Read-only file system)"),
    ("a foreign folder", _system(errno.EACCES, "/home/x"), Refused, "KAFILA_HOME"),
    ("threads", RuntimeError("can't start new thread"), Exhausted, "ulimit -u"),
    ("memory of MLX", RuntimeError("[malloc] Unable to allocate 2500000 bytes."), Refused, "for 2.5 MB more"),
    (
        "memory of Apple's GPU",
        RuntimeError("[metal::malloc] Attempting to allocate 3000000 bytes which is greater than the maximum"),
        Refused,
        "for 3.0 MB more",
    ),
    (
        "a folder for temporary files",
        FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"),
        Refused,
        "TMPDIR",
    ),
    ("a package", ModuleNotFoundError("No module named 'a.b'", name="a.b"), Unavailable, "the Python package a is"),
    ("files for a library", ImportError("libx.so: Too many open files"), Unavailable, "ulimit -n"),
    ("memory for a library", ImportError("libx.so: failed to map segment"), Unavailable, "ulimit -v"),
    ("one of several", ExceptionGroup("", [ExceptionGroup("", [MemoryError()])]), Exhausted, "ulimit -v"),
]

BUGS: list[BaseException] = [
    ValueError("x"),
    RuntimeError("x"),
    _system(errno.EACCES),  # of a socket: a firewall, not a folder
    _system(errno.ENOENT, "/x"),
    _system(errno.EBADF),
    KeyError("x"),
    ExceptionGroup("", [MemoryError(), ValueError("x")]),
    asyncio.CancelledError(),
]


@pytest.mark.parametrize(("error", "kind", "words"), [row[1:] for row in LACKS], ids=[row[0] for row in LACKS])
def test_lack_when_an_error_tells_of_it_then_one_sentence(
    error: Exception, kind: type[KafilaError], words: str
) -> None:
    typed = as_typed(error)
    assert type(typed) is kind
    assert words in str(typed)
    assert "\n" not in str(typed)
    with pytest.raises(kind), in_words():
        raise error


@pytest.mark.parametrize("error", BUGS, ids=repr)
def test_lack_when_an_error_is_a_bug_then_it_stays_one(error: BaseException) -> None:
    assert as_typed(error) is None
    with pytest.raises(type(error)), in_words():
        raise error


class _Endpoint:
    """A socket that nobody asks anything."""

    further: tuple[Candidate, ...] = ()
    address: Address = ("192.0.2.1", 9)

    def __init__(self) -> None:
        self.on_path_died = lambda: None

    def send(self, datagrams: Sequence[bytes], target: Address) -> None: ...
    def hear(self, strays: Strays | None) -> None: ...
    def network_changed(self) -> None: ...


async def test_network_monitor_when_the_system_does_not_tell_the_interfaces_then_it_looks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafila_sidecar.net.nat.monitor.LOOK_EVERY_S", 0.001)
    looks = 0
    enough = asyncio.Event()

    def interfaces() -> list[Interface]:
        nonlocal looks
        looks += 1
        if looks == 20:
            enough.set()
        if looks % 2:
            raise _system(errno.EMFILE, "/proc/net/dev")
        return [Interface("eth0", True, ("192.0.2.1",))]

    watching = asyncio.create_task(NetworkMonitor(_Endpoint(), interfaces=interfaces).run())
    await asyncio.wait_for(enough.wait(), 10)
    assert not watching.done()
    watching.cancel()
    await asyncio.wait([watching])
