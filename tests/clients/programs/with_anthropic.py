"""The package `anthropic`."""

from typing import Any

from anthropic import Anthropic
from telling import arguments, tell

URL, MODEL = arguments()
client = Anthropic(base_url=URL, api_key="none", max_retries=0)
COLD = {"temperature": 0}
SOON = [" ", ",", "."]  # one of them comes early, whatever is said
ASKED: Any = [{"role": "user", "content": "What is the capital of France?"}]
PARTS: Any = [{"role": "user", "content": [{"type": "text", "text": "What is the capital of France?"}]}]
TOOL: Any = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
RESULT: Any = [
    *ASKED,
    {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {}}]},
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "1", "content": "seen"},
            {"type": "text", "text": "And now?"},
        ],
    },
]


def create(**more: Any) -> Any:
    return client.messages.create(**{"model": MODEL, "messages": ASKED, "max_tokens": 6, "extra_body": COLD, **more})


def streamed() -> Any:
    with client.messages.stream(model=MODEL, messages=ASKED, max_tokens=6, extra_body=COLD) as events:
        said = "".join(events.text_stream)
        return {"said": said, "message": events.get_final_message()}


tell(
    {
        "message": create,
        "message in parts": lambda: create(messages=PARTS),
        "message streamed": streamed,
        "events": lambda: list(create(stream=True)),
        "message cut": lambda: create(max_tokens=3),
        "message stopped": lambda: create(stop_sequences=SOON, max_tokens=20),
        "message with a system prompt": lambda: create(system="Be brief."),
        "message with a thought": lambda: create(thinking={"type": "enabled", "budget_tokens": 1024}),
        "message with a tool": lambda: create(tools=[TOOL]),
        "message with a result and text": lambda: create(messages=RESULT),
        "no messages": lambda: create(messages=[]),
        "no such model": lambda: create(model="nothing-of-the-kind"),
    }
)
