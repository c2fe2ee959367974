"""The built Ollama fork as a process, in front of a sidecar that only echoes: `make build` comes first."""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.cluster import OLLAMA, ROOT, free_port, owner_headers

ECHO = ROOT / "tests" / "support" / "echo_sidecar.py"


class OllamaServer:
    """`ollama serve` with a home of its own, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        program = folder / "kafila-sidecar"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ECHO}" "$@"\n')
        program.chmod(0o755)
        self.port = free_port()
        self.env = os.environ | {
            "HOME": str(self.home),
            "KAFILA_HOME": str(folder / "data"),
            "KAFILA_SIDECAR": str(program),
            "OLLAMA_HOST": f"127.0.0.1:{self.port}",
            "OLLAMA_MODELS": str(folder / "models"),
            "KAFILA_MDNS": "0",
            "OLLAMA_NO_CLOUD": "1",
        }
        self.sequences = folder / "data" / "sequences"
        self.log = (folder / "log").open("w")
        self.process = subprocess.Popen([OLLAMA, "serve"], env=self.env, stdout=self.log, stderr=self.log)
        eventually(lambda: self.get("/api/version"), seconds=20)
        self.run("session", "create", "test/echo", "--members", "1", "--concurrency", "2")

    def run(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """One command of the command line, without a terminal."""
        return subprocess.run(
            [OLLAMA, *args],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=check,
        )

    def get(self, path: str, **headers: str) -> Any:
        return self.lines(path, None, **headers)[0]

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self.lines(path, body)[0]

    def lines(self, path: str, body: dict[str, Any] | None, **headers: str) -> list[Any]:
        with self.open(path, body, **headers) as answer:
            return [json.loads(line) for line in answer.read().splitlines() if line]

    def open(self, path: str, body: dict[str, Any] | None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | owner_headers(self.env["KAFILA_HOME"]) | headers
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        return urllib.request.urlopen(request, timeout=20)

    def refusal(self, path: str, body: dict[str, Any] | None, **headers: str) -> tuple[int, str]:
        """Status and sentence of a request that has to fail."""
        with pytest.raises(urllib.error.HTTPError) as failed:
            self.open(path, body, **headers)
        answer = failed.value
        with contextlib.closing(answer.fp):
            return answer.code, json.loads(answer.fp.read())["error"]

    def family(self) -> list[psutil.Process]:
        """The server and all that it started."""
        server = psutil.Process(self.process.pid)
        return [server, *server.children(recursive=True)]

    def end(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in self.family()[::-1]:
                process.kill()
        self.process.wait()
        self.log.close()


def eventually(check: Callable[[], Any], *, seconds: float) -> Any:
    """The first truthy answer of check, which may also raise OSError for a while."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if answer := check():
                return answer
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)
