"""The package `openai`."""

from typing import Any

from openai import AsyncOpenAI, OpenAI
from telling import arguments, tell

URL, MODEL = arguments()
client = OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
SOON = [" ", ",", "."]  # one of them comes early, whatever is said
ASKED: Any = [{"role": "user", "content": "What is the capital of France?"}]
PARTS: Any = [{"role": "user", "content": [{"type": "text", "text": "What is the capital of France?"}]}]
SEVERAL: Any = [{"role": "user", "content": [{"type": "text", "text": text} for text in ("Be brief.", "Who are you?")]}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}},
}
create = client.chat.completions.create


async def chat_async() -> Any:
    one = AsyncOpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
    stream = await one.chat.completions.create(model=MODEL, messages=ASKED, stream=True, temperature=0, max_tokens=4)
    return [part async for part in stream]


def chat_streamed() -> Any:
    usage = {"include_usage": True}
    return list(create(model=MODEL, messages=ASKED, stream=True, stream_options=usage, temperature=0, max_tokens=4))


tell(
    {
        "chat": lambda: create(model=MODEL, messages=ASKED, temperature=0, max_tokens=4),
        "chat streamed": chat_streamed,
        "chat async": chat_async,
        "chat in parts": lambda: create(model=MODEL, messages=PARTS, temperature=0, max_tokens=4),
        "chat in several parts": lambda: create(model=MODEL, messages=SEVERAL, temperature=0, max_tokens=3),
        "chat with log probabilities": lambda: create(
            model=MODEL, messages=ASKED, logprobs=True, top_logprobs=2, temperature=0, max_tokens=3
        ),
        "chat with an effort": lambda: create(model=MODEL, messages=ASKED, reasoning_effort="low", max_tokens=3),
        "chat with a tool": lambda: create(model=MODEL, messages=ASKED, tools=[TOOL], max_tokens=3),
        "chat cut": lambda: create(model=MODEL, messages=ASKED, temperature=0, max_tokens=3),
        "chat stopped": lambda: create(model=MODEL, messages=ASKED, temperature=0, max_tokens=20, stop=SOON),
        "chat without messages": lambda: create(model=MODEL, messages=[]),
        "chat with all of its options": lambda: create(
            model=MODEL, messages=ASKED, temperature=0, top_p=0.5, seed=1, presence_penalty=0.1, max_tokens=3
        ),
        "completion": lambda: client.completions.create(model=MODEL, prompt="Hello", max_tokens=4, temperature=0),
        "completion with log probabilities": lambda: client.completions.create(
            model=MODEL, prompt="Hello", max_tokens=3, temperature=0, logprobs=2
        ),
        "completion streamed": lambda: list(
            client.completions.create(model=MODEL, prompt="Hello", max_tokens=4, temperature=0, stream=True)
        ),
        "completion with a suffix": lambda: client.completions.create(model=MODEL, prompt="def a", suffix="return"),
        "response": lambda: client.responses.create(
            model=MODEL, input="What is the capital of France?", temperature=0, max_output_tokens=4
        ),
        "response with an effort": lambda: client.responses.create(
            model=MODEL, input="Say hello", reasoning={"effort": "low"}, temperature=0, max_output_tokens=3
        ),
        "response streamed": lambda: list(
            client.responses.create(model=MODEL, input="Say hello", temperature=0, max_output_tokens=4, stream=True)
        ),
        "models": lambda: [one for one in client.models.list().data if one.id == MODEL],
        "model": lambda: client.models.retrieve(MODEL),
        "no such model": lambda: create(model="nothing-of-the-kind", messages=ASKED),
        "no such model's card": lambda: client.models.retrieve("nothing-of-the-kind"),
    }
)
