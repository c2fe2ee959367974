"""Member names: what is a legal one, and how a wish becomes one that is free."""

import re
import unicodedata
from collections.abc import Iterable

LONGEST_NAME = 40
RESERVED = frozenset({"all"})  # `--require all` means everybody

_NOT_ALLOWED = re.compile(r"[^\w.-]+")


def is_legal(name: str) -> bool:
    """Letters, digits, `_`, `.` and `-` of any script, at most `LONGEST_NAME` characters, no reserved word."""
    return (
        0 < len(name) <= LONGEST_NAME
        and not _NOT_ALLOWED.search(name)
        and name == unicodedata.normalize("NFKC", name)
        and name.casefold() not in RESERVED
    )


def fit(wish: str, taken: Iterable[str]) -> str:
    """A legal name as close to the wish as can be, different from all taken ones even in spoken form."""
    base = _NOT_ALLOWED.sub("-", unicodedata.normalize("NFKC", wish[:200])).strip("-.") or "member"
    base = unicodedata.normalize("NFKC", base[: LONGEST_NAME - 4])
    used = {name.casefold() for name in taken} | RESERVED
    name, number = base, 1
    while name.casefold() in used:
        number += 1
        name = f"{base}-{number}"
    return name
