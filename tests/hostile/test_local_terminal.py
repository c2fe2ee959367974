"""What other machines say, on its way to a person's terminal: `make build` comes first."""

import json
import os
import pty
import subprocess
import unicodedata
from collections.abc import Iterator, Mapping

import pytest

from tests.support.cluster import OLLAMA
from tests.support.echo_sidecar import SHOUT
from tests.support.fork import OllamaServer

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not OLLAMA.exists(), reason="make build has not been run")]

MODEL = "kafila/session/echo:s2"
COMMANDS = ("Cc", "Cf", "Zl", "Zp")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OllamaServer]:
    """With a second session whose host and members say what commands a terminal."""
    running = OllamaServer(tmp_path_factory.mktemp("terminal"))
    created = running.run("session", "create", "test/terminal", "--members", "1")
    assert_harmless(created)
    yield running
    running.end()


def said_at_a_terminal(*arguments: str, env: Mapping[str, str]) -> bytes:
    """All that a session command that does well writes to a terminal, which answers nothing."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [OLLAMA, "session", *arguments],
        env=dict(env), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:  # how a terminal says that nobody is at the other end
        pass
    os.close(ours)
    assert running.wait(60) == 0
    return said


def assert_harmless(done: subprocess.CompletedProcess[str]) -> None:
    for said in (done.stdout, done.stderr):
        bad = [letter for letter in said if letter != "\n" and unicodedata.category(letter) in COMMANDS]
        assert not bad, (done.args, said)
        assert not any(line.startswith("Ready. Chat with: ollama run evil") for line in said.splitlines())


def test_commands_when_members_shout_print_nothing_that_commands_the_terminal(server: OllamaServer) -> None:
    for command in (["list"], ["status", "2"], ["code", "2"], ["status", "2", "--json"], ["list", "--json"]):
        done = server.run("session", *command)
        assert_harmless(done)
    shown = server.run("session", "status", "2").stdout
    assert "[2J" in shown, "the test's session says nothing hostile"


def test_create_at_a_terminal_when_the_host_shouts_clears_no_screen(server: OllamaServer) -> None:
    said = said_at_a_terminal("create", "test/terminal", "--members", "1", env=server.env)
    assert b"[2J" in said, "the test's session says nothing hostile"
    for command in (
        b"\x1b[2J",
        b"\x1b[H",
        b"\x1b]0;",
        b"\xc2\x9b",
        b"\xe2\x80\xae",
        b"\x07",
        b"\nReady. Chat with: ollama run evil",
    ):
        assert command not in said, command


def test_answer_when_its_refusal_shouts_gives_one_harmless_sentence(server: OllamaServer) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "shout"}]}
    for stream in (True, False):
        status, sentence = server.refusal("/api/chat", body | {"stream": stream})
        assert status == 503
        assert "[2J" in sentence
        assert not any(unicodedata.category(letter) in COMMANDS for letter in sentence), sentence
    done = server.run("run", MODEL, "shout", check=False)
    assert done.returncode == 1
    assert "[2J" in done.stderr
    assert "\x1b[2J" not in done.stdout + done.stderr
    assert "\x1b]0;" not in done.stdout + done.stderr


def test_routes_when_members_shout_pass_nothing_on(server: OllamaServer) -> None:
    session = server.get("/api/session/status?session=s2")
    assert not any(unicodedata.category(letter) in COMMANDS for letter in json.dumps(session, ensure_ascii=False))
    assert SHOUT not in session["rendezvous_note"]


@pytest.mark.parametrize("name", ["xterm-256color", None], ids=["named", "nameless"])
def test_command_at_a_terminal_that_answers_nothing_asks_it_nothing(name: str | None) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TERM"}
    said = said_at_a_terminal("--version", env=environment | ({"TERM": name} if name else {}))
    assert b"kafila version" in said
    assert b"\x1b" not in said
