"""An agent of the package `langgraph`, which does what the model calls for, and tells it what came of it."""

from typing import Any

from langchain_core.tools import tool
from langchain_ollama import ChatOllama
from langgraph.prebuilt import create_react_agent
from telling import arguments, tell

URL, MODEL = arguments()
ASKED: Any = {"messages": [("user", "Where?")]}


@tool
def look(at: str) -> str:
    """Looks at a place."""
    return f"seen {at}"


agent = create_react_agent(ChatOllama(base_url=URL, model=MODEL), [look])


def told(message: Any) -> Any:
    calls = [{"name": call["name"], "args": call["args"]} for call in getattr(message, "tool_calls", ())]
    return {"type": message.type, "content": message.content, "calls": calls}


async def asynchronously() -> Any:
    return [told(message) for message in (await agent.ainvoke(ASKED))["messages"]]


tell(
    {
        "an agent": lambda: [told(message) for message in agent.invoke(ASKED)["messages"]],
        "an agent async": asynchronously,
        "an agent streamed": lambda: [list(step) for step in agent.stream(ASKED, stream_mode="updates")],
    }
)
