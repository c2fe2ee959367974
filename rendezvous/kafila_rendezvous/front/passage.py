"""Two sockets, each of which gets what the other one sends: one chunk waits in either direction, and no more."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

CHUNK_BYTES = 64 * 1024
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: nothing stays behind in the kernel


class Flow:
    """One direction. Reads only when what it read before is written, so the kernel slows the sender down."""

    def __init__(
        self, source: socket.socket, target: socket.socket, passed: Callable[[int], bool], ended: Callable[[], None]
    ) -> None:
        """`passed` hears how much was read, and says whether to go on reading; `ended`: nothing more comes or goes."""
        self.has_ended = False
        self._loop = asyncio.get_running_loop()
        self._source, self._target = source, target
        self._passed, self._ended = passed, ended
        self._waiting: memoryview | None = None
        self._may_read = True
        self._loop.add_reader(source, self._readable)

    def resume(self) -> None:
        """Goes on after `passed` had said no."""
        if not self._may_read:
            self._may_read = True
            if self._waiting is None and not self.has_ended:
                self._loop.add_reader(self._source, self._readable)

    def close(self) -> None:
        self.has_ended = True
        self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._target)

    def _readable(self) -> None:
        try:
            chunk = self._source.recv(CHUNK_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._ended()
            return
        if not chunk:
            self._ended()
            return
        may_go_on = self._passed(len(chunk))
        if self.has_ended:  # `passed` closed us
            return
        if not may_go_on:
            self._may_read = False
            self._loop.remove_reader(self._source)
        self._write(memoryview(chunk))

    def _write(self, chunk: memoryview) -> None:
        try:
            sent = self._target.send(chunk)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._ended()
            return
        if sent < len(chunk):
            if self._waiting is None:
                self._loop.remove_reader(self._source)
                self._loop.add_writer(self._target, self._writable)
            self._waiting = chunk[sent:]
        elif self._waiting is not None:
            self._waiting = None
            self._loop.remove_writer(self._target)
            if self._may_read:
                self._loop.add_reader(self._source, self._readable)

    def _writable(self) -> None:
        assert self._waiting is not None
        self._write(self._waiting)


def refuse(sock: socket.socket) -> None:
    """Closes a connection so that nothing of it stays behind here."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    sock.close()
