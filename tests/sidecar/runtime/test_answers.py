"""What an answer says: thoughts, content and calls, however the text is cut into pieces."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila_sidecar.runtime.answer.calls import marks_of, read_calls
from kafila_sidecar.runtime.answer.formats import AnswerFormat, answer_format, speaks_in_channels, thinks, uses_tools
from kafila_sidecar.runtime.answer.pieces import CallText, Content, Standing, Thought
from kafila_sidecar.runtime.answer.reading import reader_of

QWEN = "<think></think> {% if tools %}<tool_call>{{ tool_call.name }}{% endif %}"
GPT_OSS = "<|channel|><|message|>{{ tools }}"
Read = tuple[str, str, list[str]]


def formed(template: str) -> AnswerFormat:
    return answer_format(template, named_parser=None, marks_of=marks_of, control_of={"<think>": 5, "<|channel>": 6}.get)


def read(template: str, parts: Sequence[str], *, prompt_end: str = "", tools: bool = True) -> Read:
    """Content, thoughts, and the texts of calls."""
    reader = reader_of(formed(template), prompt_end=prompt_end, tools=tools)
    pieces = [piece for part in parts for piece in reader.feed(part)] + reader.finish()
    content, thought = (
        "".join(piece.text for piece in pieces if isinstance(piece, kind)) for kind in (Content, Thought)
    )
    return content, thought, [piece.text for piece in pieces if isinstance(piece, CallText)]


SAID: dict[str, tuple[str, str, str, Read]] = {
    "a thought and content": (QWEN, "", "<think>\n a < b \n</think>\n\n Hi <b>\n", ("Hi <b>\n", "a < b", [])),
    "a thought that the prompt opened": (QWEN, "…<think>\n", "\nhm\n</think>\n\nHi", ("Hi", "hm", [])),
    "a thought that the prompt closed": (QWEN, "…<think>\n\n</think>\n\n", "<think> Hi", ("<think> Hi", "", [])),
    "no thought": (QWEN, "", "\n <thin Hi", ("<thin Hi", "", [])),
    "a thought without end": (QWEN, "", "<think>hm </thi", ("", "hm </thi", [])),
    "a thought that a call ends": (QWEN, "", "<think>hm\n<tool_call>{}</tool_call>", ("", "hm", ["{}"])),
    "calls": (
        QWEN,
        "",
        "Let me.\n<tool_call>\n1\n</tool_call>\n<tool_call>2</tool_call>\n",
        ("Let me.", "", ["\n1\n", "2"]),
    ),
    "a call without end": (QWEN, "", "<tool_call>{1", ("", "", ["{1"])),
    "to the end": ("[TOOL_CALLS]{{ tools }}", "", "So[TOOL_CALLS]a[ARGS]{}", ("So", "", ["a[ARGS]{}"])),
    "begins as JSON": ("{{ tools }} Environment: ipython", "", '{"name": "a"}', ("", "", ['{"name": "a"}'])),
    "no JSON": ("{{ tools }} Environment: ipython", "", "Hi {", ("Hi {", "", [])),
    "channels": (
        GPT_OSS,
        "<|start|>assistant",
        "<|channel|>analysis<|message|>hm <|x<|end|><|start|>assistant<|channel|>final<|message|>Hi <|th",
        ("Hi <|th", "hm <|x", []),
    ),
    "a call in a channel": (
        GPT_OSS,
        "",
        '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"a": 1}<|call|>',
        ("", "", ['{"name": "look", "arguments": {"a": 1}}']),
    ),
}


@pytest.mark.parametrize(("template", "prompt_end", "said", "wanted"), SAID.values(), ids=SAID.keys())
def test_answer_when_cut_anywhere_then_the_same_is_read(
    template: str, prompt_end: str, said: str, wanted: Read
) -> None:
    for size in (*range(1, 9), len(said)):
        parts = [said[at : at + size] for at in range(0, len(said), size)]
        assert read(template, parts, prompt_end=prompt_end) == wanted


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["a", " ", "\n", "<", "<think>", "</think>", "<tool_call>", "</tool_call>", "{", "日"]))
)
def test_reading_when_any_text_comes_then_cuts_change_nothing(parts: list[str]) -> None:
    said = "".join(parts)
    whole = read(QWEN, [said])
    assert read(QWEN, parts) == whole
    assert read(QWEN, list(said)) == whole


def test_tools_when_none_were_given_then_marks_of_calls_are_content() -> None:
    assert read(QWEN, ["<tool_call>{}</tool_call>"], tools=False) == ("<tool_call>{}</tool_call>", "", [])


def test_standing_when_an_answer_goes_on_then_a_format_is_for_its_content() -> None:
    reader = reader_of(formed(QWEN), prompt_end="", tools=True)
    stands = [reader.standing]
    for part in ("<think>", "hm", "</think>", "\n\n", "<tool_call>", "{}", "</tool_call>", "Hi"):
        reader.feed(part)
        stands.append(reader.standing)
    before, free, content = Standing.BEFORE, Standing.FREE, Standing.CONTENT
    assert stands == [before, free, free, before, before, free, free, before, content]


TEMPLATES = {
    "qwen": (QWEN, ("<think>", "</think>"), "json_tools"),
    "qwen coder": ("{{ tools }}<tool_call>\n<function=", None, "qwen3_coder"),
    "gemma 4": (
        "<|channel>thought <channel|> <|tool_call> <tool_call|>",
        ("<|channel>thought", "<channel|>"),
        "gemma4",
    ),
    "mistral": ("{{ tools }}[TOOL_CALLS]", None, "mistral"),
    "deepseek": ("</think> <｜tool▁calls▁begin｜>", ("<think>", "</think>"), "deepseek"),
    "llama 3": ("{{ tools }} Environment: ipython", None, "json"),
    "some other with tools": ("{{ tools }}", None, "json"),
    "neither": ("{{ messages }}", None, ""),
}


@pytest.mark.parametrize(("template", "thought", "reader"), TEMPLATES.values(), ids=TEMPLATES.keys())
def test_format_when_a_template_speaks_of_marks_then_they_are_known(
    template: str, thought: tuple[str, str] | None, reader: str
) -> None:
    how = formed(template)
    assert (how.thought, how.reads_calls_by) == (thought, reader)
    assert how.thinks == thinks(template) == (thought is not None)
    assert AnswerFormat.from_json(how.to_json()) == how


def test_format_when_a_template_is_of_gpt_oss_kind_then_it_speaks_in_channels() -> None:
    assert speaks_in_channels(GPT_OSS)
    assert uses_tools(GPT_OSS)
    assert formed(GPT_OSS).channels
    assert formed("<|channel>thought").opens == 6  # a token that begins the mark, and nothing else


TOOLS = [{"type": "function", "function": {"name": "w", "parameters": {"properties": {"n": {"type": "integer"}}}}}]
ONE, TWO = {"name": "w", "arguments": {"n": 1}}, {"name": "w", "arguments": {"n": 2}}
WRITTEN: dict[str, tuple[str, str, list[Any]]] = {
    "json_tools": ("json_tools", '\n{"name": "w", "arguments": {"n": 1}}\n', [ONE]),
    "qwen3_coder": ("qwen3_coder", "\n<function=w>\n<parameter=n>\n1\n</parameter>\n</function>\n", [ONE]),
    "mistral": ("mistral", 'w[ARGS]{"n": 1}w[ARGS]{"n": 2}', [ONE, TWO]),
    "mistral of before": ("mistral", '[{"name": "w", "arguments": {"n": 1}}]', [ONE]),
    "glm47": ("glm47", "w\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n", [ONE]),
    "laguna": ("laguna", "w<arg_key>n</arg_key><arg_value>1</arg_value>", [ONE]),
    "pythonic": ("pythonic", "[w(n=1), w(n=2)]", [ONE, TWO]),
    "olmo": ("lines", "w(n=1)\nw(n=2)", [ONE, TWO]),
    "gemma4": ("gemma4", "call:w{n:1}", [ONE]),
    "function_gemma": ("function_gemma", "call:w{n:1}", [ONE]),
    "kimi_k2": (
        "kimi_k2",
        '<|tool_call_begin|>functions.w:0<|tool_call_argument_begin|>{"n": 1}<|tool_call_end|>',
        [ONE],
    ),
    "minimax_m2": ("minimax_m2", '<invoke name="w"><parameter name="n">1</parameter></invoke>', [ONE]),
    "minicpm5": ("minicpm5", '"w"><param name="n">1</param>', [ONE]),
    "longcat": ("longcat", "w\n<longcat_arg_key>n</longcat_arg_key>\n<longcat_arg_value>1</longcat_arg_value>", [ONE]),
    "deepseek v3": (
        "deepseek",
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜>w\n```json\n{"n": 1}\n```<｜tool▁call▁end｜>',
        [ONE],
    ),
    "deepseek v3.1": ("deepseek", '<｜tool▁call▁begin｜>w<｜tool▁sep｜>{"n": 2}<｜tool▁call▁end｜>', [TWO]),
    "llama 3": ("json", '{"name": "w", "parameters": {"n": 1}}; {"name": "w", "parameters": {"n": 2}}', [ONE, TWO]),
    "cohere": ("json", '[{"tool_call_id": "0", "tool_name": "w", "parameters": {"n": 1}}]', [ONE]),
    "gpt-oss": ("channels", '{"name": "w", "arguments": {"n": 1}}', [ONE]),
    "of no tool": ("json", '{"name": "x", "parameters": {}}', []),
    "no call": ("json_tools", "hm", []),
    "half a call": ("json_tools", '{"name": "w", "argu', []),
    "no name": ("json_tools", '{"arguments": {}}', []),
    "a number": ("json_tools", "7", []),
}


@pytest.mark.parametrize(("reader", "text", "wanted"), WRITTEN.values(), ids=WRITTEN.keys())
def test_calls_when_written_as_a_family_writes_them_then_read(reader: str, text: str, wanted: list[Any]) -> None:
    assert read_calls(text, reader=reader, tools=TOOLS) == wanted
