"""The frames of an answer to an envelope: `\\x1e{"n": 1, "c": "text"}`, `{"t": thought}`, `{"call": {…}}`.

JSON never holds raw control characters, so the marker can't occur inside.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from kafila_sidecar.runtime.answer.pieces import Content, Thought

_FRAME = "\x1e"


class Framer:
    """Puts what an answer says into frames, or leaves its text plain. A number in each keeps equal chunks apart: the
    stock server ends a stream after 31 equal ones."""

    def __init__(self, *, framed: bool) -> None:
        self._framed = framed
        self._numbers = count(1)

    def content(self, text: str) -> str:
        """One piece of the answer."""
        return self._frame("c", text) if self._framed else text

    def said(self, piece: Content | Thought) -> str:
        """One piece of content or thought."""
        return self._frame("t", piece.text) if isinstance(piece, Thought) else self.content(piece.text)

    def calls(self, calls: Iterable[Mapping[str, Any]]) -> str:
        """Calls of tools, one after another."""
        return "".join(self._frame("call", call) for call in calls)

    def _frame(self, kind: str, value: Any) -> str:
        body = {"n": next(self._numbers), kind: value}
        return _FRAME + json.dumps(body, ensure_ascii=False, separators=(",", ":"))
