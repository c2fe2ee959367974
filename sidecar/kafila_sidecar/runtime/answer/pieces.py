"""The pieces that an answer consists of, one after another."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Content:
    """What the model says to whoever asked."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """What it thinks before."""

    text: str


@dataclass(frozen=True, slots=True)
class CallText:
    """Calls of tools as it wrote them: what stands between the marks, and all of it with them."""

    text: str
    whole: str


Piece = Content | Thought | CallText


class Standing(Enum):
    """Where an answer stands, as far as a format that it is held to is concerned."""

    FREE = "free"  # within a thought, a call or a header, to which no format applies
    BEFORE = "before"  # content may begin, or a thought or a call
    CONTENT = "content"
