"""An agent of the package `langgraph`; of what it does with a model that calls see calls_langgraph."""

from typing import Any

from langchain_core.tools import BaseTool, tool
from langchain_ollama import ChatOllama
from langgraph.prebuilt import create_react_agent
from telling import arguments, tell

URL, MODEL = arguments()
ASKED: Any = {"messages": [("user", "What is the capital of France?")]}


@tool
def look(at: str) -> str:
    """Looks at a place."""
    return f"seen {at}"


def agent(*tools: BaseTool) -> Any:
    return create_react_agent(ChatOllama(base_url=URL, model=MODEL, temperature=0, num_predict=4), [*tools])


def said(message: Any) -> Any:
    return {"type": message.type, "content": message.content, "usage": getattr(message, "usage_metadata", None)}


async def asynchronously() -> Any:
    return [said(message) for message in (await agent().ainvoke(ASKED))["messages"]]


tell(
    {
        "agent": lambda: [said(message) for message in agent().invoke(ASKED)["messages"]],
        "agent async": asynchronously,
        "agent streamed": lambda: [said(part) for part, _ in agent().stream(ASKED, stream_mode="messages")],
        "agent with a tool": lambda: agent(look).invoke(ASKED),
    }
)
