"""What well-known programs send, written by hand from their documentation, and what no package here asks for."""

from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Sides

ASKED = [{"role": "user", "content": "What is the capital of France?"}]
FEW = {"num_predict": 6}
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
            "messages": [{"role": "system", "content": "You are Cline. " * 20}, *ASKED],
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
            "stream": False,
            "stream_options": {"include_usage": True},
        },
    ),
}


@pytest.mark.parametrize(("path", "body"), RECORDED.values(), ids=RECORDED)
def test_recorded_request_when_sent_then_answered_as_stock_answers(sides: Sides, path: str, body: Any) -> None:
    ours, stocks = (sides.member.request(path, {"model": name, **body}) for name in (sides.session, sides.stock))
    assert ours[0] == stocks[0] == 200
    last, stocks_last = (answer[-1] if isinstance(answer, list) else answer for _, answer in (ours, stocks))
    assert last.keys() == stocks_last.keys()


@pytest.mark.parametrize("more", RELOADING, ids=str)
def test_model_when_options_would_have_stock_reload_it_then_it_stays_as_it_is(sides: Sides, more: Any) -> None:
    before = runners(sides)
    assert (
        sides.member.request("/api/chat", {"model": sides.session, "messages": ASKED, "stream": False, **more})[0]
        == 200
    )
    loaded = [model for model in sides.member.request("/api/ps")[1]["models"] if model["name"] == sides.session]
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


@pytest.mark.parametrize("path", ["/api/embed", "/api/embeddings", "/v1/embeddings"])
def test_embeddings_when_asked_for_then_of_the_shape_of_stocks(sides: Sides, path: str) -> None:
    asked = {"input": "hello", "prompt": "hello"}
    ours, stocks = (sides.member.request(path, {"model": name, **asked}) for name in (sides.session, sides.stock))
    assert ours[0] == 200
    if stocks[0] == 200:
        assert ours[1].keys() == stocks[1].keys()


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/v1/chat/completions", "/v1/messages"])
def test_image_when_sent_then_refused_in_a_sentence(sides: Sides, path: str) -> None:
    status, answer = sides.member.request(path, {"model": sides.session, "stream": False, **with_picture(path)})
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
    assert sides.member.request("/api/version")[1]["version"] == "0.17.4"


@pytest.mark.parametrize("command", ["rm", "stop", "pull", "push"])
def test_command_when_it_would_take_the_model_away_then_refused_and_it_still_answers(
    sides: Sides, command: str
) -> None:
    ran = sides.member.ollama(command, sides.session)
    assert ran.returncode != 0
    assert "session" in ran.stderr.splitlines()[-1]
    assert sides.member.request("/api/show", {"model": sides.session})[0] == 200


def test_show_when_called_in_a_terminal_then_of_the_session_s_model(sides: Sides) -> None:
    shown = sides.member.ollama("show", sides.session, check=True).stdout.split()
    assert shown[shown.index("parameters") + 1] == "134.52M"
    assert shown[shown.index("length") + 1] == "1024"
