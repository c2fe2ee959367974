"""A model that calls a tool, and answers once it has what came of it, said by a ring of real processes: packages that
live on calls of tools get along with it at a member that is not the head."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.clients.conftest import SayingPair, run_program
from tests.clients.speaking import ANSWER, CALL, PLACE, answers_when_cut
from tests.support.cluster import ClusterMember

RESULTS: list[dict[str, Any]] = [
    {"role": "user", "content": "Where?"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": CALL}]},
    {"role": "tool", "content": "seen", "tool_call_id": "1"},
]


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """A member that is not the head, and the model's name. answers: what is whole of the first 1, 2, … tokens."""

    member: ClusterMember
    model: str
    answers: tuple[str, ...]


@pytest.fixture(scope="module")
def caller(pair: SayingPair) -> Iterator[ProgramRun]:
    with pair.asked(pair.calling) as (member, model):
        yield ProgramRun(member, model, answers_when_cut(pair.calling))


def test_agent_when_a_tool_is_called_then_its_answer_comes_behind_the_result(caller: ProgramRun) -> None:
    told = run_program("calls_langgraph.py", caller.member, caller.model)[caller.model]
    turns = [
        {"type": "human", "content": "Where?", "calls": []},
        {"type": "ai", "content": "", "calls": [{"name": "look", "args": {"at": PLACE}}]},
        {"type": "tool", "content": f"seen {PLACE}", "calls": []},
        {"type": "ai", "content": ANSWER, "calls": []},
    ]
    assert told == {"an agent": turns, "an agent async": turns, "an agent streamed": [["agent"], ["tools"], ["agent"]]}


def test_instructor_when_a_class_is_wanted_then_made_of_the_call_or_of_json(caller: ProgramRun) -> None:
    told = run_program("calls_instructor.py", caller.member, caller.model)[caller.model]
    assert told == {"a call": PLACE, "an object by its schema": True}


def test_answer_when_cut_inside_a_character_then_ends_before_it(caller: ProgramRun) -> None:
    assert tuple(cut(caller, most) for most in range(1, len(caller.answers) + 1)) == caller.answers
    assert len(set(caller.answers)) < len(caller.answers) - 2  # several cuts were inside of one


def cut(caller: ProgramRun, most: int) -> str:
    """An answer of so many tokens, told whole and streamed."""
    body = {"model": caller.model, "messages": RESULTS, "options": {"num_predict": most}}
    status, whole = caller.member.request("/api/chat", {**body, "stream": False})
    assert (status, whole["eval_count"]) == (200, most)
    said = "".join(line["message"]["content"] for line in caller.member.lines("/api/chat", body))
    assert said == whole["message"]["content"]
    return said


NATIVE_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks at a place.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    },
}
CALL_AS_TEXT = {"name": "look", "arguments": json.dumps(CALL["arguments"])}
NATIVE: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
    "Open WebUI": (
        "/api/chat",
        {"stream": True, "options": {"temperature": 0.1, "num_ctx": 2048}, "keep_alive": "5m"},
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": CALL}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
        ],
    ),
    "Continue": (
        "/api/chat",
        {"stream": True, "options": {"num_ctx": 8192, "num_thread": 4, "use_mmap": True}, "keep_alive": 1800},
        [
            {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": CALL}]},
            {"role": "tool", "content": "seen"},
        ],
    ),
    "Cline": (
        "/v1/chat/completions",
        {
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "tool_choice": "auto",
            "parallel_tool_calls": False,
        },
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": CALL_AS_TEXT}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "seen"}]},
        ],
    ),
}
"""By hand, from what their documentation says of native function calling: path, what comes beside the messages, and the
messages that follow a call."""


@pytest.mark.parametrize(("path", "beside", "after"), NATIVE.values(), ids=NATIVE)
def test_native_call_when_a_program_offers_tools_then_called_and_answered_behind_the_result(
    caller: ProgramRun, path: str, beside: dict[str, Any], after: list[dict[str, Any]]
) -> None:
    asked = [{"role": "system", "content": "You may look."}, {"role": "user", "content": "Where?"}]
    body = {"model": caller.model, "tools": [NATIVE_TOOL], **beside}
    called = heard(caller.member.request(path, {**body, "messages": asked}))
    assert [(call["name"], read_arguments(call)) for call in called.calls] == [("look", CALL["arguments"])]
    assert (called.text, called.reason) == ("", "tool_calls" if path.startswith("/v1") else "stop")
    answered = heard(caller.member.request(path, {**body, "messages": [*asked, *after]}))
    assert (answered.text, answered.calls, answered.reason) == (ANSWER, [], "stop")


@dataclass(frozen=True, slots=True)
class HeardAnswer:
    """What a program makes of a stream of Ollama's own, or of OpenAI's events."""

    text: str
    calls: list[dict[str, Any]]
    reason: str


def heard(told: tuple[int, Any]) -> HeardAnswer:
    status, answer = told
    assert status == 200, answer
    if isinstance(answer, list):
        parts, reasons = [line["message"] for line in answer], [line.get("done_reason") for line in answer]
    else:
        lines = [line.removeprefix("data: ") for line in answer.splitlines() if line.startswith("data: {")]
        choices = [choice for line in lines for choice in json.loads(line)["choices"]]
        parts, reasons = [one["delta"] for one in choices], [one["finish_reason"] for one in choices]
    calls = [call["function"] for part in parts for call in part.get("tool_calls") or ()]
    return HeardAnswer("".join(part.get("content") or "" for part in parts), calls, [one for one in reasons if one][-1])


def read_arguments(call: dict[str, Any]) -> Any:
    """Ollama's are an object, OpenAI's its text."""
    return json.loads(call["arguments"]) if isinstance(call["arguments"], str) else call["arguments"]
