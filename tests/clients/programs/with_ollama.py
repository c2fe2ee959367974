"""The package `ollama`."""

from typing import Any

from telling import arguments, tell

from ollama import AsyncClient, Client

URL, MODEL = arguments()
client = Client(URL)
SOON = [" ", ",", "."]  # one of them comes early, whatever is said
ASKED = [{"role": "user", "content": "What is the capital of France?"}]
SYSTEM = [{"role": "system", "content": "Be brief."}]
BEGUN = [{"role": "assistant", "content": "The capital of"}]
FEW = {"num_predict": 4}
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}
RELOADING = {"temperature": 0, "num_predict": 4, "num_ctx": 512, "num_batch": 64, "num_gpu": 0, "num_thread": 1}


async def chat_async() -> Any:
    return [part async for part in await AsyncClient(URL).chat(MODEL, ASKED, stream=True, options=FEW)]


def in_a_format() -> Any:
    told = client.chat(MODEL, ASKED, format={"type": "boolean"}, options={"num_predict": 6})
    return told.message.content.strip() in ("true", "false")  # stock's goes on with blanks until it is cut


def context() -> Any:
    first = client.generate(MODEL, "My name is Tim.", options={"num_predict": 4})
    further = client.generate(MODEL, "What is my name?", context=first.context, options={"num_predict": 4})
    return {"goes on": list(further.context or [])[: len(first.context or [])] == list(first.context or [])}


def listed() -> Any:
    return [{**entry.model_dump(), "modified_at": None} for entry in client.list().models if entry.model == MODEL]


def shown() -> Any:
    told = client.show(MODEL)
    return {"details": told.details, "capabilities": told.capabilities, "has template": bool(told.template)}


def running() -> Any:
    return [entry.model_dump() for entry in client.ps().models if entry.model == MODEL]


tell(
    {
        "chat": lambda: client.chat(MODEL, ASKED, options=FEW),
        "chat streamed": lambda: list(client.chat(MODEL, ASKED, stream=True, options=FEW)),
        "chat async": chat_async,
        "chat with a system message": lambda: client.chat(MODEL, SYSTEM + ASKED, options=FEW),
        "chat with what makes stock reload": lambda: client.chat(MODEL, ASKED, options=RELOADING, keep_alive="5m"),
        "chat cut": lambda: client.chat(MODEL, ASKED, options={"num_predict": 3}),
        "chat stopped": lambda: client.chat(MODEL, ASKED, options={"stop": SOON, "num_predict": 20}),
        "chat without messages": lambda: client.chat(MODEL, []),
        "chat with log probabilities": lambda: client.chat(MODEL, ASKED, logprobs=True, top_logprobs=2, options=FEW),
        "chat with a thought": lambda: client.chat(MODEL, ASKED, think=True, options=FEW),
        "chat with a tool": lambda: client.chat(MODEL, ASKED, tools=[TOOL], options=FEW),
        "chat in a format": in_a_format,
        "generate": lambda: client.generate(MODEL, "Hello", options=FEW),
        "generate streamed": lambda: list(client.generate(MODEL, "Hello", stream=True, options=FEW)),
        "generate raw": lambda: client.generate(MODEL, "Once upon a time", raw=True, options={"num_predict": 4}),
        "generate raw with a context": lambda: client.generate(MODEL, "Once", raw=True, context=[1]),
        "generate with a template": lambda: client.generate(
            MODEL, "Hello", template="Say {{ .Prompt }}", options={"num_predict": 4}
        ),
        "generate with a system prompt": lambda: client.generate(MODEL, "Hello", system="Be brief.", options=FEW),
        "chat begun": lambda: client.chat(MODEL, ASKED + BEGUN, options=FEW),
        "generate with a suffix": lambda: client.generate(MODEL, "def a", suffix="return"),
        "generate out of range": lambda: client.generate(
            MODEL, "Hello", options={"temperature": -1, "min_p": 2, "num_predict": 3}
        ),
        "generate with a wrong option": lambda: client.generate(MODEL, "Hello", options={"num_ctx": "many"}),
        "generate with a wrong keep_alive": lambda: client.generate(MODEL, "Hello", keep_alive="soon"),
        "generate without prompt": lambda: client.generate(MODEL, ""),
        "context": context,
        "list": listed,
        "show": shown,
        "ps": running,
        "no such model": lambda: client.chat("nothing-of-the-kind", ASKED),
    }
)
