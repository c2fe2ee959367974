"""The built Ollama fork with real processes, in front of a sidecar that only echoes: `make build` comes first."""

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.cluster import OLLAMA, free_port
from tests.support.fork import ECHO, OllamaServer, eventually

MODEL = "kafila/session/echo:s1"
CODE = "1-ocean-velvet-lamp"

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not OLLAMA.exists(), reason="make build has not been run")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OllamaServer]:
    running = OllamaServer(tmp_path_factory.mktemp("fork"))
    yield running
    running.end()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[OllamaServer]:
    running = OllamaServer(tmp_path)
    yield running
    running.end()


def chat(said: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": said}], **more}


def test_create_when_ready_prints_the_code_first(server: OllamaServer) -> None:
    created = server.run("session", "create", "test/echo", "--members", "1")
    assert created.stdout == "2-ocean-velvet-lamp\n"
    assert "ollama run --session 2-ocean-velvet-lamp" in created.stderr
    assert "1 of 1 members" in created.stderr


def test_create_as_json_prints_every_change_until_ready(server: OllamaServer) -> None:
    created = server.run("session", "create", "test/echo", "--members", "1", "--json")
    states = [json.loads(line)["state"] for line in created.stdout.splitlines()]
    assert states[0] == "forming"
    assert states[-1] == "ready"


def test_model_when_session_is_ready_is_known_to_stock(server: OllamaServer) -> None:
    assert MODEL in server.run("list").stdout
    assert MODEL in [model["name"] for model in server.get("/api/tags")["models"]]
    running = {model["name"]: model for model in server.get("/api/ps")["models"]}
    assert running[MODEL]["context_length"] == 4096
    shown = server.post("/api/show", {"model": MODEL})
    assert shown["capabilities"] == ["completion", "tools"]
    assert shown["details"]["parameter_size"] == "134.52M"


def test_generate_and_chat_when_streaming_or_not_give_the_same(server: OllamaServer) -> None:
    cases: list[tuple[str, dict[str, Any], Callable[[Any], str]]] = [
        ("/api/generate", {"model": MODEL, "prompt": "one two"}, lambda line: line["response"]),
        ("/api/generate", {"model": MODEL, "prompt": "one two", "raw": True}, lambda line: line["response"]),
        ("/api/chat", chat("one two"), lambda line: line["message"]["content"]),
    ]
    for path, body, text in cases:
        streamed = server.lines(path, body)
        assert [text(line) for line in streamed] == ["one ", "two ", ""]
        assert streamed[-1]["done_reason"] == "stop"
        assert text(server.post(path, body | {"stream": False})) == "one two "


def test_openai_and_anthropic_routes_answer(server: OllamaServer) -> None:
    openai = server.post("/v1/chat/completions", chat("one two"))
    assert openai["choices"][0]["message"]["content"] == "one two "
    anthropic = server.post("/v1/messages", chat("one two", max_tokens=9))
    assert anthropic["content"] == [{"type": "text", "text": "one two "}]


def test_chat_when_model_calls_tools_gives_them_with_ids(server: OllamaServer) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    calls = server.post("/api/chat", chat("calls", tools=[tool], stream=False))["message"]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == [{"city": "Paris"}, {"city": "Rome"}]
    assert len({call["id"] for call in calls}) == 2


def test_chat_when_chunks_repeat_is_not_cut_off(server: OllamaServer) -> None:
    answer = server.post("/api/chat", chat("same", stream=False))
    assert answer["message"]["content"] == "ha " * 100
    assert answer["done_reason"] == "stop"


def test_chat_when_refused_or_broken_gives_the_sentence(server: OllamaServer) -> None:
    assert server.refusal("/api/chat", chat("refuse")) == (400, "the input length exceeds the context length")
    assert server.refusal("/api/chat", chat("break", stream=False)) == (503, "member mini was lost: ask again")
    assert server.lines("/api/chat", chat("break"))[-1] == {"error": "member mini was lost: ask again"}


def test_chat_when_two_ask_at_once_answers_both_together(server: OllamaServer) -> None:
    body = chat(" ".join("abcdefghijklmnopqrst"), stream=False)
    began = time.monotonic()
    server.post("/api/chat", body)
    alone_s = time.monotonic() - began
    threads = [threading.Thread(target=server.post, args=("/api/chat", body)) for _ in range(2)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < 1.6 * alone_s


def test_chat_when_client_leaves_is_cancelled_within_a_second(server: OllamaServer) -> None:
    before = server.sequences.read_text().count("cancelled")
    with server.open("/api/chat", chat("slow")) as answer:
        answer.readline()
    eventually(lambda: server.sequences.read_text().count("cancelled") > before, seconds=1)


def test_stub_model_when_a_request_reloads_it_is_loaded_anew(server: OllamaServer) -> None:
    server.post("/api/chat", chat("one", stream=False, options={"num_ctx": 2048}))

    def healed() -> bool:
        return any(m["name"] == MODEL and m["context_length"] == 4096 for m in server.get("/api/ps")["models"])

    eventually(healed, seconds=5)


def test_run_with_session_when_joined_chats_and_else_asks(server: OllamaServer) -> None:
    assert server.run("run", "--session", CODE, "hi there").stdout.strip() == "hi there"
    refused = server.run("run", "--session", "9-ocean-velvet-lamp", "hi there", check=False)
    assert refused.returncode == 1
    assert "add --yes" in refused.stderr
    assert server.run("run", "--session", "9-ocean-velvet-lamp", "--yes", "hi").stdout.strip() == "hi"
    wrong = server.run("run", "--session", "7-wrong-code", "hi", check=False)
    assert (wrong.returncode, wrong.stderr) == (1, "Error: the code is wrong: ask for it again\n")


def test_run_with_session_when_interrupted_while_forming_says_how_to_leave(server: OllamaServer) -> None:
    command = [str(OLLAMA), "session", "create", "test/never", "--members", "2"]
    forming = subprocess.Popen(command, env=server.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert forming.stdout is not None
    code = forming.stdout.readline().strip()
    again = [str(OLLAMA), "run", "--session", code, "hi"]
    joined = subprocess.Popen(again, env=server.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert joined.stderr is not None
    assert "joined: 1 of 2 members" in joined.stderr.readline()
    for process in (forming, joined):
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
        assert process.returncode == 130
        told = said.splitlines()[-1]
        assert "stays a member" in told
        leave = re.findall(r"`ollama (session leave [\w-]+)`", told)[0]
    assert "forming" in server.run("session", "status", code).stdout
    server.run(*leave.split())
    assert server.run("run", "--session", "1-ocean-velvet-lamp", "hi there").stdout.strip() == "hi there"


def test_hosting_when_here_changes_code_lock_and_members(own_server: OllamaServer) -> None:
    own_server.run("session", "leave")
    created = own_server.run("session", "create", "test/echo", "--members", "2")
    assert own_server.run("session", "code").stdout == created.stdout
    renewed = own_server.run("session", "code", "--new")
    assert (renewed.stdout, "old code is dead" in renewed.stderr) == ("2-brass-kite-lamp\n", True)
    assert "2-brass-kite-lamp" in own_server.run("session", "status").stdout
    assert "session unlock" in own_server.run("session", "lock").stderr
    assert re.search(r"^Joining +locked", own_server.run("session", "status").stdout, re.MULTILINE)
    assert "Nobody can join" in own_server.run("session", "code", "2").stderr
    assert own_server.run("session", "unlock").stderr == "Joining is open.\n"
    assert "guest2 is removed" in own_server.run("session", "kick", "guest2").stderr
    gone = own_server.run("session", "kick", "guest2", "2", check=False)
    assert (gone.returncode, gone.stderr) == (1, "Error: 'guest2' is not a member of this session\n")


def test_hosting_when_elsewhere_names_the_host(own_server: OllamaServer) -> None:
    own_server.run("session", "leave")
    own_server.run("session", "join", "9-ocean-velvet-lamp", "--yes")
    for command in (["code"], ["code", "--new"], ["lock"], ["unlock"], ["kick", "there"]):
        failed = own_server.run("session", *command, check=False)
        assert (failed.returncode, "only the host, there," in failed.stderr) == (1, True), command


def test_doctor_when_something_is_wrong_with_the_network_is_no_failure(server: OllamaServer) -> None:
    assert server.run("session", "doctor").stdout == "! UDP  is blocked here\n"
    values = json.loads(server.run("session", "doctor", "--json").stdout)
    assert values["udp"] == "blocked"
    assert values["findings"][0]["level"] == "problem"
    failed = server.run("session", "doctor", "--rendezvous", "nowhere", check=False)
    assert (failed.returncode, failed.stderr) == (1, "Error: nowhere is no address: write host:port\n")


def test_plan_when_admitted_shows_stages_rates_alternatives_and_who_stands_by(server: OllamaServer) -> None:
    text = server.run("session", "plan", CODE).stdout
    for line in (
        r"^desk +\w+ +\d+–\d+ \(\d+\) +[\d.]+ GB of 12 GB +1 GB +[\d.]+ ms +here +direct +5.0 ms$",
        r"^here +\w+ +\d+–\d+ \(\d+\) +[\d.]+ GB of 12 GB +1 GB +[\d.]+ ms +desk +direct +5.0 ms$",
        r"^A token takes [\d.]+ ms: [\d.]+ ms of computing and 10.0 ms on the way\.$",
        r"^Expected: [\d.]+ tokens/s alone, [\d.]+ tokens/s for 2 at once",
        r"^slow +[\d.]+ tokens/s \(-\d+ %\) +[\d.]+ tokens/s without it, [\d.]+ with it$",
        r"^paper +.*slow \d+.* of 3 ",
        r"^latency +.*desk \d+",
        r"^throughput \(this plan\) +.*desk \d+.*0 of 2 ",
    ):
        assert re.search(line, text, re.MULTILINE), f"{line} in\n{text}"


def test_plan_when_not_admitted_says_what_would_be(server: OllamaServer) -> None:
    refused = server.run("session", "plan", "test/large", check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("Error: no plan: the head and one block needs 2.9")
    assert "\nEach of these alone would do:\n  - " in refused.stderr
    as_json = server.run("session", "plan", "test/large", "--json", check=False)
    assert as_json.returncode == 1
    assert json.loads(json.loads(as_json.stdout)["plan_json"])["admitted"] is False


def test_session_when_nobody_serves_says_so_in_one_sentence(server: OllamaServer) -> None:
    for command in (["session", "list"], ["session", "doctor"], ["run", "--session", CODE, "hi"]):
        failed = subprocess.run(
            [OLLAMA, *command],
            env=server.env | {"OLLAMA_HOST": f"127.0.0.1:{free_port()}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert failed.returncode == 1
        assert failed.stderr.count("\n") == 1
        assert "ollama serve" in failed.stderr


def test_session_routes_when_asked_by_a_web_page_refuse(server: OllamaServer) -> None:
    assert server.refusal("/api/session/list", None, Host="evil.example")[0] == 403
    assert server.refusal("/api/session/list", None, Origin="https://evil.example")[0] == 403
    assert server.refusal("/api/session/leave", {"session": "s1"}, **{"Content-Type": "text/plain"})[0] == 403


def test_serve_when_port_is_taken_tells_how_to_go_on(server: OllamaServer) -> None:
    second = server.run("serve", check=False)
    assert second.returncode == 1
    assert "taken by another Ollama" in second.stderr
    assert "OLLAMA_HOST=" in second.stderr


def test_sidecar_when_it_dies_is_waited_for_and_started_again(own_server: OllamaServer) -> None:
    sidecar = next(p for p in own_server.family() if str(ECHO) in p.cmdline())
    sidecar.kill()
    sidecar.wait(5)
    code, sentence = own_server.refusal("/api/chat", chat("one"))
    assert code == 404, sentence
    assert "no session s1 here any more" in sentence  # the one that was started again was asked
    assert own_server.get("/api/version")
    eventually(lambda: own_server.get("/api/session/list") == {"sessions": []}, seconds=10)
    eventually(lambda: own_server.get("/api/tags")["models"] == [], seconds=5)


def test_session_when_left_takes_its_model_away(own_server: OllamaServer) -> None:
    own_server.run("session", "leave", CODE)
    eventually(lambda: own_server.get("/api/tags")["models"] == [], seconds=5)
    eventually(lambda: len(own_server.family()) == 2, seconds=5)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_serve_when_it_ends_leaves_no_process(own_server: OllamaServer, how: signal.Signals) -> None:
    family = own_server.family()
    assert len(family) == 3  # the server, its sidecar, and the session's runner
    own_server.process.send_signal(how)
    own_server.process.wait(10)
    _, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []
