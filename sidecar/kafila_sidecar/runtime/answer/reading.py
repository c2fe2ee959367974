"""Reads an answer whose thoughts and calls stand between marks, as it is written. Pure: text in, pieces out.

What may yet become a mark is held back, and so are blanks before one, which stock Ollama drops.
"""

from typing import Protocol

from kafila_sidecar.runtime.answer.formats import AnswerFormat, CallFormat
from kafila_sidecar.runtime.answer.pieces import CallText, Content, Piece, Standing, Thought

TAIL_TOKENS = 24
"""Of a prompt, which show whether a thought is open at its end."""


class AnswerReader(Protocol):
    """Follows one answer."""

    @property
    def standing(self) -> Standing: ...
    @property
    def may_think(self) -> bool:
        """Whether a thought may yet begin, that the prompt has not opened or closed."""

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are certain after more text."""

    def finish(self) -> list[Piece]:
        """What was held back, once no more comes."""


class PlainReader:
    """Of an answer to a raw prompt: whatever it says is content."""

    standing = Standing.CONTENT
    may_think = False

    def feed(self, text: str) -> list[Piece]:
        return [Content(text)] if text else []

    def finish(self) -> list[Piece]:
        return []


class MarkReader:
    """One answer. `prompt_end`: the text before it, of which the last mark counts. `tools`: whether calls are looked
    for."""

    def __init__(self, how: AnswerFormat, *, prompt_end: str, tools: bool) -> None:
        self._thought = how.thought
        self._call: CallFormat | None = how.call if tools else None
        self._held = ""
        self._looked = 0  # characters of what is held that are no beginning of the mark that is looked for
        self._in_thought = self._in_call = self._has_said = self._has_called = False
        self.may_think = how.thought is not None
        if how.thought is not None:
            end = prompt_end.rstrip()
            self._in_thought = end.endswith(how.thought[0])
            self.may_think = not (self._in_thought or end.endswith(how.thought[1]))
        self._is_fresh = not self._in_thought and how.thought is None  # nothing is to be dropped before the content

    @property
    def standing(self) -> Standing:
        if self._in_thought or self._in_call:
            return Standing.FREE
        return Standing.CONTENT if self._has_said else Standing.BEFORE

    def feed(self, text: str) -> list[Piece]:
        self._held += text
        pieces: list[Piece] = []
        while (made := self._step()) is not None:
            pieces += made
        return pieces

    def finish(self) -> list[Piece]:
        held, self._held, self._looked = self._held, "", 0
        if self._in_call:
            self._in_call = False
            assert self._call is not None
            return [CallText(held, self._call.start + held)]
        if self._in_thought:
            return [Thought(held)] if (held := held.rstrip()) else []
        held = held if self._has_said or self._is_fresh else held.lstrip()
        return [Content(held)] if held else []

    def _step(self) -> list[Piece] | None:
        """What comes next of what is held; None where more is needed."""
        if self._in_call:
            return self._in_calls()
        if self._in_thought:
            return self._in_thoughts()
        return self._in_content() if self._has_said else self._before()

    def _before(self) -> list[Piece] | None:
        """The answer's beginning, or that of what follows a thought or a call."""
        text = self._held.lstrip()
        if not text:
            return None
        marks = []
        if self.may_think and self._thought is not None:
            marks.append(self._thought[0])
        if self._call is not None and self._call.start:
            marks.append(self._call.start)
        for mark in marks:
            if text.startswith(mark):
                self._take_mark(mark, text)
                return []
        if any(mark.startswith(text) for mark in marks):
            return None
        self.may_think = False
        if self._call is not None and not self._call.start and text[0] in "{[":
            self._in_call, self._held, self._looked = True, text, 0
            return []
        self._held, self._has_said = self._held if self._is_fresh else text, True
        return []

    def _take_mark(self, mark: str, text: str) -> None:
        self._held, self._looked, self.may_think = text[len(mark) :], 0, False
        if self._thought is not None and mark == self._thought[0]:
            self._in_thought = True
        else:
            self._in_call = True

    def _in_thoughts(self) -> list[Piece] | None:
        assert self._thought is not None
        ends = [self._thought[1], *([self._call.start] if self._call is not None and self._call.start else [])]
        found = [(at, end) for end in ends if (at := self._held.find(end)) >= 0]
        if not found:
            return self._let_go(ends, Thought)
        at, end = min(found)
        thought = self._held[:at].rstrip() if self._looked else self._held[:at].strip()
        self._held, self._looked, self._in_thought = self._held[at + len(end) :], 0, False
        self._in_call, self._is_fresh = end != self._thought[1], False
        return [Thought(thought)] if thought else []

    def _in_content(self) -> list[Piece] | None:
        if self._call is None or not self._call.start:
            content, self._held = self._held, ""
            return [Content(content)] if content else None
        at = self._held.find(self._call.start)
        if at < 0:
            return self._let_go([self._call.start], Content)
        content = self._held[:at].rstrip()
        self._held, self._looked, self._in_call = self._held[at + len(self._call.start) :], 0, True
        return [Content(content)] if content else []

    def _in_calls(self) -> list[Piece] | None:
        assert self._call is not None
        end = self._call.end
        at = self._held.find(end, self._looked) if end else -1
        if at < 0:
            self._looked = max(0, len(self._held) - len(end) + 1)
            return None
        text, self._held = self._held[:at], self._held[at + len(end) :]
        self._in_call = self._has_said = self._is_fresh = False
        self._looked = 0
        return [CallText(text, self._call.start + text + end)]

    def _let_go(self, marks: list[str], kind: type[Thought] | type[Content]) -> list[Piece] | None:
        """What is certain of a running text: all but its last blanks and what a mark may begin with."""
        text = self._held
        if kind is Thought and not self._looked:
            text = text.lstrip()  # blanks after the mark
        keep = max(_overlap(text, mark) for mark in marks)
        shown = text[: len(text) - keep].rstrip()
        if not shown:
            self._held = text
            return None
        self._held, self._looked = text[len(shown) :], 1
        return [kind(shown)]


def reader_of(how: AnswerFormat, *, prompt_end: str, tools: bool) -> AnswerReader:
    """For one answer to a conversation."""
    if how.channels:
        from kafila_sidecar.runtime.answer.channels import ChannelReader

        return ChannelReader()
    if how.thought is None and (how.call is None or not tools):
        return PlainReader()
    return MarkReader(how, prompt_end=prompt_end, tools=tools)


def _overlap(text: str, mark: str) -> int:
    """How much of the text's end a mark begins with."""
    return next((size for size in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:size])), 0)
