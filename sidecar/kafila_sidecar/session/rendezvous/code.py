"""The code that people pass on: `7-ocean-velvet-lamp`, with `@host:port#fingerprint` where one is needed.

The number is the rendezvous' room; the words are three of BIP-39's 2,048 English ones, 33 bits, which the
rendezvous never learns.
"""

import difflib
import re
import secrets
from dataclasses import dataclass, field, replace
from functools import cache

from mnemonic import Mnemonic

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.session.rendezvous.address import RendezvousAddress, parse_address

WORDS = 3
LARGEST_ROOM = 999_999_999

_EXAMPLE = "7-ocean-velvet-lamp"
_SEPARATORS = re.compile(r"[\s_.,-]+")


@dataclass(frozen=True, slots=True)
class Code:
    """A session's code. The words stay out of `repr`, so that no log line holds them."""

    room: int
    words: tuple[str, ...] = field(repr=False)
    address: RendezvousAddress | None = None

    @property
    def password(self) -> bytes:
        """What both sides feed to SPAKE2."""
        return "-".join(self.words).encode("ascii")

    @property
    def short(self) -> str:
        """Number and words, for those who have the rendezvous' address already."""
        return "-".join((str(self.room), *self.words))

    def at(self, address: RendezvousAddress) -> "Code":
        """The same code; its own address, where it has one, goes before `address`."""
        return self if self.address else replace(self, address=address)

    def renewed(self, words: tuple[str, ...]) -> "Code":
        """Other words for the same room."""
        return replace(self, words=words)

    def __str__(self) -> str:
        return f"{self.short}@{self.address}" if self.address else self.short


def parse_code(text: str) -> Code:
    """Reads a code, forgiving case, spaces and underscores; raises InvalidInput that names what is wrong."""
    spoken, at, place = text.strip().partition("@")
    parts = [part for part in _SEPARATORS.split(spoken.lower()) if part]
    if not parts:
        raise InvalidInput(f"the code is empty: it looks like {_EXAMPLE}")
    return Code(
        room=_room(parts[0]),
        words=_words(parts[1:]),
        address=parse_address(place) if at else None,
    )


def draw_words() -> tuple[str, ...]:
    """Three words by the system's random source."""
    return tuple(secrets.choice(_word_list()) for _ in range(WORDS))


def _room(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"the code starts with {text[:40]!r}, not with a number: it looks like {_EXAMPLE}")
    room = int(text[:12])
    if not 1 <= room <= LARGEST_ROOM:
        raise InvalidInput(f"the code's number is not between 1 and {LARGEST_ROOM}: it looks like {_EXAMPLE}")
    return room


def _words(words: list[str]) -> tuple[str, ...]:
    if len(words) != WORDS:
        count = f"{len(words)} word{'s' if len(words) != 1 else ''}"
        raise InvalidInput(f"the code has {count} after its number, not {WORDS}: it looks like {_EXAMPLE}")
    for word in words:
        _check_word(word)
    return tuple(words)


def _check_word(word: str) -> None:
    known = _word_list()
    if word in known:
        return
    near = difflib.get_close_matches(word[:20], _alike(word), n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else "ask for the code again"
    raise InvalidInput(f"{word[:40]!r} is not a word of any code: {hint}")


def _alike(word: str) -> list[str]:
    """Words that start or go on as this one does; comparing it with all would take long."""
    return _by_letters().get(word[:1], []) + _by_letters().get(word[1:3], [])


@cache
def _by_letters() -> dict[str, list[str]]:
    """By the first letter, and by the next two."""
    alike: dict[str, list[str]] = {}
    for word in _word_list():
        alike.setdefault(word[:1], []).append(word)
        alike.setdefault(word[1:3], []).append(word)
    return alike


@cache
def _word_list() -> tuple[str, ...]:
    return tuple(Mnemonic("english").wordlist)
