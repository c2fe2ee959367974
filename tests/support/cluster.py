"""Starts the real thing on this machine: a rendezvous, a model host, and members that each run `ollama serve`.

Every member has its own home, store and port, as on machines of their own. All processes end with the cluster.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
OLLAMA = ROOT / ".build" / "ollama"
START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 15.0

Inside = Callable[[], AbstractContextManager[None]]
"""Makes a block whose sockets and processes are in some network."""


def free_port() -> int:
    """A TCP port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def owner_headers(kafila_home: str | Path) -> dict[str, str]:
    """What a server's owner sends to control its sessions; nothing before the server has left its token."""
    token = Path(kafila_home) / "token"
    return {"Authorization": f"Bearer {token.read_text().strip()}"} if token.exists() else {}


@dataclass(slots=True)
class Process:
    """A process of ours with its log."""

    popen: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for whoever does not listen."""
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@dataclass(slots=True)
class ClusterMember:
    """One `ollama serve` with its sidecar. `inside`: entered by who talks to it, where it has a network of its own."""

    name: str
    host: str  # 127.0.0.1:PORT
    environment: Mapping[str, str]
    home: Path
    process: Process
    inside: Inside = nullcontext

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def ollama(
        self, *arguments: str, timeout_s: float = 120.0, check: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Runs the command line as this member's owner would."""
        with self.inside():
            return subprocess.run(
                [str(OLLAMA), *arguments],
                env=dict(self.environment),
                text=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=timeout_s,
                check=check,
            )

    def request(self, path: str, body: Any = None, *, timeout_s: float = 60.0) -> tuple[int, Any]:
        """Status and JSON of one HTTP call; NDJSON answers come as a list."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | owner_headers(self.environment["KAFILA_HOME"])
        call = urllib.request.Request(self.url + path, data=data, headers=headers)
        try:
            with self._open(call, timeout_s) as answer:
                return answer.status, _json_of(answer.read(), answer.headers.get("Content-Type", ""))
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _json_of(error.read(), "application/json")

    def lines(self, path: str, body: Any = None, *, timeout_s: float = 60.0) -> Generator[Any, None, None]:
        """The lines of a streamed answer, as they come."""
        data = None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(self.url + path, data=data, headers={"Content-Type": "application/json"})
        with self._open(call, timeout_s) as answer:
            for line in answer:
                if line.strip():
                    yield json.loads(line)

    def _open(self, call: urllib.request.Request, timeout_s: float) -> Any:
        with self.inside():
            return urllib.request.urlopen(call, timeout=timeout_s)

    def session(self) -> dict[str, Any]:
        """This member's only open session, as `session list` knows it, else one that is over."""
        _, answer = self.request("/api/session/list")
        sessions = answer.get("sessions", [])
        is_open = [session for session in sessions if session["state"] != "closed"]
        return next(iter(is_open or sessions), {})

    def pids(self) -> list[int]:
        """Of all its processes: the server, what it started, and what those did."""
        return _family(self.process.popen.pid)

    def sidecar_pid(self) -> int:
        """The process id of this member's sidecar."""
        children = Path(f"/proc/{self.process.popen.pid}/task").glob("*/children")
        pids = [int(pid) for file in children for pid in file.read_text().split()]
        return next(pid for pid in pids if b"sidecar" in Path(f"/proc/{pid}/cmdline").read_bytes())


@dataclass(slots=True)
class Cluster:
    """A rendezvous, a model host and members, with everything that they write below one folder."""

    folder: Path
    rendezvous: str = ""
    hub: str = ""
    members: list[ClusterMember] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends every process, the latest first."""
        self._stack.close()

    def start_rendezvous(self, host: str = "127.0.0.1") -> None:
        port = free_port()
        address = f"{host}:{port}"
        self.spawn(
            "rendezvous",
            [sys.executable, "-m", "kafila_rendezvous", "--listen", address, "--insecure"],
            dict(os.environ),
        )
        self.rendezvous = f"grpc+insecure://{address}"
        _wait_for_port(port, host)

    def start_model_host(self, *folders: Path) -> None:
        port = free_port()
        command = [sys.executable, "-m", "tests.support.model_host", "--port", str(port), *map(str, folders)]
        self.spawn("model-host", command, dict(os.environ))
        self.hub = f"http://127.0.0.1:{port}"
        _wait_for_port(port)

    def start_member(self, name: str, inside: Inside = nullcontext, **variables: str) -> ClusterMember:
        """Starts `ollama serve` with its own home and port, in its own network; returns once it answers. `variables`:
        of its environment."""
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        port = free_port()
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("OLLAMA_", "KAFILA_", "HF_"))},
            "HOME": str(home),
            "OLLAMA_HOST": f"127.0.0.1:{port}",
            "OLLAMA_MODELS": str(home / "models"),
            "KAFILA_HOME": str(home / "kafila"),
            "KAFILA_NAME": name,
            "KAFILA_SIDECAR": str(Path(sys.executable).with_name("kafila-sidecar")),
            "KAFILA_RENDEZVOUS": self.rendezvous,
            "HF_ENDPOINT": self.hub,
            "KAFILA_MDNS": "0",  # no word to the network that these machines are in
            "KAFILA_SPARE": "0",  # what a test counts does not depend on how long it was idle
            "OMP_NUM_THREADS": "2",
            **variables,
        }
        with inside():
            process = self.spawn(name, [str(OLLAMA), "serve"], environment)
        member = ClusterMember(name, f"127.0.0.1:{port}", environment, home, process, inside)
        self.members.append(member)
        _wait_for_member(member)
        return member

    def start_again(self, member: ClusterMember) -> None:
        """Starts `ollama serve` of a member whose processes are gone, as it was started first."""
        with member.inside():
            member.process = self.spawn(member.name, [str(OLLAMA), "serve"], dict(member.environment))

    def spawn(self, name: str, command: list[str], environment: dict[str, str]) -> Process:
        log = self.folder / f"{name}.log"
        with log.open("ab") as out:
            popen = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        process = Process(popen, log)
        self._stack.callback(process.stop)
        return process


def make_cluster(*names: str, folders: tuple[Path, ...], below: Path | None = None) -> Cluster:
    """A rendezvous, a model host that serves `folders`, and a member for each name."""
    cluster = Cluster(below or Path(tempfile.mkdtemp(prefix="kafila-")))
    cluster.folder.mkdir(parents=True, exist_ok=True)
    try:
        cluster.start_rendezvous()
        cluster.start_model_host(*folders)
        for name in names:
            cluster.start_member(name)
    except BaseException:
        cluster.stop()
        raise
    return cluster


def kill(pid: int) -> None:
    """SIGKILL: the machine is gone without a word."""
    os.kill(pid, signal.SIGKILL)


def kill_all(members: Iterable[ClusterMember]) -> None:
    """A power cut: SIGKILL to all their processes at once."""
    members = list(members)
    pids = [pid for member in members for pid in member.pids()]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for member in members:
        member.process.popen.wait(STOP_DEADLINE_S)


def _family(pid: int) -> list[int]:
    try:
        files = list(Path(f"/proc/{pid}/task").glob("*/children"))
        children = [int(child) for file in files for child in file.read_text().split()]
    except FileNotFoundError:
        return []
    return [pid, *(one for child in children for one in _family(child))]


def _wait_for_port(port: int, host: str = "127.0.0.1") -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port} after {START_DEADLINE_S:.0f} s")


def _wait_for_member(member: ClusterMember) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        if member.process.popen.poll() is not None:
            break
        try:
            status, _ = member.request("/api/session/list", timeout_s=5)
            if status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"{member.name} did not come up:\n{member.process.log_tail()}")


def _json_of(raw: bytes, content_type: str) -> Any:
    if "ndjson" in content_type:
        return [json.loads(line) for line in raw.splitlines() if line.strip()]
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")
