"""What of an answer has to be equal, field by field: names, kinds of values, and words that clients act on. Pure."""

import json
import re
from collections.abc import Iterator
from typing import Any

TELLING = frozenset(
    {
        *("object", "type", "role", "status", "raised", "event", "code", "param"),
        *("finish_reason", "stop_reason", "done_reason", "done", "goes on", "models"),
    }
)
"""Fields whose values are compared too."""
COUNTS = frozenset(
    {"prompt_eval_count", "eval_count", "prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"}
)
"""Likewise, unless an answer is as long as what is said: two ways to compute may differ in a word."""

Shape = Any


def shape_of(value: Any, name: str = "", *, models: tuple[str, ...] = (), counts: bool = True) -> Shape:
    """Numbers and texts by their kind, those of TELLING as they are; a list by the shapes of what is in it, in their
    order, equal neighbours once. In an error's sentence any of `models` counts as the same name."""
    if isinstance(value, dict):
        return {key: shape_of(inner, key, models=models, counts=counts) for key, inner in value.items()}
    if isinstance(value, list):
        return list(_changes(shape_of(item, models=models, counts=counts) for item in value))
    if name in TELLING or (counts and name in COUNTS) or value is None or isinstance(value, bool):
        return value
    if name in ("sentence", "error", "message") and isinstance(value, str):
        for model in models:
            value = value.replace(f"registry.ollama.ai/library/{model}", "MODEL").replace(model, "MODEL")
        return re.sub(r"\breq_\w+", "REQUEST", value)
    return "a number" if isinstance(value, int | float) else "a text"


def differences(ours: Shape, stocks: Shape, at: str = "") -> list[str]:
    """Where two shapes differ, in words."""
    if isinstance(ours, dict) and isinstance(stocks, dict):
        found = [f"{at}.{key} is missing" for key in stocks.keys() - ours.keys()]
        found += [f"{at}.{key} is not stock's" for key in ours.keys() - stocks.keys()]
        for key in sorted(ours.keys() & stocks.keys()):
            found += differences(ours[key], stocks[key], f"{at}.{key}")
        return sorted(found)
    return [] if ours == stocks else [f"{at} is {_short(ours)}, stock's {_short(stocks)}"]


def _changes(shapes: Iterator[Shape]) -> Iterator[Shape]:
    last: Any = ...
    for shape in shapes:
        if shape != last:
            yield shape
        last = shape


def _short(shape: Shape) -> str:
    return json.dumps(shape)[:300]
