"""A command at a terminal of its own, which a person types into and reads."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

COMMANDS = re.compile(r"\x1b\[[?0-9;]*[a-zA-Z]")
SPINNING = re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] ")
CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """Ends with its block, and the command with it."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, rows: int = 50, columns: int = 120
    ) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._ours = ours
        self._unread = ""
        self._process = subprocess.Popen(
            command, env=dict(environment), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C reaches it
        )  # fmt: skip
        os.close(theirs)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._ours)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, pattern: str, deadline_s: float = 180.0) -> str:
        """What was shown since the last call up to what this matches, with the terminal's commands."""
        deadline = time.monotonic() + deadline_s
        while not (found := re.search(pattern, self._unread)):
            assert time.monotonic() < deadline, f"no {pattern!r} within {deadline_s:.0f} s: {self._unread[-2000:]!r}"
            self._read()
        shown, self._unread = self._unread[: found.end()], self._unread[found.end() :]
        return shown

    def ended(self, deadline_s: float = 90.0) -> int:
        """The command's status, once it has ended by itself."""
        deadline = time.monotonic() + deadline_s
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"it goes on after {deadline_s:.0f} s: {self._unread[-2000:]!r}"
            self._read()
        return int(self._process.returncode)

    def _read(self) -> None:
        if select.select([self._ours], [], [], 0.1)[0]:
            try:
                self._unread += os.read(self._ours, 1 << 16).decode(errors="replace")
            except OSError:  # nobody writes there any more
                time.sleep(0.05)


def read(shown: str) -> list[str]:
    """The lines of what was shown, without the terminal's commands, spinners and blank lines."""
    lines = SPINNING.sub("", COMMANDS.sub("", shown)).replace("\r", "\n").splitlines()
    return [line.strip() for line in lines if line.strip()]
