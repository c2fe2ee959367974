"""The frames of an answer to an envelope: `\\x1e{"n": 1, "c": "text"}`.

JSON never holds raw control characters, so the marker can't occur inside.
"""

import json
from itertools import count

_FRAME = "\x1e"


class Framer:
    """Puts answer text into frames, or leaves it plain. A number in each keeps equal chunks apart: the stock server
    ends a stream after 31 equal ones."""

    def __init__(self, *, framed: bool) -> None:
        self._framed = framed
        self._numbers = count(1)

    def content(self, text: str) -> str:
        """One piece of the answer."""
        if not self._framed:
            return text
        return _FRAME + json.dumps({"n": next(self._numbers), "c": text}, ensure_ascii=False, separators=(",", ":"))
