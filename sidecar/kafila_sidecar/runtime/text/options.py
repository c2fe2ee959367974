"""A request's sampling options, with Ollama's names and defaults. Pure.

Unset options take the checkpoint's own generation_config, and what that leaves open Ollama's defaults
(`DefaultOptions` in api/types.go of v0.17.4), but for the repeat penalty: Ollama's own engine applies none
(sample/samplers.go), whatever the options say, and 1.1 would turn greedy answers into others than the model's own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any

from kafila_sidecar.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the next token is picked. Temperature 0 is greedy; seed None is a fresh one for the request."""

    temperature: float = 0.8
    top_k: int = 40  # 0 or less: all tokens
    top_p: float = 0.9  # 1 or more, or 0: all tokens
    min_p: float = 0.0
    seed: int | None = None
    repeat_penalty: float = 1.0  # 1: none
    repeat_last_n: int = 64  # tokens that the penalties look back on; 0: no penalties; -1: the whole context
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not isfinite(value):
                raise InvalidInput(f"the option {field.name} is {value}: it must be a finite number")
        if self.temperature < 0 or self.repeat_penalty <= 0 or not 0 <= self.min_p <= 1:
            raise InvalidInput("temperature must be 0 or more, repeat_penalty above 0, and min_p between 0 and 1")


# The checkpoint's name of an option, where it differs from Ollama's.
_GENERATION_CONFIG_NAMES = {"repetition_penalty": "repeat_penalty"}

_LARGEST = float(1 << 31)  # of any setting; more is a mistake, and wouldn't be a number to MLX


def checkpoint_defaults(generation_config: Mapping[str, Any]) -> dict[str, float]:
    """The sampling defaults of a checkpoint with this generation_config.json, by Ollama's names.

    `do_sample: false` means temperature 0. Numbers may be written as texts; entries that are no numbers, or out of
    range, are passed over (`unusable` names them). The repeat penalty is always there, since Ollama fills in its own
    1.1 before a request gets here unless the model's parameters name another.
    """
    found: dict[str, float] = {"repeat_penalty": SamplingOptions().repeat_penalty}
    found |= {name: value for _, name, value in _settings(generation_config) if value is not None}
    if generation_config.get("do_sample") is False:
        found["temperature"] = 0.0
    return found


def unusable(generation_config: Mapping[str, Any]) -> list[str]:
    """The entries about sampling that a checkpoint sets to something that can't be used."""
    return [key for key, _, value in _settings(generation_config) if value is None]


def _settings(generation_config: Mapping[str, Any]) -> Iterator[tuple[str, str, float | None]]:
    """Key, Ollama's name and value of each entry about sampling that is set; None for a value that can't be used."""
    known = {field.name for field in fields(SamplingOptions)} - {"seed"}
    for key, value in generation_config.items():
        name = _GENERATION_CONFIG_NAMES.get(key, key)
        if name in known and value is not None:
            number = _number(value)
            yield key, name, number if number is not None and _is_in_range(name, number) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = value if isinstance(value, int) else float(value)
    except ValueError:
        return None
    return number if abs(number) <= _LARGEST else None


def _is_in_range(name: str, number: float) -> bool:
    option: dict[str, Any] = {name: number}
    try:
        replace(SamplingOptions(), **option)
    except InvalidInput:
        return False
    return True


def resolve(given: Mapping[str, Any], generation_config: Mapping[str, Any]) -> SamplingOptions:
    """The options of one request: those it names, else the checkpoint's, else Ollama's.

    given: the request's options that are set, by Ollama's names; names that don't concern sampling are passed over.

    What is out of range counts as stock has it: a temperature below 0 as 0, min_p as the nearest of 0 and 1; top_p 0 or
    less leaves the most likely token only. A repeat penalty that is none penalises nothing.

    Raises: InvalidInput for a value that is no number.
    """
    known = {field.name for field in fields(SamplingOptions)}
    asked = {key: value for key, value in given.items() if key in known}
    chosen = {**checkpoint_defaults(generation_config), **_within_range(asked)}
    for name in ("top_k", "repeat_last_n"):
        if name in chosen:
            chosen[name] = int(chosen[name])
    seed = chosen.get("seed")
    chosen["seed"] = None if seed is None or seed == -1 else int(seed)
    return replace(SamplingOptions(), **chosen)


def _within_range(given: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(given)
    if made.get("temperature", 0.0) < 0:
        made["temperature"] = 0.0
    if made.get("min_p", 0.0) < 0:
        made["min_p"] = 0.0
    if made.get("min_p", 0.0) > 1:
        made["min_p"] = 1.0
    if made.get("repeat_penalty", 1.0) <= 0:
        made["repeat_penalty"] = 1.0
    if made.get("top_p", 1.0) <= 0:
        made["temperature"] = 0.0
    return made
