"""Conversations in Ollama's JSON, made ready for a chat template, and cut to fit the context. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kafila_sidecar.errors import InvalidInput

Message = Mapping[str, Any]
Render = Callable[[Sequence[Message]], list[int] | None]
"""The token ids of a conversation; None where the template refuses it, as some do when the user doesn't begin."""

TOO_LONG = "the input length exceeds the context length"  # the stock runner's words


def for_template(message: Message) -> dict[str, Any]:
    """One of Ollama's messages with the names that chat templates on the Hub read.

    Raises: InvalidInput for a message without a role, or with images.
    """
    role, content = message.get("role"), message.get("content", "")
    if not isinstance(role, str) or not isinstance(content, str):
        raise InvalidInput("a message needs a role and a text as its content")
    if message.get("images"):
        raise InvalidInput("this session's model reads text only: leave the images out")
    made: dict[str, Any] = {"role": role, "content": content}
    renamed = {"tool_calls": "tool_calls", "tool_name": "name", "tool_call_id": "tool_call_id"}
    made |= {theirs: message[ours] for ours, theirs in renamed.items() if message.get(ours)}
    if message.get("thinking"):
        made["reasoning_content"] = message["thinking"]
    return made


def with_names(messages: Sequence[Message]) -> list[Message]:
    """The conversation with each result of a tool named as the call was: some APIs give no more than the call's id."""
    names: dict[str, str] = {}
    made: list[Message] = []
    for message in messages:
        names |= dict(_called(message))
        name = names.get(str(message.get("tool_call_id")))
        made.append({**message, "tool_name": name} if name and not message.get("tool_name") else message)
    return made


def _called(message: Message) -> Iterator[tuple[str, str]]:
    """The calls of tools in it: id and name."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        match call:
            case {"id": str(number), "function": {"name": str(name)}}:
                yield number, name


def without_oldest(messages: Sequence[Message], dropped: int) -> list[Message]:
    """The conversation less its first `dropped` messages, of which those of the system stay."""
    kept = [message for message in messages[:dropped] if message.get("role") == "system"]
    return [*kept, *messages[dropped:]]


def newest(messages: Sequence[Message], *, characters: int, most: int) -> list[Message]:
    """The conversation less its oldest messages, as few of them as leave at most `most` with so many `characters` of
    content; the system's stay, and the last one."""
    sizes = [len(str(message.get("content", ""))) for message in messages]
    size, count, dropped = sum(sizes), len(messages), 0
    while dropped < len(messages) - 1 and (size > characters or count > most):
        if messages[dropped].get("role") != "system":
            size, count = size - sizes[dropped], count - 1
        dropped += 1
    return without_oldest(messages, dropped)


def fit_messages(messages: Sequence[Message], render: Render, limit: int) -> list[int]:
    """The ids of the longest end of the conversation that takes at most `limit` tokens, system messages kept.

    At least the last message stays, whether or not it fits. Few renderings: the cut is found by halving.

    Raises: InvalidInput when not even that can be rendered.
    """
    whole = render(messages)
    if whole is not None and len(whole) <= limit:
        return whole
    low, high = 1, max(len(messages) - 1, 0)  # the cut is in [low, high]; high is taken as the last resort
    best = render(without_oldest(messages, high))
    while low < high:
        middle = (low + high) // 2
        ids = render(without_oldest(messages, middle))
        if ids is not None and len(ids) <= limit:
            best, high = ids, middle
        else:
            low = middle + 1
    if best is None:
        raise InvalidInput("the model's chat template doesn't take this conversation")
    return best


def fit_tokens(ids: Sequence[int], *, limit: int, keep: int) -> list[int]:
    """Ids cut to `limit` as the stock runner does: the first `keep` stay (all for -1), what follows them goes."""
    if len(ids) <= limit:
        return list(ids)
    kept = min(len(ids) if keep < 0 else keep, limit - 1)
    return [*ids[:kept], *ids[len(ids) - (limit - kept) :]]
