"""What well-known programs send, written by hand from their documentation, and what no package here asks for."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import PATIENCE_S, Sides

ASKED = [{"role": "user", "content": "What is the capital of France?"}]
FEW = {"num_predict": 6}
LOADING = ("num_ctx", "num_thread", "use_mmap")
PARTS = ("load", "prompt_eval", "eval", "total")
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
RELOADING: list[dict[str, Any]] = [
    {"options": {"num_ctx": 256, "num_predict": 2}},
    {"options": {"num_ctx": 131072, "num_batch": 8, "num_gpu": 99, "num_predict": 2}, "keep_alive": 0},
    {"options": {"num_thread": 1, "use_mmap": False, "main_gpu": 1, "num_predict": 2}, "keep_alive": "1s"},
]

RECORDED: dict[str, tuple[str, dict[str, Any]]] = {
    "Open WebUI: a chat": (
        "/api/chat",
        {
            "messages": ASKED,
            "stream": True,
            "keep_alive": "5m",
            "options": {"temperature": 0.1, "num_ctx": 2048, "num_predict": 6},
        },
    ),
    "Open WebUI: a title for the chat": (
        "/api/chat",
        {
            "messages": [{"role": "user", "content": "### Task: a title"}],
            "stream": False,
            "options": {"num_predict": 6},
        },
    ),
    "Open WebUI: the model is loaded": ("/api/generate", {"keep_alive": -1}),
    "Open WebUI: a chat with a thought": (
        "/api/chat",
        {"messages": ASKED, "stream": True, "think": False, "options": {"num_predict": 6}},
    ),
    "Open WebUI: questions that may follow": (
        "/api/chat",
        {
            "messages": [{"role": "user", "content": "### Task: suggest questions"}],
            "stream": False,
            "format": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
            "options": {"num_predict": 6},
        },
    ),
    "Open WebUI: texts are embedded": ("/api/embed", {"input": ["a river", "a road"], "truncate": True}),
    "Continue: what the model is": ("/api/show", {}),
    "Continue: a chat": (
        "/api/chat",
        {
            "messages": [{"role": "system", "content": "You write code."}, *ASKED],
            "options": {"num_predict": 6, "num_ctx": 8192, "num_thread": 4, "use_mmap": True, "stop": ["<|im_end|>"]},
            "keep_alive": 1800,
            "stream": True,
        },
    ),
    "Continue: completes code": (
        "/api/generate",
        {
            "prompt": "<fim_prefix>def add(a, b):\n    return <fim_suffix>\n<fim_middle>",
            "raw": True,
            "options": {"temperature": 0.01, "num_predict": 6, "stop": ["\n\n", "<fim_prefix>"], "num_ctx": 4096},
            "keep_alive": 1800,
            "stream": True,
        },
    ),
    "Cline: a task": (
        "/api/chat",
        {
            "messages": [{"role": "system", "content": "You are Cline. " * 8}, *ASKED],
            "stream": True,
            "options": {"num_ctx": 32768, "num_predict": 6},
        },
    ),
    "Cline, as OpenAI's": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "system", "content": "You are Cline."}, *ASKED],
            "temperature": 0,
            "max_tokens": 6,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
}


@pytest.mark.parametrize(("path", "body"), RECORDED.values(), ids=RECORDED)
def test_recorded_request_when_sent_then_answered_as_stock_answers(sides: Sides, path: str, body: Any) -> None:
    ours = sides.ask(path, {"model": sides.session, **body})
    stocks = sides.ask(path, {"model": sides.stock, **without_loading(body)})
    assert ours[0] == stocks[0] == 200
    last, stocks_last = (last_of(answer) for _, answer in (ours, stocks))
    assert stocks_last.keys() - {"tensors"} == last.keys()


def last_of(answer: Any) -> Any:
    """Of what was streamed the last line, or the last event."""
    if isinstance(answer, str):
        events = [line.removeprefix("data: ") for line in answer.splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        return json.loads(events[-2])
    return answer[-1] if isinstance(answer, list) else answer


@pytest.mark.parametrize("path", ["/api/tags", "/api/ps", "/v1/models"])
def test_list_when_a_program_looks_for_models_then_both_are_there_with_the_same_fields(sides: Sides, path: str) -> None:
    sides.ask("/api/generate", {"model": sides.stock, "keep_alive": -1})
    told = sides.ask(path)[1]
    fields = {one.get("name", one.get("id")): one.keys() for one in told.get("models", told.get("data"))}
    assert fields[sides.session] == fields[sides.stock]


def without_loading(body: dict[str, Any]) -> dict[str, Any]:
    """The request less the options for which stock would load the model anew, which takes it long."""
    options = {name: value for name, value in body.get("options", {}).items() if name not in LOADING}
    return {**body, "options": options} if options else body


@pytest.mark.parametrize("more", RELOADING, ids=str)
def test_model_when_options_would_have_stock_reload_it_then_it_stays_as_it_is(sides: Sides, more: Any) -> None:
    before = runners(sides)
    assert sides.ask("/api/chat", {"model": sides.session, "messages": ASKED, "stream": False, **more})[0] == 200
    loaded = [model for model in sides.ask("/api/ps")[1]["models"] if model["name"] == sides.session]
    assert [(model["context_length"], model["expires_at"] > "2100") for model in loaded] == [(1024, True)]
    assert before
    assert runners(sides) == before


def runners(sides: Sides) -> dict[int, str]:
    """The processes that answer for a session's model here."""
    found = {}
    for pid in sides.member.pids():
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        model = next((Path(word.decode()) for word in words if b"/blobs/" in word), None)
        if b"runner" in words and model is not None and model.stat().st_size < 1 << 16:
            found[pid] = model.name
    return found


@pytest.mark.parametrize("which", ["session", "stock"])
def test_durations_when_told_then_they_lie_within_what_the_client_sees(sides: Sides, which: str) -> None:
    body = {"model": getattr(sides, which), "messages": ASKED, "options": FEW}
    began = time.monotonic()
    seen_s = [(time.monotonic() - began, line) for line in sides.member.lines("/api/chat", body, timeout_s=PATIENCE_S)]
    (first_s, _), (whole_s, told) = seen_s[0], seen_s[-1]
    load_s, prompt_s, answer_s, total_s = (told[f"{part}_duration"] / 1e9 for part in PARTS)
    assert 0 < prompt_s <= first_s
    assert answer_s > 0
    assert load_s + prompt_s + answer_s <= total_s <= whole_s
    assert told["eval_count"] == FEW["num_predict"]


def test_prompt_when_given_up_while_it_is_read_then_asked_again_it_goes_on_from_there(sides: Sides) -> None:
    prompt = "Tell me of " + " ".join(f"camel {number} and its sea" for number in range(80))
    given_up = next(tokens for tokens in read_so_far(sides, prompt) if tokens > 300)
    assert next(read_so_far(sides, prompt)) >= given_up


def read_so_far(sides: Sides, prompt: str) -> Iterator[int]:
    """How many tokens of it are read, as it is told; given up when nobody wants to know more."""
    host, _, port = sides.member.host.partition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)) as connection:
        body = {"model": sides.session, "prompt": prompt, "options": {"num_predict": 2}}
        connection.request("POST", "/api/generate", json.dumps(body), {"Kafila-Headway": "1"})
        answer = connection.getresponse()
        while line := answer.readline():
            told = json.loads(line).get("kafila_headway", {})
            if told.get("doing") == "reading":
                yield told.get("tokens", 0)


@pytest.mark.parametrize("number", [-1, 1 << 30, 1 << 40])
def test_context_when_a_number_in_it_is_no_token_then_refused_in_words_and_the_model_stays(
    sides: Sides, number: int
) -> None:
    """Stock's own server ends by it, so only the session is asked."""
    body = {"model": sides.session, "prompt": "Hello", "context": [1, number], "stream": False}
    before = runners(sides)
    status, answer = sides.ask("/api/generate", body)
    assert (status, "no token of this" in answer["error"]) == (400, True), answer
    assert sides.ask("/api/generate", {**body, "context": [1, 2], "options": {"num_predict": 1}})[0] == 200
    assert runners(sides) == before


@pytest.mark.parametrize("path", ["/api/embed", "/api/embeddings", "/v1/embeddings"])
def test_embeddings_when_asked_for_then_of_the_shape_of_stocks(sides: Sides, path: str) -> None:
    asked = {"input": "hello", "prompt": "hello"}
    ours, stocks = (sides.ask(path, {"model": name, **asked}) for name in (sides.session, sides.stock))
    assert ours[0] == 200
    if stocks[0] == 200:
        assert ours[1].keys() == stocks[1].keys()


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/v1/chat/completions", "/v1/messages"])
def test_image_when_sent_then_refused_in_a_sentence(sides: Sides, path: str) -> None:
    status, answer = sides.ask(path, {"model": sides.session, "stream": False, **with_picture(path)})
    assert status >= 400
    assert "send text only" in str(answer["error"])


def with_picture(path: str) -> dict[str, Any]:
    text = {"type": "text", "text": "What is this?"}
    if path == "/api/chat":
        return {"messages": [{"role": "user", "content": "What is this?", "images": [PICTURE]}]}
    if path == "/api/generate":
        return {"prompt": "What is this?", "images": [PICTURE]}
    if path == "/v1/messages":
        source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
        return {"messages": [{"role": "user", "content": [text, {"type": "image", "source": source}]}], "max_tokens": 4}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    return {"messages": [{"role": "user", "content": [text, image]}]}


def test_version_when_asked_for_then_stocks(sides: Sides) -> None:
    assert sides.ask("/api/version")[1]["version"] == "0.17.4"


@pytest.mark.parametrize("command", ["rm", "stop", "pull", "push"])
def test_command_when_it_would_take_the_model_away_then_refused_and_it_still_answers(
    sides: Sides, command: str
) -> None:
    ran = sides.member.ollama(command, sides.session)
    assert ran.returncode != 0
    assert "session" in ran.stderr.splitlines()[-1]
    assert sides.ask("/api/show", {"model": sides.session})[0] == 200


def test_show_when_called_in_a_terminal_then_of_the_session_s_model(sides: Sides) -> None:
    shown = sides.member.ollama("show", sides.session, check=True).stdout.split()
    assert shown[shown.index("parameters") + 1] == "134.52M"
    assert shown[shown.index("length") + 1] == "1024"
