"""The chat templates of a checkpoint: found where repositories keep them, and tried before anybody needs them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafila_sidecar.errors import InvalidInput, Refused
from kafila_sidecar.runtime.text.provenance import OwnText
from kafila_sidecar.runtime.text.template import ChatTemplate
from kafila_sidecar.small_files import (
    CHAT_TEMPLATE,
    MORE_TEMPLATES,
    MOST_TEMPLATES,
    TEMPLATE_HOLDERS,
    TOKENIZER_CONFIG,
    read_optional_json,
    read_text,
)

DEFAULT, TOOL_USE = "default", "tool_use"

_PROBE = "kafilaprobe"
_SYSTEM_PROBE = "kafilasystem"
_TOOL = {
    "type": "function",
    "function": {
        "name": "kafilatool",
        "description": "Looks something up.",
        "parameters": {
            "type": "object",
            "properties": {"key": {"type": "string", "description": "What."}},
            "required": [],
        },
    },
}


def find_templates(model: str, folder: Path) -> dict[str, str]:
    """A checkpoint's templates by name, "default" first of all; {} where it has none.

    Files of their own go before what tokenizer_config.json says, as in the Hub's own tools, and that before what
    processors say. Raises Refused for files that can't be read.
    """
    files = sorted((folder / MORE_TEMPLATES).glob("*.jinja"))[:MOST_TEMPLATES]
    found = {path.stem: read_text(model, path) for path in files}
    if (folder / CHAT_TEMPLATE).is_file():
        found[DEFAULT] = read_text(model, folder / CHAT_TEMPLATE)
    for name in (TOKENIZER_CONFIG, *TEMPLATE_HOLDERS):
        if found:
            break
        found = _named(read_optional_json(model, folder, name).get("chat_template"))
    if found and DEFAULT not in found:
        if len(found) > 1:
            raise Refused(f"{model} has the chat templates {', '.join(sorted(found))[:200]}, and none for every day")
        found = {DEFAULT: next(iter(found.values()))}
    return found


def _named(value: Any) -> dict[str, str]:
    match value:
        case str():
            return {DEFAULT: value}
        case list():
            pairs = [(one.get("name"), one.get("template")) for one in value if isinstance(one, dict)]
        case dict():
            pairs = list(value.items())
        case _:
            return {}
    return {name: text for name, text in pairs[:MOST_TEMPLATES] if isinstance(name, str) and isinstance(text, str)}


@dataclass(frozen=True, slots=True)
class Templates:
    """A checkpoint's templates, and what a trial said of the everyday one.

    takes_parts: it wants content as a list of parts. takes_system: it shows what the system says. reads_tools: it tells
    the model of tools. fault: why it can't be used; "" if it can.
    """

    default: ChatTemplate
    tool_use: ChatTemplate
    special_tokens: Mapping[str, str]
    takes_parts: bool = False
    takes_system: bool = False
    reads_tools: bool = False
    fault: str = ""

    @classmethod
    def tried(cls, sources: Mapping[str, str], special_tokens: Mapping[str, str]) -> "Templates":
        """Raises: Refused for a template that can't be compiled."""
        default = ChatTemplate(sources[DEFAULT])
        tool_use = ChatTemplate(sources[TOOL_USE]) if TOOL_USE in sources else default
        trial = _Trial(default, tool_use, special_tokens)
        takes_parts = not trial.shows(_PROBE, [_user(_PROBE)]) and trial.shows(_PROBE, [_user(_PROBE, parts=True)])
        said = _user(_PROBE, parts=takes_parts)
        return cls(
            default=default,
            tool_use=tool_use,
            special_tokens=special_tokens,
            takes_parts=takes_parts,
            takes_system=trial.shows(_SYSTEM_PROBE, [_message("system", _SYSTEM_PROBE, takes_parts), said]),
            reads_tools=trial.shows("kafilatool", [said], tools=[_TOOL]),
            fault=trial.fault([said]),
        )

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any],
        settings: Mapping[str, Any],
        *,
        begun: bool = False,
    ) -> OwnText:
        """`begun`: the last message is how the answer begins. Raises: InvalidInput when the template refuses the
        conversation."""
        beginning = str(messages[-1].get("content", "")) if begun else ""
        if self.takes_parts:
            messages = [{**message, "content": _parts(message.get("content", ""))} for message in messages]
        template = self.tool_use if tools else self.default
        return template.render(messages, tools, self.special_tokens, settings, begun=beginning)

    def trials(self, settings: Mapping[str, Any]) -> Iterator[OwnText]:
        """Renderings of harmless conversations of each sort that it takes."""
        system = [_message("system", _SYSTEM_PROBE, False)] if self.takes_system else []
        conversation = [*system, _user(_PROBE)]
        yield self.render(conversation, (), settings)
        if self.reads_tools:
            yield self.render(conversation[-1:], [_TOOL], settings)


@dataclass(frozen=True, slots=True)
class _Trial:
    default: ChatTemplate
    tool_use: ChatTemplate
    special_tokens: Mapping[str, str]

    def shows(self, text: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> bool:
        template = self.tool_use if tools else self.default
        try:
            return text in template.render(messages, tools, self.special_tokens)
        except InvalidInput:
            return False

    def fault(self, messages: Sequence[Mapping[str, Any]]) -> str:
        try:
            rendered = self.default.render(messages, (), self.special_tokens)
        except InvalidInput as error:
            return str(error)
        return "" if _PROBE in rendered else "the model's chat template leaves out what the user says"


def _user(text: str, *, parts: bool = False) -> dict[str, Any]:
    return _message("user", text, parts)


def _message(role: str, text: str, parts: bool) -> dict[str, Any]:
    return {"role": role, "content": _parts(text) if parts else text}


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
