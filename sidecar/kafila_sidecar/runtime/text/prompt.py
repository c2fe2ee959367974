"""What a prompt says: chat messages in the renderer's envelope, or plain text.

The Ollama side renders a chat as one envelope, `\\x02kafila1 {"messages": […], "tools": […], "think": …}\\x03`; what
follows `\\x03` is not ours. JSON never holds raw control characters, so neither marker can occur inside.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafila_sidecar.errors import InvalidInput

_OPEN = "\x02kafila1 "
_CLOSE = "\x03"


@dataclass(frozen=True, slots=True)
class PlainPrompt:
    """Text to be continued as it stands."""

    text: str

    @property
    def last_text(self) -> str:
        """All of it."""
        return self.text


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages for the checkpoint's own chat template, as Ollama's API has them."""

    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]]
    think: bool | str | None

    @property
    def last_text(self) -> str:
        """What the last message says."""
        return str(self.messages[-1].get("content", "")) if self.messages else ""


def is_chat(raw: str) -> bool:
    """Whether a prompt comes in an envelope, however broken."""
    return raw.startswith(_OPEN)


def parse_prompt(raw: str) -> PlainPrompt | ChatPrompt:
    """Reads what the runner was given.

    Raises:
        InvalidInput: the envelope is not what our renderer writes.
    """
    if not is_chat(raw):
        return PlainPrompt(raw)
    body, closed, _ = raw[len(_OPEN) :].partition(_CLOSE)
    try:
        fields = json.loads(body)
        if "\\ud" in body.lower():
            json.dumps(fields, ensure_ascii=False).encode()  # half a character, escaped, is no text
        messages, tools, think = fields["messages"], fields.get("tools") or [], fields.get("think")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidInput(f"the prompt's envelope can't be read: {error}") from None
    if not (closed and _are_objects(messages) and _are_objects(tools) and isinstance(think, bool | str | None)):
        raise InvalidInput("the prompt's envelope is not closed, or holds something else than messages and tools")
    return ChatPrompt(messages, tools, think)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)
