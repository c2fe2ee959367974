"""Thoughts, content and calls through the whole head, answers held to a format, and log probabilities."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.sidecar.serving.stages import NAMES, StageMember, ask, party
from tests.support.saying import BLOCKS, TEMPLATE, saying_folder
from tests.support.vocabularies import vocabulary

pytestmark = pytest.mark.mlx

CUTS = (0, 1, BLOCKS)
WHOLE = (0, 3, 6)
SPEAKS_OF = "{# <think> </think> <tool_call> tool_call.name #}{% if tools %}{{ tools | tojson }}{% endif %}"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["x", "日"]}, "b": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
    "required": ["a", "b"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False, "whitespace_pattern": None},
}


def chat(*, tools: Sequence[Any] = (), think: Any = None) -> str:
    told = {"messages": [{"role": "user", "content": "Say it!"}], "tools": list(tools), "think": think}
    return "\x02kafila1 " + json.dumps(told) + "\x03"


def saying(folder: Path, text: str) -> Path:
    ids = Tokenizer.load(vocabulary(folder, "byte_level")).backend.encode(text, add_special_tokens=False).ids
    return saying_folder(folder, ids, padding=7, template=SPEAKS_OF + TEMPLATE)


async def replies(member: StageMember, request: pb.GenerateRequest) -> list[pb.GenerateReply]:
    return [reply async for reply in member.stage.generate(request)]


def frames(told: Sequence[pb.GenerateReply]) -> tuple[str, str, list[Any]]:
    """Content, thoughts and calls."""
    read = [json.loads(frame) for reply in told for frame in reply.text.split("\x1e")[1:]]
    content, thought = ("".join(frame.get(kind, "") for frame in read) for kind in "ct")
    return content, thought, [frame["call"] for frame in read if "call" in frame]


async def said(tmp_path: Path, text: str, request: pb.GenerateRequest) -> tuple[str, str, list[Any]]:
    """Asked of a member that is not the head."""
    async with party(saying(tmp_path / "model", text), tmp_path / "data", *NAMES[:2]) as made:
        await made.serve(CUTS, NAMES[:2])
        return frames(await replies(made["bob"], request))


CALLS = (
    '<tool_call>{"name": "look", "arguments": {"at": "日"}}</tool_call>\n'
    '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
)


async def test_thoughts_and_calls_when_a_model_makes_some_then_told_apart(tmp_path: Path) -> None:
    request = ask(chat(tools=[TOOL]), num_predict=200)
    request.tools = True
    content, thought, calls = await said(tmp_path, f"<think>\nLet me see.\n</think>\n\nHere:\n{CALLS}", request)
    assert (content, thought) == ("Here:", "Let me see.")
    assert calls == [{"name": "look", "arguments": {"at": "日"}}, {"name": "look", "arguments": {}}]


async def test_calls_when_no_tool_was_given_or_they_are_none_then_they_are_content(tmp_path: Path) -> None:
    assert await said(tmp_path / "a", CALLS, ask(chat(), num_predict=200)) == (CALLS, "", [])
    request = ask(chat(tools=[TOOL]), num_predict=200)
    request.tools = True
    text = "So <tool_call>hm</tool_call> no"
    assert await said(tmp_path / "b", text, request) == ("So<tool_call>hm</tool_call>no", "", [])


async def test_format_when_a_model_thinks_and_would_say_otherwise_then_content_alone_is_held_to_it(
    tmp_path: Path,
) -> None:
    request = ask(chat(), num_predict=200)
    request.format = json.dumps(SCHEMA)
    content, thought, _ = await said(tmp_path, "<think>no JSON {[</think>Sure! Here is your answer", request)
    assert thought == "no JSON {["
    assert set(json.loads(content)) == {"a", "b"}


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 1.7, "seed": 3}, {"repeat_penalty": 2.0}])
async def test_format_when_a_random_model_answers_then_it_is_json_of_the_schema_and_ends_at_its_brace(
    tiny: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    request = ask(chat(), num_predict=150, **options)
    request.format = json.dumps(SCHEMA)
    async with party(tiny, tmp_path, *NAMES[:2]) as made:
        await made.serve(WHOLE, NAMES[:2])
        told = await replies(made["bob"], request)
        request.format = json.dumps({"$ref": "#"})
        with pytest.raises(InvalidInput, match="format"):
            await replies(made["bob"], request)
        await made.until_free()
    content, _, _ = frames(told)
    assert content.endswith("}")
    assert told[-1].done_reason == pb.DONE_REASON_STOP
    answer = json.loads(content)
    assert answer["a"] in {"x", "日"}
    assert all(isinstance(one, bool) for one in answer["b"])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_log_probabilities_when_asked_for_then_those_of_the_text_that_is_shown(
    tiny: Path, tmp_path: Path, temperature: float
) -> None:
    request = ask("once upon a time", num_predict=30, temperature=temperature, seed=5, repeat_penalty=1.5)
    async with party(tiny, tmp_path, *NAMES[:2]) as made:
        await made.serve(WHOLE, NAMES[:2])
        plain = await replies(made["bob"], request)
        request.logprobs, request.top_logprobs = True, 4
        told = await replies(made["bob"], request)
        shown = "".join(reply.text for reply in told)
        request.options.stop.append(shown[5:8])
        cut = await replies(made["bob"], request)
    assert shown == "".join(reply.text for reply in plain)
    scores = [one for reply in told for one in reply.logprobs]
    assert b"".join(one.token for one in scores).decode(errors="replace").startswith(shown)
    assert all(one.logprob <= 0 and len(one.top) == 4 for one in scores)
    assert all(list(one.top) == sorted(one.top, key=lambda top: -top.logprob) for one in scores)
    assert all(one.logprob <= one.top[0].logprob for one in scores)
    before = "".join(reply.text for reply in cut)
    assert before == shown[: shown.index(shown[5:8])]
    assert b"".join(one.token for reply in cut for one in reply.logprobs).decode(errors="replace") == before
