"""Reads an answer as gpt-oss writes it: messages one after another, each with a header that names its channel and the
tool that it calls. Pure.

    <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…<|return|>
"""

import json
import re

from kafila_sidecar.runtime.answer.pieces import CallText, Content, Piece, Standing, Thought

_BODY = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>")
_END = re.compile("|".join(map(re.escape, _ENDS)))
_TOOL = re.compile(r"to=(?:functions\.)?([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_LONGEST = max(map(len, _ENDS)) - 1
MOST_HEADER = 1000  # characters; what is longer is none


class ChannelReader:
    """One answer, whose first header the prompt has begun."""

    may_think = False  # but in messages of their own

    def __init__(self) -> None:
        self._held = ""
        self._header: str | None = None  # of the message that is being read; None: the header itself is
        self._thinks = False
        self._tool: str | None = None

    @property
    def standing(self) -> Standing:
        is_content = self._header is not None and not self._thinks and self._tool is None
        return Standing.CONTENT if is_content else Standing.FREE

    def feed(self, text: str) -> list[Piece]:
        self._held += text
        pieces: list[Piece] = []
        while (made := self._in_header() if self._header is None else self._in_body()) is not None:
            pieces += made
        return pieces

    def finish(self) -> list[Piece]:
        held, self._held = self._held, ""
        if self._header is None:
            return []
        return self._call(held) if self._tool is not None else self._said(held)

    def _in_header(self) -> list[Piece] | None:
        at = self._held.find(_BODY)
        if at < 0:
            if len(self._held) <= MOST_HEADER:
                return None
            self._header, self._thinks, self._tool = "", False, None
            return []
        header, self._held = self._held[:at], self._held[at + len(_BODY) :]
        channel, tool = _CHANNEL.search(header), _TOOL.search(header)
        self._header, self._tool = header, tool[1] if tool else None
        self._thinks = channel is not None and channel[1] == "analysis"
        return []

    def _in_body(self) -> list[Piece] | None:
        end = _END.search(self._held)
        if end is None:
            return self._running()
        body, mark = self._held[: end.start()], end[0]
        pieces = self._call(body) if self._tool is not None else self._said(body)
        rest = self._held[end.end() :]
        self._held = mark + rest if mark == "<|channel|>" else rest
        self._header = None
        return pieces

    def _running(self) -> list[Piece] | None:
        """What is certain of a body that goes on."""
        keep = next((n for n in range(_LONGEST, 0, -1) if any(m.startswith(self._held[-n:]) for m in _ENDS)), 0)
        text = self._held[: len(self._held) - min(keep, len(self._held))]
        if self._tool is not None or not text:
            return None
        self._held = self._held[len(text) :]
        return self._said(text)

    def _said(self, text: str) -> list[Piece]:
        if not text:
            return []
        return [Thought(text) if self._thinks else Content(text)]

    def _call(self, body: str) -> list[Piece]:
        assert self._header is not None
        return [CallText(f'{{"name": {json.dumps(self._tool)}, "arguments": {body or "{}"}}}', body)]
