"""A model that thinks and calls tools, said by a ring of real processes: every API tells thoughts, content and calls
apart, holds content to a format, and tells log probabilities, at a member that is not the head."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.e2e.conftest import create, start, until
from tests.support.cluster import Cluster, ClusterMember, make_cluster
from tests.support.saying import TEMPLATE, saying_folder
from tests.support.vocabularies import vocabulary

SPEAKS_OF = "{# <think> </think> <tool_call> tool_call.name #}{% if tools %}{{ tools | tojson }}\n{% endif %}"
THOUGHT, CONTENT = "Hm, 日本 then.", "I look."
CALLS = [{"name": "look", "arguments": {"at": "日本"}}, {"name": "look", "arguments": {"at": "there", "deep": 2}}]
SAID = f"<think>\n{THOUGHT}\n</think>\n\n{CONTENT}\n" + "\n".join(
    f"<tool_call>{json.dumps(call, ensure_ascii=False)}</tool_call>" for call in CALLS
)
SCHEMA = {
    "type": "object",
    "properties": {
        "deep": {
            "type": "object",
            "required": ["a"],
            "properties": {"a": {"enum": ["x"]}},
            "additionalProperties": False,
        }
    },
    "required": ["deep"],
    "additionalProperties": False,
}
PARAMETERS = {"type": "object", "properties": {"at": {"type": "string", "minLength": 1}}, "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": PARAMETERS}}
FLAT = {"type": "function", "name": "look", "description": "Looks.", "parameters": PARAMETERS}
MESSAGES = [{"role": "user", "content": "Say it!"}]


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterMember, str]]:
    """One that is not the head, and the model's name."""
    below = tmp_path_factory.mktemp("abilities")
    folder = vocabulary(below / "able", "byte_level")
    ids = Tokenizer.load(folder).backend.encode(SAID, add_special_tokens=False).ids
    saying_folder(folder, ids, template=SPEAKS_OF + TEMPLATE)
    with make_cluster("ada", "bob", folders=(folder,), below=below / "cluster") as made:
        yield made.members[1], formed(made, folder)


def formed(pair: Cluster, folder: Path) -> str:
    ada, bob = pair.members
    wanted = ("--members", "2", "--require", "all", "--context", "2048", "--concurrency", "2")
    code, creating = create(ada, f"kafila/{folder.name}", *wanted)
    for command in (start(bob, "session", "join", code, "--yes"), creating):
        out, _ = command.communicate(timeout=120)
        assert command.returncode == 0, out
    until(lambda: all(one.session().get("state") == "ready" for one in pair.members), 60)
    until(lambda: all(one.request("/api/tags")[1]["models"] for one in pair.members), 60)
    return str(ada.session()["vehicle"]["name"])


def ask(member: tuple[ClusterMember, str], path: str, **body: Any) -> Any:
    status, answer = member[0].request(path, {"model": member[1], **body})
    assert status == 200, answer
    return answer


def events(body: Any) -> list[Any]:
    told = [line.removeprefix("data: ") for line in str(body).splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in told if line != "[DONE]"]


def calls(told: Any) -> list[Any]:
    return [{"name": one["function"]["name"], "arguments": one["function"]["arguments"]} for one in told]


def read_calls(told: Any) -> list[Any]:
    return [{**one, "arguments": json.loads(one["arguments"])} for one in calls(told)]


def test_show_when_the_template_speaks_of_them_then_thinking_and_tools_are_abilities(
    member: tuple[ClusterMember, str],
) -> None:
    shown = ask(member, "/api/show")
    assert {"completion", "tools", "thinking"} <= set(shown["capabilities"])


@pytest.mark.parametrize("stream", [False, True])
def test_ollama_chat_when_the_model_thinks_and_calls_then_told_apart(
    member: tuple[ClusterMember, str], stream: bool
) -> None:
    told = ask(member, "/api/chat", messages=MESSAGES, tools=[TOOL], stream=stream)
    messages = [line["message"] for line in (told if stream else [told])]
    assert "".join(one.get("thinking", "") for one in messages) == THOUGHT
    assert "".join(one["content"] for one in messages) == CONTENT
    assert calls([call for one in messages for call in one.get("tool_calls", ())]) == CALLS


@pytest.mark.parametrize("stream", [False, True])
def test_openai_chat_when_the_model_thinks_and_calls_then_told_apart(
    member: tuple[ClusterMember, str], stream: bool
) -> None:
    told = ask(member, "/v1/chat/completions", messages=MESSAGES, tools=[TOOL], stream=stream)
    choices = [choice for event in events(told) for choice in event["choices"]] if stream else told["choices"]
    parts = [choice["delta" if stream else "message"] for choice in choices]
    assert "".join(one.get("reasoning") or "" for one in parts) == THOUGHT
    assert "".join(one.get("content") or "" for one in parts) == CONTENT
    assert read_calls([call for one in parts for call in one.get("tool_calls") or ()]) == CALLS
    assert choices[-1]["finish_reason"] == "tool_calls"


def test_openai_responses_when_the_model_calls_then_its_output_has_the_calls(member: tuple[ClusterMember, str]) -> None:
    told = ask(member, "/v1/responses", input="Say it!", tools=[FLAT], stream=False)
    found = [one for one in told["output"] if one["type"] == "function_call"]
    assert [{"name": one["name"], "arguments": json.loads(one["arguments"])} for one in found] == CALLS


def test_anthropic_when_the_model_thinks_and_calls_then_each_is_a_block(member: tuple[ClusterMember, str]) -> None:
    tool = {"name": "look", "description": "Looks.", "input_schema": PARAMETERS}
    told = ask(member, "/v1/messages", messages=MESSAGES, tools=[tool], max_tokens=300, stream=False)
    assert [one["thinking"] for one in told["content"] if one["type"] == "thinking"] == [THOUGHT]
    assert [one["text"] for one in told["content"] if one["type"] == "text"] == [CONTENT]
    used = [{"name": one["name"], "arguments": one["input"]} for one in told["content"] if one["type"] == "tool_use"]
    assert used == CALLS
    assert told["stop_reason"] == "tool_use"


def test_results_when_they_are_history_then_the_answer_comes(member: tuple[ClusterMember, str]) -> None:
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": call} for call in CALLS]}
    results = [{"role": "tool", "content": "seen", "tool_name": "look"} for _ in CALLS]
    told = ask(member, "/api/chat", messages=[*MESSAGES, called, *results], tools=[TOOL], stream=False)
    assert told["message"]["thinking"] == THOUGHT


def test_thinking_when_it_is_asked_at_a_level_that_the_model_lacks_then_refused_as_by_stock(
    member: tuple[ClusterMember, str],
) -> None:
    status, told = member[0].request("/api/chat", {"model": member[1], "messages": MESSAGES, "think": "low"})
    assert (status, told["error"]) == (400, 'think value "low" is not supported for this model')


FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "ollama chat": ("/api/chat", {"messages": MESSAGES, "format": SCHEMA}),
    "ollama generate": ("/api/generate", {"prompt": "Say it!", "format": SCHEMA}),
    "openai chat": (
        "/v1/chat/completions",
        {
            "messages": MESSAGES,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
        },
    ),
    "openai responses": (
        "/v1/responses",
        {"input": "Say it!", "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}},
    ),
}


def content_of(told: Any) -> str:
    if "message" in told:
        return str(told["message"]["content"])
    if "response" in told:
        return str(told["response"])
    if "choices" in told:
        return str(told["choices"][0]["message"]["content"])
    return "".join(part["text"] for one in told["output"] if one["type"] == "message" for part in one["content"])


@pytest.mark.parametrize(("path", "body"), FORMATS.values(), ids=FORMATS.keys())
def test_format_when_a_model_thinks_first_then_its_content_alone_is_of_the_schema(
    member: tuple[ClusterMember, str], path: str, body: dict[str, Any]
) -> None:
    """Stock's own types lose what `deep` requires."""
    assert json.loads(content_of(ask(member, path, **body, stream=False))) == {"deep": {"a": "x"}}


def test_format_when_no_answer_fits_then_refused_in_words(member: tuple[ClusterMember, str]) -> None:
    body = {"model": member[1], "messages": MESSAGES, "format": {"$ref": "#"}, "stream": False}
    status, told = member[0].request("/api/chat", body)
    assert status == 400
    assert "format" in told["error"]


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_when_asked_for_then_each_token_has_its_own(
    member: tuple[ClusterMember, str], stream: bool
) -> None:
    body = {"raw": True, "prompt": "<|answer|>", "logprobs": True, "top_logprobs": 3, "stream": stream}
    told = ask(member, "/api/generate", **body)
    lines = told if stream else [told]
    scores = [one for line in lines for one in line.get("logprobs", ())]
    assert bytes(byte for one in scores for byte in one["bytes"]).decode(errors="replace").startswith("<think>\nHm, ")
    assert all(-0.1 < one["logprob"] <= 0 and len(one["top_logprobs"]) == 3 for one in scores)
    chat = ask(member, "/v1/chat/completions", messages=MESSAGES, logprobs=True, top_logprobs=2, stream=False)
    assert len(chat["choices"][0]["logprobs"]["content"]) == len(scores)
