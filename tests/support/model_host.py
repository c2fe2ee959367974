"""A model host: serves Hub-style folders over HTTP the way the Hub does, counts bytes, and fails on demand.

    python -m tests.support.model_host [--port P] [--rate BYTES_PER_S] [NAME=]FOLDER …

In a process of its own, `GET /_counts` tells the bytes sent by file, and `POST /_faults` sets faults (a JSON object).
"""

import argparse
import hashlib
import json
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

PIECE = 1 << 18
"""Bytes written at once."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong with requests for files whose name contains `only`."""

    only: str = ""
    slow_s: float = 0.0  # before each answer
    rate_bytes_per_s: float | None = None
    cut_after_bytes: int | None = None  # of a body; then the connection is dropped
    whole: bool = False  # ranges are ignored: 200 instead of 206
    wrong_range: bool = False  # 206 with other bytes than were asked for
    status: int | None = None  # instead of the file
    times: int | None = None  # how many requests suffer; None means all


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """One request for a file, as it was answered."""

    method: str
    repo: str
    file: str
    asked: str | None  # the Range header
    token: str | None
    agent: str
    cdn: bool
    status: int
    sent_bytes: int


@dataclass
class ModelHost:
    """Serves `folders` by repository id, from `start` (or `with`) to `stop`.

    A repository in `gated` wants its token. With `cdn`, weight files are answered by a redirect to a second port,
    as the Hub sends its large files to another host. Revisions don't follow changes of the folders; ETags do.
    """

    folders: Mapping[str, Path]
    gated: Mapping[str, str] = field(default_factory=dict)
    cdn: bool = False
    digests: bool = True  # whether the description tells the SHA-256 of weight files
    port: int = 0
    faults: Faults = field(default_factory=Faults)
    seen: list[AnsweredRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: list[ThreadingHTTPServer] = []
        self.revisions = {repo: revision_of(folder) for repo, folder in self.folders.items()}

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._servers[0].server_port}"

    @property
    def cdn_endpoint(self) -> str:
        return f"http://127.0.0.1:{self._servers[1].server_port}"

    def start(self) -> None:
        for port in (self.port, 0) if self.cdn else (self.port,):
            server = ThreadingHTTPServer(("127.0.0.1", port), handler_of(self))
            server.daemon_threads = True
            self._servers.append(server)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def counts(self) -> dict[str, int]:
        """Bytes of file bodies sent so far, by `repo/file`."""
        with self._lock:
            totals: dict[str, int] = {}
            for request in self.seen:
                key = f"{request.repo}/{request.file}"
                totals[key] = totals.get(key, 0) + request.sent_bytes
            return totals

    def sent_bytes(self, suffix: str = "") -> int:
        return sum(count for file, count in self.counts().items() if file.endswith(suffix))

    def note(self, request: AnsweredRequest) -> None:
        with self._lock:
            self.seen.append(request)

    def fault_for(self, file: str) -> Faults:
        with self._lock:
            faults = self.faults
            if faults.only not in file or faults.times == 0:
                return Faults()
            if faults.times is not None:
                self.faults = replace(faults, times=faults.times - 1)
            return faults


def revision_of(folder: Path) -> str:
    digest = hashlib.sha1()
    for path in sorted(folder.iterdir()):
        content = path.read_bytes() if path.suffix != ".safetensors" else b""
        digest.update(f"{path.name} {path.stat().st_size} ".encode() + content)
    return digest.hexdigest()


def etag_of(path: Path) -> str:
    stat = path.stat()
    return f'"{hashlib.sha1(f"{path.name} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()}"'


def file_info(path: Path, digests: bool) -> dict[str, Any]:
    """What the Hub tells of a file with `blobs=true`; it knows the SHA-256 of large files only."""
    size = path.stat().st_size
    info = {"rfilename": path.name, "size": size}
    if path.suffix != ".safetensors" or not digests:
        return info
    sha256 = sha256_of(path, path.stat().st_mtime_ns)
    return info | {"lfs": {"sha256": sha256, "oid": sha256, "size": size, "pointerSize": 134}}


@cache
def sha256_of(path: Path, changed_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def handler_of(host: ModelHost) -> type[BaseHTTPRequestHandler]:
    return type("BoundHandler", (Handler,), {"host": host})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    host: ModelHost

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True  # the client went away

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        if path == "_counts":
            return self.answer_json(200, self.host.counts())
        if path == "api/models":
            return self.answer_search(parse_qs(urlsplit(self.path).query))
        if path.startswith("api/models/"):
            return self.answer_info(path.removeprefix("api/models/"))
        if path.startswith("_cdn/"):
            repo, _, file = path.removeprefix("_cdn/").rpartition("/")
            return self.answer_file(repo, file, cdn=True)
        repo, resolve, rest = path.partition("/resolve/")
        revision, _, file = rest.partition("/")
        return self.answer_resolve(repo, revision, file) if resolve else self.answer_error(404, None, path)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.host.faults = Faults(**json.loads(body))
        self.answer_json(200, {})

    def answer_info(self, path: str) -> None:
        """`path` is REPO, REPO/revision/REV, or REPO/tree/REV for the list of files alone."""
        repo, what, revision = re.fullmatch(r"(.+?)(?:/(revision|tree)/(.+))?", path).groups()  # type: ignore[union-attr]
        if self.known(repo, revision or "main"):
            files = [file_info(file, self.host.digests) for file in sorted(self.host.folders[repo].iterdir())]
            tree = [{"type": "file", "path": file["rfilename"], "oid": "0" * 40} | file for file in files]
            gated = "manual" if repo in self.host.gated else False
            info = {"id": repo, "sha": self.host.revisions[repo], "private": False, "gated": gated, "siblings": files}
            self.answer_json(200, tree if what == "tree" else info)

    def answer_search(self, query: Mapping[str, list[str]]) -> None:
        words, most = query["search"][0].lower(), int(query["limit"][0])
        names = [repo for repo in self.host.folders if words in repo.lower()]
        self.answer_json(200, [{"id": repo, "modelId": repo} for repo in names[:most]])

    def known(self, repo: str, revision: str) -> bool:
        if repo not in self.host.folders:
            # The Hub doesn't tell strangers whether a private repository exists.
            status, code = (404, "RepoNotFound") if self.token() else (401, None)
            self.answer_error(status, code, "Repository not found")
        elif revision not in ("main", self.host.revisions[repo]):
            self.answer_error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return True
        return False

    def answer_resolve(self, repo: str, revision: str, file: str) -> None:
        if not self.known(repo, revision):
            return None
        wanted = self.host.gated.get(repo)
        if wanted is not None and self.token() != wanted:
            self.note(repo, file, False, 403 if self.token() else 401, 0)
            return self.answer_error(
                403 if self.token() else 401, "GatedRepo", f"Access to model {repo} is restricted."
            )
        return self.answer_file(repo, file, cdn=False)

    def answer_file(self, repo: str, file: str, *, cdn: bool) -> None:
        folder = self.host.folders.get(repo)
        path = None if folder is None or "/" in file else folder / file
        if path is None or not path.is_file():
            return self.answer_error(404, "EntryNotFound", f"Entry not found: {file}")
        faults = self.host.fault_for(file)
        time.sleep(faults.slow_s)
        if faults.status is not None:
            self.note(repo, file, cdn, faults.status, 0)
            return self.answer_error(faults.status, None, "as asked")
        if self.host.cdn and not cdn and file.endswith(".safetensors"):
            self.note(repo, file, cdn, 302, 0)
            return self.answer_redirect(repo, path)
        status, start, end = self.part(path, faults)
        self.send_head(repo, path, status, start, end, faults)
        sent = 0
        if self.command == "GET" and status != 416:
            sent = min(end - start, faults.cut_after_bytes if faults.cut_after_bytes is not None else end - start)
        self.note(repo, file, cdn, status, sent)
        self.send_body(path, start, sent, faults)
        if self.command == "GET" and sent < end - start:
            self.close_connection = True
        return None

    def part(self, path: Path, faults: Faults) -> tuple[int, int, int]:
        """Status and the half-open byte range to answer with. One range only, as `bytes=a-b` or `bytes=a-`."""
        size = path.stat().st_size
        asked = self.headers.get("Range")
        fresh = self.headers.get("If-Range") in (None, etag_of(path))
        if asked is None or not fresh or faults.whole:
            return 200, 0, size
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last) + 1 if last else size, size)
        return (206, start, end) if start < end else (416, 0, 0)

    def send_head(self, repo: str, path: Path, status: int, start: int, end: int, faults: Faults) -> None:
        size = path.stat().st_size
        self.send_response(status)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", etag_of(path))
        self.send_header("X-Repo-Commit", self.host.revisions[repo])
        if status == 206:
            shift = 1 if faults.wrong_range else 0
            self.send_header("Content-Range", f"bytes {start + shift}-{end - 1 + shift}/{size}")
        if status == 416:
            self.send_header("Content-Range", f"bytes */{size}")
        self.end_headers()

    def send_body(self, path: Path, start: int, count: int, faults: Faults) -> None:
        with path.open("rb") as file:
            file.seek(start)
            while count > 0:
                piece = file.read(min(PIECE, count))
                if faults.rate_bytes_per_s is not None:
                    time.sleep(len(piece) / faults.rate_bytes_per_s)
                self.wfile.write(piece)
                count -= len(piece)

    def answer_redirect(self, repo: str, path: Path) -> None:
        self.send_response(302)
        self.send_header("Location", f"{self.host.cdn_endpoint}/_cdn/{repo}/{path.name}")
        self.send_header("X-Repo-Commit", self.host.revisions[repo])
        self.send_header("X-Linked-ETag", etag_of(path))
        self.send_header("X-Linked-Size", str(path.stat().st_size))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def answer_json(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_error(self, status: int, code: str | None, message: str) -> None:
        self.send_response(status)
        if code is not None:
            self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def token(self) -> str | None:
        value: str | None = self.headers.get("Authorization")
        return None if value is None else value.removeprefix("Bearer ")

    def note(self, repo: str, file: str, cdn: bool, status: int, sent_bytes: int) -> None:
        agent = self.headers.get("User-Agent", "")
        asked = self.headers.get("Range")
        self.host.note(AnsweredRequest(self.command, repo, file, asked, self.token(), agent, cdn, status, sent_bytes))


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve Hub-style folders over HTTP on the loopback interface.")
    parser.add_argument("folders", nargs="+", metavar="[NAME=]FOLDER", help="NAME is a repository id: org/model")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rate", type=float, metavar="BYTES_PER_S")
    options = parser.parse_args()
    pairs = [argument.rpartition("=") for argument in options.folders]
    folders = {name or f"kafila/{Path(path).name}": Path(path) for name, _, path in pairs}
    host = ModelHost(folders, port=options.port, faults=Faults(rate_bytes_per_s=options.rate))
    with host:
        print(json.dumps({"endpoint": host.endpoint, "models": sorted(folders)}), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
