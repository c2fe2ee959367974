"""The package `instructor`, which wants an answer in the form of a class: as a call of a tool, and as JSON."""

from typing import Any

import instructor
from openai import OpenAI
from pydantic import BaseModel
from telling import arguments, tell

URL, MODEL = arguments()
ASKED: Any = [{"role": "user", "content": "Where?"}]


class look(BaseModel):  # the name that the model calls
    """Looks at a place."""

    at: str


class SeenCity(BaseModel):
    """Whether there is anything."""

    anything: bool


def ask(mode: instructor.Mode, wanted: type[BaseModel]) -> Any:
    client = instructor.from_openai(OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0), mode=mode)
    return client.chat.completions.create(model=MODEL, messages=ASKED, response_model=wanted, max_retries=0)


tell(
    {
        "a call": lambda: ask(instructor.Mode.TOOLS, look).at,
        "an object by its schema": lambda: ask(instructor.Mode.JSON_SCHEMA, SeenCity).anything in (True, False),
    }
)
