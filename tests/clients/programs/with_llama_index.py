"""The package `llama-index-llms-ollama`, which sends num_ctx with every request."""

from llama_index.core.llms import ChatMessage
from llama_index.llms.ollama import Ollama
from telling import arguments, tell

URL, MODEL = arguments()
model = Ollama(
    model=MODEL,
    base_url=URL,
    temperature=0.0,
    context_window=512,
    request_timeout=120.0,
    additional_kwargs={"num_predict": 4},
)
ASKED = [ChatMessage(role="user", content="What is the capital of France?")]

tell(
    {
        "chat": lambda: model.chat(ASKED).message.content,
        "chat streamed": lambda: [part.delta for part in model.stream_chat(ASKED)],
        "complete": lambda: model.complete("Say hello.").text,
    }
)
