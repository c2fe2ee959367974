"""The code that people pass on: `7-ocean-velvet-lamp`, with `@host:port#fingerprint` where one is needed.

The number is the rendezvous' room; the words are three of BIP-39's 2,048 English ones, 33 bits, which the
rendezvous never learns.
"""

import difflib
import re
import secrets
import unicodedata
from dataclasses import dataclass, field, replace
from functools import cache

from mnemonic import Mnemonic

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.session.rendezvous.address import RendezvousAddress, parse_address

WORDS = 3
LARGEST_ROOM = 999_999_999

_EXAMPLE = "7-ocean-velvet-lamp"
_SEPARATORS = re.compile(r"[\s_.,-]+")
_QUOTES = "`´'\"‘’‚‛“”„‟‹›«»"
_MINUS = "\u2212\u2043\uff0d\ufe63"  # minus, bullet and wide hyphens
_SIGNS = re.compile(r"[^\w\s.,-]+")  # brackets, stars and the like round a code or its words
_NUMBER = re.compile(r"(?<!\w)\d{1,12}(?=[\s_.,-])", re.ASCII)
_AFTER_SENTENCES = ".,;:!?)>]}*"
_COMMAND = re.compile(r"\b(?:ollama|kafila)\s+(?:run\b.*--session|session\s+join\b)[\s=]*(?P<code>.*)", re.IGNORECASE)
_NEAR = 3  # words that are offered for one that isn't known
_LONGEST = 1000  # characters of what is pasted; the rest is of no code


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
    """Reads a code, forgiving case, spaces, underscores, and what messengers and word processors make of it: other
    dashes, quotes, characters without width, the whole command. Raises InvalidInput that names what is wrong."""
    spoken, at, place = _typed(text).partition("@")
    parts = [part for part in _SEPARATORS.split(spoken.lower()) if part]
    if not parts:
        raise InvalidInput(f"the code is empty: it looks like {_EXAMPLE}")
    return Code(
        room=_room(parts[0]),
        words=_words(parts[1:]),
        address=parse_address(place) if at else None,
    )


def draw_words() -> tuple[str, ...]:
    """Three different words by the system's random source."""
    return tuple(secrets.SystemRandom().sample(_word_list(), WORDS))


def _typed(text: str) -> str:
    """The code in a pasted text, as a keyboard would have written it."""
    plain = "".join(_plain(letter) for letter in text[:_LONGEST]).strip()
    if (command := _COMMAND.search(plain)) is not None:
        plain = command["code"]
    spoken, at, place = plain.partition("@")
    spoken = _from_number(_SIGNS.sub(" ", spoken if at else _before_flags(spoken)))
    return spoken + at + (place.split() or [""])[0].rstrip(_AFTER_SENTENCES)


def _before_flags(spoken: str) -> str:
    """Without what follows the code in a command, such as `--yes`."""
    return re.split(r"\s--(?=\w)", spoken)[0]


def _from_number(spoken: str) -> str:
    """Without what people write before a code, such as `code:`; as it is where no number follows."""
    begins = _NUMBER.search(spoken)
    return spoken[begins.start() :] if begins else spoken


def _plain(letter: str) -> str:
    """As a keyboard has it: wide digits, ligatures, and letters with marks too."""
    match unicodedata.category(letter):
        case "Pd":
            return "-"
        case "Cf" | "Mn":  # zero width, soft hyphen, marks of direction; accents of their own
            return ""
    if letter in _MINUS:
        return "-"
    if letter in _QUOTES:
        return ""
    plain = unicodedata.normalize("NFKD", letter)
    return "".join(one for one in plain if unicodedata.category(one) != "Mn")


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
    if complaints := [_complaint(word) for word in words if word not in _word_list()]:
        raise InvalidInput("; ".join(complaints))
    return tuple(words)


def _complaint(word: str) -> str:
    near = difflib.get_close_matches(word[:20], _alike(word), n=_NEAR, cutoff=0.6)
    hint = f"did you mean {_or(near)}?" if near else "ask for the code again"
    return f"{word[:40]!r} is not a word of any code: {hint}"


def _or(words: list[str]) -> str:
    *first, last = map(repr, words)
    return f"{', '.join(first)} or {last}" if first else last


def _alike(word: str) -> list[str]:
    """Words that start, go on or end as this one does, or as it would with a letter before it; comparing it with all
    would take long."""
    letters = (word[:1], word[1:3], word[:2], word[-2:])
    return list(dict.fromkeys(known for some in letters for known in _by_letters().get(some, [])))


@cache
def _by_letters() -> dict[str, list[str]]:
    """By the first letter, by the next two, and by the last two."""
    alike: dict[str, list[str]] = {}
    for word in _word_list():
        for some in {word[:1], word[1:3], word[-2:]}:
            alike.setdefault(some, []).append(word)
    return alike


@cache
def _word_list() -> tuple[str, ...]:
    return tuple(Mnemonic("english").wordlist)
