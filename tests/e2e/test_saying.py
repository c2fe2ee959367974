"""Given ids, said by a ring of real processes: every interface shows what they say, to the letter, streamed or not."""

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.e2e.conftest import create, start, until
from tests.support.cluster import Cluster, ClusterMember, make_cluster
from tests.support.saying import saying_folder
from tests.support.vocabularies import BASIC, CONTROL, KINDS, MARKUP, ORDINARY, vocabulary

SAID = "日語\n ifb  the 🐫🐫 don't ü <td>\n\n\naaa"
END = " hello world \n"
"""Behind ids at random, which may end in half a character."""
PADDING = 7
MOST_TOKENS = 400


@dataclass(frozen=True, slots=True)
class AskingWay:
    """One way to ask. Of an answer: what a client is shown, and why it ended."""

    path: str
    body: dict[str, Any]
    whole: Callable[[Any], str]
    streamed: Callable[[list[Any]], str]
    why: Callable[[Any], str]


MESSAGES = [{"role": "user", "content": "Say it! <|answer|>"}]
INTERFACES = {
    "ollama chat": AskingWay(
        "/api/chat",
        {"messages": MESSAGES},
        lambda answer: str(answer["message"]["content"]),
        lambda lines: "".join(line["message"]["content"] for line in lines),
        lambda answer: str(answer["done_reason"]),
    ),
    "ollama generate": AskingWay(
        "/api/generate",
        {"prompt": "Say it!"},
        lambda answer: str(answer["response"]),
        lambda lines: "".join(line["response"] for line in lines),
        lambda answer: str(answer["done_reason"]),
    ),
    "openai": AskingWay(
        "/v1/chat/completions",
        {"messages": MESSAGES},
        lambda answer: str(answer["choices"][0]["message"]["content"]),
        lambda events: "".join(
            choice["delta"].get("content") or "" for event in events for choice in event.get("choices", ())
        ),
        lambda answer: str(answer["choices"][0]["finish_reason"]),
    ),
    "anthropic": AskingWay(
        "/v1/messages",
        {"messages": MESSAGES, "max_tokens": MOST_TOKENS},
        lambda answer: "".join(part["text"] for part in answer["content"]),
        lambda events: "".join(
            event["delta"]["text"] for event in events if event.get("delta", {}).get("type") == "text_delta"
        ),
        lambda answer: {"end_turn": "stop"}.get(answer["stop_reason"], str(answer["stop_reason"])),
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint for each kind of tokenizer."""
    below = tmp_path_factory.mktemp("saying")
    made = {}
    for kind in KINDS:
        folder = vocabulary(below / kind.replace("_", "-"), kind)
        made[kind] = saying_folder(folder, script(folder), padding=PADDING)
    return made


@pytest.fixture(scope="module")
def pair(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two members and no session yet."""
    with make_cluster("ada", "bob", folders=tuple(folders.values()), below=tmp_path_factory.mktemp("cluster")) as made:
        yield made


def script(folder: Path) -> list[int]:
    """Every added token that is a way to spell text, text, and ids at random, whatever they decode to. The first one is
    no space, which some kinds drop at the beginning of a turn."""
    backend = Tokenizer.load(folder).backend
    unsaid = {backend.token_to_id(token) for token in (*BASIC, *CONTROL, *MARKUP)}
    added = [backend.token_to_id(token) for token in sorted(ORDINARY)]
    known = sorted(set(backend.get_vocab().values()) - unsaid)
    text, end = (backend.encode(words, add_special_tokens=False).ids for words in (SAID, END))
    return [*(one for one in added if one is not None), *text, *random.Random(1).choices(known, k=16), *end]


def said_by(folder: Path) -> str:
    return str(Tokenizer.load(folder).backend.decode(script(folder), skip_special_tokens=False))


def formed(pair: Cluster, folder: Path) -> str:
    """A session of both members; the model's name."""
    ada, bob = pair.members
    wanted = ("--members", "2", "--require", "all", "--context", "512", "--concurrency", str(2 * len(INTERFACES)))
    code, creating = create(ada, f"kafila/{folder.name}", *wanted)
    for command in (start(bob, "session", "join", code, "--yes"), creating):
        out, _ = command.communicate(timeout=60)
        assert command.returncode == 0, out
    until(lambda: all(member.session().get("state") == "ready" for member in pair.members), 30)
    until(lambda: all(member.request("/api/tags")[1]["models"] for member in pair.members), 30)
    return str(ada.session()["vehicle"]["name"])


def leave(pair: Cluster) -> None:
    for member in reversed(pair.members):
        member.ollama("session", "leave", check=True)


def events_of(body: Any) -> list[Any]:
    """Of NDJSON, which comes as a list, or of server-sent events."""
    if isinstance(body, list):
        return body
    told = [line.removeprefix("data: ") for line in str(body).splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in told if line != "[DONE]"]


def shown(member: ClusterMember, model: str, interface: AskingWay, *, stream: bool) -> str:
    status, body = member.request(interface.path, {"model": model, **interface.body, "stream": stream})
    assert status == 200, body
    if stream:
        return interface.streamed(events_of(body))
    assert interface.why(body) == "stop"
    return interface.whole(body)


def answers(pair: Cluster, model: str) -> dict[tuple[str, bool], str]:
    """What is shown in all ways at once, by interface and whether it was streamed."""
    ways = [(name, stream) for name in INTERFACES for stream in (False, True)]
    with ThreadPoolExecutor(len(ways)) as threads:
        asked = [
            threads.submit(shown, pair.members[stream], model, INTERFACES[name], stream=stream) for name, stream in ways
        ]
    return dict(zip(ways, (one.result() for one in asked), strict=True))


@pytest.mark.parametrize("kind", list(KINDS))
def test_ids_when_said_by_a_ring_then_every_interface_shows_what_they_decode_to(
    pair: Cluster, folders: dict[str, Path], kind: str
) -> None:
    expected = said_by(folders[kind])
    model = formed(pair, folders[kind])
    try:
        told = answers(pair, model)
    finally:
        leave(pair)
    assert told == dict.fromkeys(told, expected)
