"""How a checkpoint writes thoughts and calls of tools, by what its chat template speaks of. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

THOUGHT_MARKS = (
    ("<think>", "</think>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|think:start|>", "<|think:end|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
)
"""Around a thought, as mlx-lm and stock Ollama know them, and what else templates on the Hub write."""
CHANNELS = ("<|channel|>", "<|message|>")
"""What a template of gpt-oss' kind speaks of: each message of an answer names its channel."""

_PARSERS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<minimax:tool_call>",), "minimax_m2"),
    (("<|tool_call>", "<tool_call|>"), "gemma4"),
    (("<start_function_call>",), "function_gemma"),
    (("<longcat_tool_call>",), "longcat"),
    (("<arg_key>",), "glm47"),
    (("<|tool_list_start|>",), "pythonic"),
    (("<|tool_call_start|>",), "pythonic"),
    (("<tool_call>\\n<function=",), "qwen3_coder"),
    (("<tool_call>\n<function=",), "qwen3_coder"),
    (("<|tool_calls_section_begin|>",), "kimi_k2"),
    (('<function name="', '<param name="'), "minicpm5"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<atem:function_calls>",), "muse_spark"),
    (("<tool_call>",), "json_tools"),
)
"""Which of mlx-lm's parsers reads the calls that a template speaks of, as it chooses itself; the first that fits."""
_OWN: tuple[tuple[str, str, str, str], ...] = (
    ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "deepseek"),
    ("<|START_ACTION|>", "<|START_ACTION|>", "<|END_ACTION|>", "json"),
    ("<function_calls>", "<function_calls>", "</function_calls>", "lines"),
    ("<|/tool_call|>", "<|tool_call|>", "<|/tool_call|>", "json"),
    ("<|tool_call|>", "<|tool_call|>", "", "json"),
    ("<|python_tag|>", "", "", "json"),
    ("Environment: ipython", "", "", "json"),
    ('"parameters": dictionary of argument name', "", "", "json"),
)
"""What a template speaks of, the marks around calls, and our own reader of them, where mlx-lm has none. Without marks a
call is an answer that begins as JSON."""

_TOOLS = re.compile(r"\btools\b")


@dataclass(frozen=True, slots=True)
class CallFormat:
    """start, end: the marks around calls; no end: to the end of the answer; no start: an answer that begins as JSON.
    reader: see `calls.py`. first: the id of a token that begins `start` and nothing else, where there is one."""

    start: str
    end: str
    reader: str
    first: int | None = None


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """thought: the marks around one, None for a checkpoint that doesn't think. opens: the id of a token that begins the
    first mark and nothing else, where there is one. call: None where none can be read. channels: as gpt-oss."""

    thought: tuple[str, str] | None = None
    opens: int | None = None
    call: CallFormat | None = None
    channels: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "AnswerFormat":
        """What `to_json` made."""
        thought, call = told["thought"], told["call"]
        return cls(
            thought=tuple(thought) if thought else None,
            opens=told["opens"],
            call=CallFormat(**call) if call else None,
            channels=told["channels"],
        )

    @property
    def reads_calls_by(self) -> str:
        """The reader of its calls; see `calls.py`."""
        return "channels" if self.channels else self.call.reader if self.call is not None else ""

    @property
    def thinks(self) -> bool:
        return self.channels or self.thought is not None


PLAIN = AnswerFormat()
"""Of a checkpoint without a chat template: whatever it says is content."""


def speaks_in_channels(template: str) -> bool:
    """Whether a checkpoint with this chat template answers as gpt-oss does."""
    return all(mark in template for mark in CHANNELS)


def thinks(template: str) -> bool:
    """Whether a checkpoint with this chat template thinks before it answers."""
    return speaks_in_channels(template) or _thought_marks(template) is not None


def uses_tools(template: str) -> bool:
    """Whether a chat template tells the model of tools."""
    return _TOOLS.search(template) is not None


def answer_format(
    template: str,
    *,
    named_parser: str | None,
    marks_of: Callable[[str], tuple[str, str]],
    control_of: Callable[[str], int | None],
) -> AnswerFormat:
    """`template`: all of a checkpoint's, one after another. named_parser: mlx-lm's that its tokenizer names. marks_of:
    those of such a parser. control_of: the id of a token that is no text."""
    if speaks_in_channels(template):
        return AnswerFormat(channels=True)
    thought, call = _thought_marks(template), _call_format(template, named_parser, marks_of)
    if call is not None and call.start:
        call = CallFormat(call.start, call.end, call.reader, _first(call.start, control_of))
    return AnswerFormat(thought, _first(thought[0], control_of) if thought else None, call)


def _thought_marks(template: str) -> tuple[str, str] | None:
    return next((marks for marks in THOUGHT_MARKS if marks[0] in template or marks[1] in template), None)


def _call_format(
    template: str, named_parser: str | None, marks_of: Callable[[str], tuple[str, str]]
) -> CallFormat | None:
    fitting = (reader for signs, reader in _PARSERS if all(sign in template for sign in signs))
    parser = named_parser or next(fitting, None)
    if parser is not None:
        return CallFormat(*marks_of(parser), parser)
    own = (CallFormat(start, end, reader) for sign, start, end, reader in _OWN if sign in template)
    return next(own, CallFormat("", "", "json") if uses_tools(template) else None)


def _first(mark: str, control_of: Callable[[str], int | None]) -> int | None:
    """The token for the mark, or the longest one that begins it, as <|channel> does <|channel>thought."""
    beginnings = (mark[:size] for size in range(len(mark), 1, -1))
    return next((number for one in beginnings if (number := control_of(one)) is not None), None)
