"""The package `langchain-ollama`, which sends num_ctx and keep_alive."""

from typing import Any

from langchain_ollama import ChatOllama, OllamaLLM
from telling import arguments, tell

URL, MODEL = arguments()
QUESTION = "What is the capital of France?"
chat = ChatOllama(base_url=URL, model=MODEL, temperature=0, num_ctx=512, num_predict=4, keep_alive="5m")
complete = OllamaLLM(base_url=URL, model=MODEL, temperature=0, num_ctx=512, num_predict=4)


def told(message: Any) -> Any:
    return {"type": message.type, "content": message.content, "usage": message.usage_metadata}


async def asynchronously() -> Any:
    return told(await chat.ainvoke(QUESTION))


tell(
    {
        "chat": lambda: told(chat.invoke(QUESTION)),
        "chat async": asynchronously,
        "chat streamed": lambda: [part.content for part in chat.stream(QUESTION)],
        "a batch": lambda: [told(one) for one in chat.batch([QUESTION, "Say hello."])],
        "complete": lambda: complete.invoke("Hello"),
    }
)
