"""Reads calls of tools out of what a model wrote, by mlx-lm's own parsers and a few of ours.

Theirs are made of regular expressions, which may take long for texts that were made for that: this runs in the text
process. They are loaded without mlx-lm, which would bring MLX along.
"""

import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

Call = dict[str, Any]
"""A call's `name`, and its `arguments` by name."""

_PACKAGE = "kafila_tool_parsers"
_NAMES = ("name", "tool_name", "function")
_ARGUMENTS = ("arguments", "parameters")


def marks_of(parser: str) -> tuple[str, str]:
    """The marks around calls that one of mlx-lm's parsers reads."""
    module = _mlx_lm_parser(parser)
    return str(module.tool_call_start), str(module.tool_call_end)


def read_calls(text: str, *, reader: str, tools: Sequence[Mapping[str, Any]]) -> list[Call]:
    """The calls in a text, in their order; [] for one that is none."""
    own = _OWN.get(reader)
    try:
        made: Any = own(text, tools) if own else _mlx_lm_parser(reader).parse_tool_call(text, list(tools))
        return [_call(one) for one in (made if isinstance(made, list) else [made])]
    except Exception:  # noqa: BLE001  # parsers raise all kinds for what is no call
        return []


def _call(made: Any) -> Call:
    """Raises: ValueError for what is no call."""
    if not isinstance(made, Mapping):
        raise ValueError("a call is an object")
    name, arguments = made.get("name"), made.get("arguments")
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(name, str) or not name or not isinstance(arguments, dict | None):
        raise ValueError("a call has a name and arguments")
    return {"name": name, "arguments": arguments or {}}


def _mlx_lm_parser(name: str) -> ModuleType:
    if _PACKAGE not in sys.modules:
        spec = importlib.util.find_spec("mlx_lm")
        assert spec is not None
        package = ModuleType(_PACKAGE)
        package.__path__ = [f"{folder}/tool_parsers" for folder in spec.submodule_search_locations or ()]
        sys.modules[_PACKAGE] = package
    return importlib.import_module(f"{_PACKAGE}.{name}")


# ---- Our own


def _json(text: str, tools: Sequence[Mapping[str, Any]]) -> list[Call]:
    """Objects with a name and arguments, in a list or one after another; only those of tools that were given count."""
    known = {str(tool.get("function", {}).get("name")) for tool in tools}
    found = [one for value in _values(text) for one in (value if isinstance(value, list) else [value])]
    calls = [_named(one) for one in found]
    return calls if all(call["name"] in known for call in calls) else []


def _values(text: str) -> Iterator[Any]:
    """Values of JSON one after another, with blanks, commas or semicolons between them."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at] in " \t\r\n;,":
            at += 1
            continue
        value, at = decoder.raw_decode(text, at)
        yield value


def _named(made: Mapping[str, Any]) -> Call:
    name = next(made[key] for key in _NAMES if key in made)
    return {"name": name, "arguments": next((made[key] for key in _ARGUMENTS if key in made), {})}


def _lines(text: str, tools: Sequence[Mapping[str, Any]]) -> list[Call]:
    """One call as Python writes it in each line, as Olmo 3's."""
    pythonic = _mlx_lm_parser("pythonic").parse_tool_call
    calls = [pythonic(f"[{line.strip()}]", None) for line in text.strip().splitlines() if line.strip()]
    return [one for made in calls for one in (made if isinstance(made, list) else [made])]


_DEEPSEEK = re.compile("<｜tool▁call▁begin｜>([^<]*)<｜tool▁sep｜>([^<]*?)(\\{|```)")


def _deepseek(text: str, tools: Sequence[Mapping[str, Any]]) -> list[Call]:
    """DeepSeek V3 puts the word "function" before the name and fences around the arguments; V3.1 does neither."""
    calls = []
    for found in _DEEPSEEK.finditer(text):
        name = found[2].strip() or found[1].strip()
        arguments, _ = json.JSONDecoder().raw_decode(text, text.index("{", found.start(3)))
        calls.append({"name": name, "arguments": arguments})
    return calls


_OWN: Mapping[str, Callable[[str, Sequence[Mapping[str, Any]]], list[Call]]] = {
    "json": _json,
    "lines": _lines,
    "deepseek": _deepseek,
    "channels": lambda text, tools: [_named(value) for value in _values(text)],
}
