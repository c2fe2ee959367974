"""Another user of the machine, at the server's loopback port: `make build` comes first."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import OLLAMA
from tests.support.fork import OllamaServer, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not OLLAMA.exists(), reason="make build has not been run")]

NOBODY = 65534
ROUTES: list[tuple[str, dict[str, Any] | None]] = [
    ("/api/session/list", None),
    ("/api/session/status?session=s1", None),
    ("/api/session/watch?session=s1", None),
    ("/api/session/code", {"session": "s1"}),
    ("/api/session/lock", {"session": "s1", "locked": True}),
    ("/api/session/kick", {"session": "s1", "member": "guest2"}),
    ("/api/session/replan", {"session": "s1"}),
    ("/api/session/replanning", {"session": "s1", "replanning": "never"}),
    ("/api/session/leave", {"session": "s1"}),
    ("/api/session/start", {"session": "s1"}),
    ("/api/session/choose", {"session": "s1", "objective": "paper"}),
    ("/api/session/open", {"code": "9-ocean-velvet-lamp"}),
    ("/api/session/join", {"session": "s9"}),
    ("/api/session/doctor", {}),
    ("/api/session/plan", {"model": "/etc/shadow"}),
    ("/api/session/create", {"model": "/etc/shadow"}),
    ("/api/session/create", {"model": "/no/such/file"}),
]

# A program becomes another user by itself, once it has imported what that user may not be able to read.
BECOME = f"""
import encodings.idna, http.server, json, os, sys, urllib.error, urllib.request
if os.geteuid() == 0:
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
"""
# What a program asks, and what it hears: status and sentence of each, as JSON.
STRANGER = """
said, headers = [], {"Content-Type": "application/json", **json.loads(sys.argv[3])}
for path, body in json.loads(sys.argv[2]):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(sys.argv[1] + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            said.append([answer.status, answer.read().decode()])
    except urllib.error.HTTPError as refused:
        with refused:
            said.append([refused.code, json.loads(refused.read())["error"]])
print(json.dumps(said))
"""
# A program that listens and tells what it is sent.
TRAP = """
class Trap(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, self.headers.get("Authorization"), flush=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")
    do_HEAD = do_GET
    def log_message(self, *_): pass
made = http.server.HTTPServer(("127.0.0.1", 0), Trap)
print(made.server_port, flush=True)
made.serve_forever()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OllamaServer]:
    running = OllamaServer(tmp_path_factory.mktemp("owner"))
    yield running
    running.end()


def heard(
    server: OllamaServer, asked: list[tuple[str, dict[str, Any] | None]], **headers: str
) -> list[tuple[int, str]]:
    """What another user's program hears."""
    arguments = [f"http://127.0.0.1:{server.port}", json.dumps(asked), json.dumps(headers)]
    command = [sys.executable, "-c", BECOME + STRANGER, *arguments]
    done = subprocess.run(command, env={}, cwd="/", capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return [(status, said) for status, said in json.loads(done.stdout)]


def test_session_routes_when_another_user_asks_tell_nothing_and_change_nothing(server: OllamaServer) -> None:
    before = server.get("/api/session/list")
    answers = heard(server, ROUTES)
    assert {status for status, _ in answers} == {401}
    sentences = {sentence for _, sentence in answers}
    assert len(sentences) == 1, "what a route knows shows in its refusal"
    sentence = sentences.pop()
    assert "KAFILA_TOKEN" in sentence
    assert "run this as" in sentence
    for word in ("ocean", "velvet", "shadow", "s1"):
        assert word not in sentence
    assert server.get("/api/session/list") == before


def test_session_routes_when_another_user_guesses_a_token_refuse(server: OllamaServer) -> None:
    token = (Path(server.env["KAFILA_HOME"]) / "token").read_text().strip()
    for guess in ("", token[:-1], token + "0", token.upper() + "x", "0" * len(token)):
        assert heard(server, [("/api/session/list", None)], Authorization=f"Bearer {guess}")[0][0] == 401, guess


def test_stock_routes_when_another_user_asks_answer_as_stock_does(server: OllamaServer) -> None:
    answers = heard(server, [("/api/version", None), ("/api/tags", None)])
    assert [status for status, _ in answers] == [200, 200]


def test_commands_when_another_user_types_them_say_what_to_do(server: OllamaServer) -> None:
    who: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    env = {"OLLAMA_HOST": f"127.0.0.1:{server.port}", "HOME": "/nonexistent", "PATH": os.environ["PATH"]}
    for command in (["session", "list"], ["session", "code"], ["run", "--session", "1-ocean-velvet-lamp", "hi"]):
        failed = subprocess.run(
            [OLLAMA, *command], env=env, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
            **who,
        )  # fmt: skip
        assert failed.returncode == 1, command
        assert "KAFILA_TOKEN" in failed.stderr, command
        assert "ocean" not in failed.stdout + failed.stderr.replace("1-ocean-velvet-lamp", ""), command


def test_token_when_the_server_starts_again_is_the_same_and_the_owners_alone(tmp_path: Path) -> None:
    first = OllamaServer(tmp_path)
    try:
        token = Path(first.env["KAFILA_HOME"]) / "token"
        made, mode = token.read_text(), token.stat().st_mode & 0o777
        first.process.terminate()
        first.process.wait(10)
        first.process = subprocess.Popen([OLLAMA, "serve"], env=first.env, stdout=first.log, stderr=first.log)
        eventually(lambda: first.get("/api/version"), seconds=20)
        assert (token.read_text(), mode) == (made, 0o600)
        assert first.run("session", "list").returncode == 0
    finally:
        first.end()


def test_token_when_another_user_holds_the_port_stays_at_home(server: OllamaServer) -> None:
    """A program of another user that listens where the server would be gets no token."""
    held = subprocess.Popen([sys.executable, "-c", BECOME + TRAP], cwd="/", stdout=subprocess.PIPE, text=True)
    try:
        assert held.stdout is not None
        port = int(held.stdout.readline())
        env = server.env | {"OLLAMA_HOST": f"127.0.0.1:{port}"}
        subprocess.run([OLLAMA, "session", "list"], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    finally:
        held.kill()
        held.wait()
    assert held.stdout is not None
    with held.stdout:
        sent = [line.split(maxsplit=1)[1].strip() for line in held.stdout if line.startswith("/api/session")]
    secret = (Path(server.env["KAFILA_HOME"]) / "token").read_text().strip()
    assert sent, "the command did not ask"
    if os.geteuid() == 0 and Path("/proc/net/tcp").exists():
        assert not any(secret in line for line in sent)
