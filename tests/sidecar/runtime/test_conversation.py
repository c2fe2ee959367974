from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.text.conversation import (
    Message,
    fit_messages,
    fit_tokens,
    for_template,
    with_names,
    without_oldest,
)

roles = st.sampled_from(["system", "user", "assistant"])
conversations = st.lists(
    st.builds(lambda role, size: {"role": role, "content": "x" * size}, roles, st.integers(0, 9)),
    min_size=1,
    max_size=12,
)


def render(messages: Sequence[Message]) -> list[int]:
    """A template that costs two tokens a message, and one for each letter."""
    return [token for message in messages for token in (1, *[2] * len(message["content"]), 3)]


def stock(messages: Sequence[Message], limit: int) -> list[int]:
    """What server/prompt.go does, one message after another."""
    for dropped in range(len(messages)):
        ids = render(without_oldest(messages, dropped))
        if len(ids) <= limit or dropped == len(messages) - 1:
            return ids
    raise AssertionError


@given(conversations, st.integers(1, 60))
def test_conversation_when_too_long_then_cut_as_stock_ollama_does(messages: list[dict[str, str]], limit: int) -> None:
    assert fit_messages(messages, render, limit) == stock(messages, limit)


def test_conversation_when_very_long_then_rendered_few_times() -> None:
    calls = 0

    def counting(messages: Sequence[Message]) -> list[int]:
        nonlocal calls
        calls += 1
        return render(messages)

    fit_messages([{"role": "user", "content": "x"}] * 1000, counting, limit=300)
    assert calls <= 12


def test_conversation_when_the_template_refuses_a_beginning_then_cut_further() -> None:
    def users_first(messages: Sequence[Message]) -> list[int] | None:
        return render(messages) if messages[0]["role"] == "user" else None

    messages = [{"role": role, "content": "xx"} for role in ("user", "assistant", "user")]
    assert fit_messages(messages, users_first, limit=9) == render(messages[2:])


def test_conversation_when_nothing_can_be_rendered_then_refused() -> None:
    with pytest.raises(InvalidInput):
        fit_messages([{"role": "user", "content": "x"}], lambda _: None, limit=9)


@pytest.mark.parametrize(
    ("length", "limit", "keep", "cut"),
    [
        (5, 5, 2, [0, 1, 2, 3, 4]),
        (8, 5, 2, [0, 1, 5, 6, 7]),
        (8, 5, 0, [3, 4, 5, 6, 7]),
        (8, 5, -1, [0, 1, 2, 3, 7]),
        (8, 1, 4, [7]),
    ],
)
def test_ids_when_too_many_then_the_first_few_and_the_newest_stay(
    length: int, limit: int, keep: int, cut: list[int]
) -> None:
    assert fit_tokens(range(length), limit=limit, keep=keep) == cut


def test_message_when_it_comes_from_ollama_then_by_the_hubs_names() -> None:
    call = {"function": {"name": "weather", "arguments": {"city": "Samarkand"}}}
    assert for_template({"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call]}) == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
        "tool_calls": [call],
    }
    assert for_template({"role": "tool", "content": "21", "tool_name": "weather"})["name"] == "weather"


@pytest.mark.parametrize("message", [{}, {"role": "user", "content": 3}, {"role": "user", "images": ["…"]}], ids=str)
def test_message_when_it_cant_be_read_then_refused(message: Message) -> None:
    with pytest.raises(InvalidInput):
        for_template(message)


def test_result_when_only_its_call_s_id_is_known_then_named_as_the_call() -> None:
    calls = [{"id": str(at), "function": {"name": name, "arguments": {}}} for at, name in enumerate(("look", "hear"))]
    results = [
        {"role": "tool", "content": "b", "tool_call_id": "1"},
        {"role": "tool", "content": "a", "tool_call_id": "0", "tool_name": "own"},
        {"role": "tool", "content": "c", "tool_call_id": "7"},
        {"role": "tool", "content": "d"},
    ]
    asked = {"role": "assistant", "content": "", "tool_calls": calls}
    assert [for_template(message).get("name") for message in with_names([asked, *results])] == [
        *(None, "hear", "own", None, None),
    ]
