"""The package `litellm`, by both of its ways to Ollama."""

from typing import Any

import litellm
from telling import arguments, tell

URL, MODEL = arguments()
ASKED = [{"role": "user", "content": "What is the capital of France?"}]
litellm.telemetry = False


def ask(way: str, **more: Any) -> Any:
    made = litellm.completion(f"{way}/{MODEL}", ASKED, api_base=URL, temperature=0, max_tokens=4, **more)
    return [part.model_dump() for part in made] if more.get("stream") else made.model_dump()


tell(
    {
        "chat": lambda: ask("ollama_chat"),
        "chat streamed": lambda: ask("ollama_chat", stream=True),
        "chat with a context": lambda: ask("ollama_chat", num_ctx=512, keep_alive="1m"),
        "generate": lambda: ask("ollama"),
        "generate streamed": lambda: ask("ollama", stream=True),
    }
)
