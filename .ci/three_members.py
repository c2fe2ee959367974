"""`python three_members.py KAFILA MODEL`: three members on this machine answer a question, from an installed package.

KAFILA is the command, MODEL a folder with a small model that knows where Paris is. Nothing else is given: PATH has the
system's programs only, each member has a home of its own, and the first one's machine is where the others meet and
take the weights from. Uses the standard library alone, and nothing of the source tree.
"""

import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

QUESTION = "What is the capital of France?"
SERVE_DEADLINE_S = 60.0
FORM_DEADLINE_S = 300.0
CODE = re.compile(r"\b\d+(?:-[a-z]+){3}(?:@\S+)?")


@dataclass(frozen=True, slots=True)
class Member:
    """A server with its home, and the commands of its owner."""

    kafila: Path
    environment: dict[str, str]
    log: Path

    def command(self, *words: str, stderr: int = subprocess.STDOUT) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [self.kafila, *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def says(self, *words: str) -> str:
        """What a command prints for others to use, that succeeds in time."""
        running = self.command(*words, stderr=subprocess.DEVNULL)
        printed, _ = running.communicate(timeout=FORM_DEADLINE_S)
        if running.returncode:
            sys.exit(f"kafila {' '.join(words)} failed:\n{printed}\n{self.log.read_text(errors='replace')[-4000:]}")
        return printed


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    kafila, model = (Path(one).absolute() for one in sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="kafila-") as folder, ExitStack() as stack:
        members = [stack.enter_context(serving(kafila, Path(folder), name)) for name in ("ada", "bob", "cyd")]
        answer = asked(members, model)
    print(f"{QUESTION} {answer}")
    if "Paris" not in answer:
        sys.exit("that is no answer")


def asked(members: list[Member], model: Path) -> str:
    """The answer at the second member, in a session that the first one opens."""
    ada, bob, cyd = members
    opening = ada.command("session", "create", str(model), "--members", "3", "--require", "all", "--context", "1024")
    joining = cyd.command("session", "join", code := code_in(opening.stdout), "--yes")
    answer = bob.says("run", "--session", code, "--yes", QUESTION)
    for running in (opening, joining):
        running.communicate(timeout=FORM_DEADLINE_S)
    print(ada.says("session", "status"))
    return answer.strip()


def code_in(printed: IO[str] | None) -> str:
    for line in printed or ():
        print("  |", line.rstrip())
        if found := CODE.search(line):
            return found.group()
    sys.exit("no code was printed")


@contextmanager
def serving(kafila: Path, folder: Path, name: str) -> Iterator[Member]:
    home = folder / name
    home.mkdir()
    port = free_port()
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "OLLAMA_HOST": f"127.0.0.1:{port}",
        "KAFILA_NAME": name,
        "KAFILA_PORT_MAPPING": "0",
        "KAFILA_MDNS": "0",
        "KAFILA_SPARE": "0",
    }
    member = Member(kafila, environment, home / "log")
    with member.log.open("wb") as log:
        server = subprocess.Popen([kafila, "serve"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_for(port, server, member.log)
        yield member
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + SERVE_DEADLINE_S
    while server.poll() is None and time.monotonic() < until:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api/version", timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"the server does not answer:\n{log.read_text(errors='replace')[-4000:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
