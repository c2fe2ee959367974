"""The renderer's envelope, and the frames of an answer."""

import json

import pytest

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.text.prompt import ChatPrompt, PlainPrompt, parse_prompt
from kafila_sidecar.serving.intake.prompt import Framer


def envelope(**fields: object) -> str:
    return f"\x02kafila1 {json.dumps(fields)}\x03"


def test_parse_when_plain_then_it_stays_as_it_is() -> None:
    for text in ("", "once upon", "kafila1 {}\x03", "\x02other {}\x03"):
        assert parse_prompt(text) == PlainPrompt(text)


def test_parse_when_an_envelope_then_messages_tools_and_think() -> None:
    messages, tools = [{"role": "user", "content": "a\x03b 🦆"}], [{"type": "function"}]
    parsed = parse_prompt(envelope(messages=messages, tools=tools, think="low") + "what follows is not ours")
    assert parsed == ChatPrompt(messages, tools, "low")


@pytest.mark.parametrize("tools", [None, []])
def test_parse_when_there_are_no_tools_then_none(tools: object) -> None:
    parsed = parse_prompt(envelope(messages=[], tools=tools))
    assert parsed == ChatPrompt([], [], None)


HOSTILE = {
    "not closed": '\x02kafila1 {"messages": []}',
    "no JSON": "\x02kafila1 nonsense\x03",
    "empty": "\x02kafila1 \x03",
    "a list": "\x02kafila1 []\x03",
    "a number": "\x02kafila1 7\x03",
    "null": "\x02kafila1 null\x03",
    "no messages": envelope(tools=[]),
    "messages are text": envelope(messages="hello"),
    "a message is text": envelope(messages=["hello"]),
    "tools are an object": envelope(messages=[], tools={"a": 1}),
    "a tool is text": envelope(messages=[], tools=["hello"]),
    "think is a list": envelope(messages=[], think=[1]),
    "think is a number": envelope(messages=[], think=3),
    "half a character": envelope(messages=[{"role": "user", "content": "\ud83e"}]),
    "nested without end": "\x02kafila1 " + "[" * 200_000 + "\x03",
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_parse_when_hostile_then_refused_in_one_sentence(raw: str) -> None:
    with pytest.raises(InvalidInput, match="envelope") as refused:
        parse_prompt(raw)
    assert len(str(refused.value)) < 300


def test_framer_when_plain_then_text_passes() -> None:
    framer = Framer(framed=False)
    assert framer.content("a") == "a"


def test_framer_when_framed_then_equal_chunks_differ_and_read_back() -> None:
    framer = Framer(framed=True)
    made = [framer.content('say "é" \x1e\n') for _ in range(40)]
    assert len(set(made)) == 40
    for frame in made:
        assert frame.startswith("\x1e")
        assert "\x1e" not in frame[1:]
        assert json.loads(frame[1:])["c"] == 'say "é" \x1e\n'
