"""The package `instructor`, which wants an answer in the form of a class; of calls see calls_instructor."""

from typing import Any, Literal

import instructor
from instructor.core.exceptions import IncompleteOutputException, InstructorRetryException
from openai import OpenAI
from pydantic import BaseModel
from telling import arguments, tell

URL, MODEL = arguments()
ASKED: Any = [{"role": "user", "content": "Is Paris the capital of France?"}]


class KnownCity(BaseModel):
    """What is known of a city."""

    name: Literal["Paris", "Lyon"]
    is_capital: bool


def kinds(made: BaseModel) -> dict[str, str]:
    """What it holds: not what of the two answers, which may differ."""
    return {name: type(value).__name__ for name, value in made.model_dump().items()}


def client(mode: instructor.Mode) -> Any:
    plain = OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
    return instructor.from_openai(plain, mode=mode).chat.completions


def whole() -> Any:
    made, told = client(instructor.Mode.JSON_SCHEMA).create_with_completion(
        model=MODEL, messages=ASKED, response_model=KnownCity, max_retries=0, temperature=0, max_tokens=60
    )
    return {"type": type(made).__name__, "fields": kinds(made), "told": told.model_dump(exclude={"usage"})}


def cut() -> Any:
    plain = client(instructor.Mode.JSON)
    try:
        plain.create(model=MODEL, messages=ASKED, response_model=KnownCity, max_retries=0, temperature=0, max_tokens=4)
    except IncompleteOutputException as error:
        return {"raised": type(error).__name__, "sentence": str(error)}


def streamed() -> Any:
    parts = client(instructor.Mode.JSON_SCHEMA).create_partial(
        model=MODEL, messages=ASKED, response_model=KnownCity, max_retries=0, temperature=0, max_tokens=60
    )
    (*_, last) = parts
    return {"type": type(last).__name__, "fields": kinds(last)}


def refused() -> Any:
    try:
        client(instructor.Mode.JSON_SCHEMA).create(
            model="nothing-of-the-kind", messages=ASKED, response_model=KnownCity, max_retries=0
        )
    except InstructorRetryException as error:
        return {"raised": type(error).__name__, "sentence": str(error)}


tell(
    {
        "an object by its schema": whole,
        "an object as JSON, cut": cut,
        "an object streamed": streamed,
        "no such model": refused,
    }
)
