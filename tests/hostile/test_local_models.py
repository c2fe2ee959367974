"""Models that pose as a session's, and the ports of the runners: `make build` comes first."""

import hashlib
import http.client
import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import OLLAMA
from tests.support.fork import OllamaServer, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not OLLAMA.exists(), reason="make build has not been run")]

MODEL = "kafila/session/echo:s1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OllamaServer]:
    running = OllamaServer(tmp_path_factory.mktemp("models"))
    yield running
    running.end()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[OllamaServer]:
    running = OllamaServer(tmp_path)
    yield running
    running.end()


def manifest_of(server: OllamaServer) -> dict[str, Any]:
    path = Path(server.env["OLLAMA_MODELS"]) / "manifests" / "kafila" / "session" / "echo" / "s1"
    manifest: dict[str, Any] = json.loads(path.read_text())
    return manifest


def stub_of(server: OllamaServer) -> bytes:
    """The session's stub model, as anybody can read it who can read the store."""
    layer = next(layer for layer in manifest_of(server)["layers"] if layer["mediaType"].endswith("image.model"))
    return blob(server, layer["digest"]).read_bytes()


def blob(server: OllamaServer, digest: str) -> Path:
    return Path(server.env["OLLAMA_MODELS"]) / "blobs" / digest.replace(":", "-")


def plant(server: OllamaServer, name: str, stub: bytes) -> None:
    """A model with this file in the store, as a pull from a registry leaves it."""
    digest = "sha256:" + hashlib.sha256(stub).hexdigest()
    blob(server, digest).write_bytes(stub)
    manifest = manifest_of(server)
    for layer in manifest["layers"]:
        if layer["mediaType"].endswith("image.model"):
            layer["digest"] = digest
    path = Path(server.env["OLLAMA_MODELS"]) / "manifests" / "registry.ollama.ai" / "library" / name / "latest"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(manifest))


def forged(stub: bytes) -> bytes:
    """The same claim to stand for the session, without knowing the server's secret."""
    return re.sub(rb"[0-9a-f]{64}", b"0" * 64, stub)


def names(server: OllamaServer) -> list[str]:
    return sorted(model["name"] for model in server.get("/api/tags")["models"])


def asked(server: OllamaServer) -> int:
    """How many answers the sidecar has begun and ended."""
    return server.sequences.read_text().count("\n") if server.sequences.exists() else 0


def private(name: str) -> dict[str, Any]:
    return {"model": name, "messages": [{"role": "user", "content": "a private question"}], "stream": False}


def test_model_when_its_marker_is_forged_is_refused_in_words_and_asks_nobody(server: OllamaServer) -> None:
    plant(server, "llama3", forged(stub_of(server)))
    before = asked(server)
    for path in ("/api/chat", "/api/generate", "/v1/chat/completions"):
        status, sentence = refusal(server, path, private("llama3") | {"prompt": "a private question"})
        assert status >= 400, path
        assert "did not make it" in sentence, sentence
    assert asked(server) == before
    said = server.run("run", "llama3", "a private question", check=False)
    assert (said.returncode, "did not make it" in said.stderr, said.stdout.strip()) == (1, True, "")
    server.run("rm", "llama3")
    assert names(server) == [MODEL]
    assert forged(stub_of(server)) != stub_of(server), "the marker carries no secret"


def refusal(server: OllamaServer, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """As Ollama or as OpenAI words it."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    said = json.loads(answer.read())["error"]
    connection.close()
    return answer.status, said if isinstance(said, str) else said["message"]


def test_copies_when_somebody_makes_them_are_refused(server: OllamaServer, tmp_path: Path) -> None:
    stub = stub_of(server)
    digest = "sha256:" + hashlib.sha256(stub).hexdigest()
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text(f"FROM {MODEL}\n")
    by_file = tmp_path / "Byfile"
    (tmp_path / "stolen.gguf").write_bytes(stub)
    by_file.write_text(f"FROM {tmp_path / 'stolen.gguf'}\n")
    for command in (
        ["cp", MODEL, "mine"],
        ["cp", "KAFILA/Session/echo:s1", "mine"],
        ["create", "mine", "-f", str(modelfile)],
        ["create", "mine", "-f", str(by_file)],
    ):
        failed = server.run(*command, check=False)
        assert (failed.returncode, "can't be copied" in failed.stderr) == (1, True), (command, failed.stderr)
    for path, body in (
        ("/api/copy", {"source": MODEL, "destination": "mine"}),
        ("/api%2Fcopy", {"source": MODEL, "destination": "mine"}),
        ("/api/create", {"model": "mine", "from": MODEL}),
        ("/api/create", {"model": "mine", "files": {"m.gguf": digest}}),
        ("/api/create", {"model": "kafila/session/planted:s1", "from": "mine"}),
        ("/api/experimental/aliases", {"alias": "mine", "target": MODEL}),
        ("/api%2Fexperimental/aliases", {"alias": "mine", "target": MODEL}),
    ):
        assert server.refusal(path, body)[0] == 403, path
    assert names(server) == [MODEL]


def test_pull_and_push_of_a_sessions_model_never_ask_the_network(server: OllamaServer) -> None:
    for command in (["pull", MODEL], ["push", MODEL], ["pull", "kafila/session/gone:s7"]):
        failed = server.run(*command, check=False)
        assert (failed.returncode, "session" in failed.stderr) == (1, True), (command, failed.stderr)
    for path in ("/api/pull", "/api/push", "/api%2Fpull"):
        for name in (MODEL, "https://kafila/session/echo:s1", "Kafila/SESSION/echo:s1"):
            status, sentence = server.refusal(path, {"model": name})
            assert (status, "model of a session" in sentence) == (403, True), (path, sentence)
    log = Path(server.log.name).read_text()
    assert "lookup kafila" not in log
    assert "pulling manifest" not in log


def test_delete_of_a_sessions_model_says_to_leave_instead(server: OllamaServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("DELETE", "/api/delete", json.dumps({"model": MODEL}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert (answer.status, "ollama session leave" in json.loads(answer.read())["error"]) == (403, True)
    connection.close()
    failed = server.run("rm", MODEL, check=False)
    assert (failed.returncode, "ollama session leave 1-ocean-velvet-lamp" in failed.stderr) == (1, True)
    assert names(server) == [MODEL]


def test_rm_of_a_sessions_model_at_a_terminal_asks_whether_to_leave(own_server: OllamaServer) -> None:
    for answer, left in (("n", False), ("y", True)):
        ours, theirs = pty.openpty()
        removing = subprocess.Popen(
            [OLLAMA, "rm", MODEL], env=own_server.env, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        _, said = removing.communicate(timeout=20)
        os.close(ours)
        assert (b"Leave? [y/N]" in said, removing.returncode == 0) == (True, left), said
    eventually(lambda: names(own_server) == [], seconds=5)


def test_session_when_it_ends_leaves_no_copy_of_its_model(own_server: OllamaServer) -> None:
    plant(own_server, "mine", stub_of(own_server))
    assert names(own_server) == [MODEL, "mine:latest"]
    own_server.run("session", "leave")
    eventually(lambda: names(own_server) == [], seconds=5)


def test_runner_when_anybody_but_the_server_asks_refuses(server: OllamaServer) -> None:
    runner = next(process for process in server.family() if process.cmdline()[1:2] == ["runner"])
    port = int(runner.cmdline()[-1])
    body = json.dumps({"Prompt": "one two", "Options": {}})
    before = asked(server)
    for method, path in (("GET", "/health"), ("POST", "/completion"), ("POST", "/load"), ("POST", "/embedding")):
        for extra in ({}, {"Kafila-Seal": "0" * 64}, {"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request(method, path, body, {"Content-Type": "application/json"} | extra)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (403, b"only the server that started this runner may ask it\n")
            connection.close()
    assert asked(server) == before
    answered = server.post("/api/chat", private(MODEL))
    assert answered["message"]["content"] == "a private question "
