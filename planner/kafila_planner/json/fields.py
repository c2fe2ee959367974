"""Typed reading of a JSON object: every fault is one sentence that says whose field is wrong and what is wanted."""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kafila_planner.errors import BadInput, BadProblem

T = TypeVar("T")
E = TypeVar("E", bound=str)

REQUIRED: Any = object()
"""Marks a field without a default; null counts as absent."""

SMALLEST, LARGEST = 1e-12, 1e24
"""No time, rate or size in the problem is outside; within, no product or quotient of two overflows."""

LONGEST_ROUND_TRIP_S = 1e6
"""Eleven days."""

MOST_BLOCKS = 4096
"""No checkpoint comes near; a larger number would only eat this machine's memory."""

MOST_MEMBERS = 64


class Fields:
    """One JSON object. `owner` opens each sentence: "the model", "member 'A'". `error` is what its faults are."""

    def __init__(self, owner: str, value: object, allowed: Iterable[str], error: type[BadInput] = BadProblem) -> None:
        if not isinstance(value, dict):
            raise error(f"{owner} has to be a JSON object, not {show(value)}")
        self.owner = owner
        self.value: dict[str, object] = value
        self.error = error
        known = frozenset(allowed)
        unknown = sorted(str(key) for key in value if key not in known)
        if unknown:
            raise error(f"{owner} has a field that is not known: {show(unknown[0])}")

    def fault(self, name: str, wanted: str, got: object) -> BadInput:
        return self.error(f"{self.owner}: {name} has to be {wanted}, not {show(got)}")

    def get(self, name: str, read: "Reader[T]", default: Any = REQUIRED) -> T:
        """The field, or `default` where it is absent or null."""
        value = self.value.get(name)
        if value is None:
            if default is REQUIRED:
                raise self.error(f"{self.owner}: {name} is missing")
            return default  # type: ignore[no-any-return]
        return read(self, name, value)


Reader = Callable[[Fields, str, object], T]


def show(value: object) -> str:
    """A value as JSON writes it and a sentence can hold it: short, on one line."""
    try:
        text = repr(value) if isinstance(value, str) else json.dumps(value)
    except RecursionError:
        text = "a value that is nested too deep"
    except (TypeError, ValueError):
        text = "a value that can't be shown"
    return text if len(text) <= 60 else text[:57] + "..."


def finite(value: object) -> float | None:
    """The number as a float, or None for what is none or not finite (true and false are none)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def within(least: float, most: float) -> "Reader[float]":
    """A number of some meaning: neither nonsense, nor so large or small that arithmetic with it breaks down."""

    def read(fields: Fields, name: str, value: object) -> float:
        number = finite(value)
        if number is None or number < 0 or (number == 0 and least > 0):
            raise fields.fault(name, "a finite number above 0" if least > 0 else "a finite number, 0 or more", value)
        if not least <= number <= most:
            raise fields.fault(name, f"between {least:g} and {most:g}", value)
        return number

    return read


def whole(least: int, most: float = LARGEST) -> Reader[int]:
    """A whole number from `least` to `most`; 2.4e10 counts as one."""

    def read(fields: Fields, name: str, value: object) -> int:
        number = finite(value)
        if number is None or number < least or number != int(number):
            raise fields.fault(name, f"a whole number, {least} or more", value)
        if number > most:
            raise fields.fault(name, f"at most {most:g}", value)
        return int(value)  # type: ignore[call-overload, no-any-return]

    return read


positive = within(SMALLEST, LARGEST)
not_negative = within(0.0, LARGEST)
round_trip = within(SMALLEST, LONGEST_ROUND_TRIP_S)


def truth(fields: Fields, name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise fields.fault(name, "true or false", value)
    return value


def text(fields: Fields, name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise fields.fault(name, "a text that is not empty", value)
    return value


def one_of(kind: Callable[[str], E], words: Iterable[str]) -> Reader[E]:
    """One of a few words, as `kind`."""
    known = list(words)

    def read(fields: Fields, name: str, value: object) -> E:
        if not isinstance(value, str) or value not in known:
            raise fields.fault(name, "one of " + ", ".join(known), value)
        return kind(value)

    return read


def listed(item: Reader[T], most: int | None = None) -> Reader[tuple[T, ...]]:
    """A list, of at most `most` entries if that is given."""

    def read(fields: Fields, name: str, value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise fields.fault(name, "a list", value)
        if most is not None and len(value) > most:
            raise fields.error(f"{fields.owner}: {name} has {len(value)} entries, at most {most} are allowed")
        return tuple(item(fields, f"{name}[{place}]", entry) for place, entry in enumerate(value))

    return read
