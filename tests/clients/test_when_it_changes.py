"""A session's model at every member, among other clients, after a replan, and when the session is over."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import PATIENCE_S, Sides
from tests.clients.shapes import shape_of
from tests.clients.test_surface import runners
from tests.clients.test_terminal import PROMPT, SPINNER, chatting
from tests.e2e.conftest import start, until
from tests.support.cluster import ClusterMember
from tests.support.terminal import CTRL_C

ASKED = [{"role": "user", "content": "What is the capital of France?"}]
ASKINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "ollama chat": ("/api/chat", {"messages": ASKED, "options": {"num_predict": 3, "temperature": 0}}),
    "ollama generate": ("/api/generate", {"prompt": "Hello", "options": {"num_predict": 3, "temperature": 0}}),
    "openai chat": ("/v1/chat/completions", {"messages": ASKED, "max_tokens": 3, "temperature": 0}),
    "openai completion": ("/v1/completions", {"prompt": "Hello", "max_tokens": 3, "temperature": 0}),
    "openai response": ("/v1/responses", {"input": "Hello", "max_output_tokens": 3, "temperature": 0}),
    "anthropic": ("/v1/messages", {"messages": ASKED, "max_tokens": 3, "temperature": 0}),
}
TEXTS = ("content", "response", "text", "output_text")


def answers(member: ClusterMember, model: str) -> dict[str, Any]:
    """What each API gives: its shape, and what is said in it."""
    told = {}
    for name, (path, body) in ASKINGS.items():
        status, answer = member.request(path, {"model": model, **body, "stream": False}, timeout_s=PATIENCE_S)
        assert status == 200, answer
        told[name] = (shape_of(answer), list(said_in(answer)))
    return told


def said_in(answer: Any) -> Iterator[str]:
    """The texts of an answer, wherever they stand."""
    if isinstance(answer, list):
        for one in answer:
            yield from said_in(one)
    elif isinstance(answer, dict):
        yield from (answer[name] for name in TEXTS if isinstance(answer.get(name), str))
        for one in answer.values():
            yield from said_in(one)


@pytest.fixture(scope="module")
def calm(sides: Sides) -> dict[str, Any]:
    """What is answered while nobody else asks."""
    told = answers(sides.member, sides.session)
    assert all(said for _, said in told.values())
    return told


def test_model_when_asked_at_every_member_then_the_same_is_answered(sides: Sides, calm: dict[str, Any]) -> None:
    others = [member for member in sides.cluster.members if member is not sides.member]
    assert [answers(member, sides.session) for member in others] == [calm, calm]


def test_model_when_three_others_are_answered_then_the_same_is_answered(sides: Sides, calm: dict[str, Any]) -> None:
    with others_busy(sides):
        assert answers(sides.member, sides.session) == calm


@contextmanager
def others_busy(sides: Sides) -> Iterator[None]:
    """A client at each member that asks again and again."""
    over = threading.Event()
    body = {"model": sides.session, "prompt": "Once upon a time", "options": {"num_predict": 4}}

    def ask(member: ClusterMember) -> int:
        answered = 0
        while not over.is_set():
            lines = list(member.lines("/api/generate", body, timeout_s=PATIENCE_S))
            assert lines[-1]["done_reason"] in ("length", "stop")
            answered += 1
        return answered

    with ThreadPoolExecutor(len(sides.cluster.members)) as threads:
        asked = [threads.submit(ask, member) for member in sides.cluster.members]
        try:
            yield
        finally:
            over.set()
        assert all(one.result() for one in asked)


@pytest.fixture(scope="module")
def leaver(sides: Sides) -> ClusterMember:
    """Neither the one that is asked nor, if there is another, the head or the host."""
    session = sides.member.session()
    stay = {sides.member.name, session["host"], *(one["member"] for one in session["stages"] if one.get("head"))}
    others = [one for one in sides.cluster.members if one is not sides.member]
    return next((one for one in others if one.name not in stay), others[-1])


def test_answer_when_stopped_while_the_ring_is_planned_anew_then_the_prompt_is_there_and_the_next_is_answered(
    sides: Sides, leaver: ClusterMember
) -> None:
    with chatting(sides.member, sides.session, "--verbose") as terminal:
        terminal.until(PROMPT)
        leaving = start(leaver, "session", "leave")
        until(lambda: sides.member.session()["state"] != "ready", 120)
        terminal.type("Hello\r")
        terminal.until(SPINNER)
        terminal.type(CTRL_C)
        terminal.until(PROMPT)
        leaving.communicate(timeout=PATIENCE_S)
        assert leaving.returncode == 0
        terminal.type("/set parameter num_predict 3\r")
        terminal.until(PROMPT)
        terminal.type("Hello\r")
        terminal.until("eval rate", PATIENCE_S)
        terminal.until(PROMPT)


def test_model_when_another_member_has_left_then_the_same_is_answered(
    sides: Sides, leaver: ClusterMember, calm: dict[str, Any]
) -> None:
    """It has in the test before this one."""
    until(lambda: leaver.name not in {stage["member"] for stage in sides.member.session()["stages"]}, 120)
    until(lambda: sides.member.session()["state"] == "ready", 120)
    assert answers(sides.member, sides.session) == calm


def test_model_when_its_session_is_over_then_nothing_of_it_is_left(sides: Sides) -> None:
    """The last of all: the session is gone then."""
    member, name = sides.member, sides.session
    assert runners(sides)
    member.ollama("session", "leave", check=True)
    until(lambda: member.request("/api/show", {"model": name})[0] == 404, 120)
    until(lambda: not runners(sides), 120)
    assert [one["name"] for one in member.request("/api/tags")[1]["models"]] == [sides.stock]
    until(lambda: name not in [one["name"] for one in member.request("/api/ps")[1]["models"]], 120)
    assert name not in [one["id"] for one in member.request("/v1/models")[1]["data"]]
    assert member.request("/api/chat", {"model": name, "messages": ASKED})[0] == 404
    assert left_in(Path(member.environment["OLLAMA_MODELS"])) == []
    assert member.request("/api/generate", {"model": sides.stock, "options": {"num_predict": 1}})[0] == 200


def left_in(store: Path) -> list[str]:
    """Manifests of sessions' models, and blobs that no manifest names."""
    manifests = [path for path in (store / "manifests").rglob("*") if path.is_file()]
    named = "".join(path.read_text() for path in manifests)
    sessions = [str(path) for path in manifests if "kafila" in path.parts]
    return sessions + [path.name for path in (store / "blobs").iterdir() if path.name.replace("-", ":") not in named]
