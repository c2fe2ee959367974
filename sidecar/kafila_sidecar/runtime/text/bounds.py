"""How many characters a prompt of so many tokens can have: what bounds a prompt before anything is built of it. Pure.

A token stands for no more characters than its own text has, so a text has at least as many tokens as its length divided
by that of the longest one. What a tokenizer throws away (runs of blanks, say, or what it takes for one unknown word)
counts here as if it were kept.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafila_sidecar.errors import Refused

LONGEST_TOKEN = 4096  # characters; real ones have some 250
MOST_IDS = 1 << 22  # real vocabularies have up to 2^18
_COMPOSED = 4  # characters that a normalizer makes one of, as of a Greek letter with its three marks
_TYPICAL = 8  # characters a token: more than text has in any language, far less than the longest token has
_SEAM = 64  # tokens beside a cut that may be others than the whole text's

Encode = Callable[[Any], Sequence[int]]
"""Of a str, or of an `OwnText`, which stays one when it is cut."""


def check_vocabulary(tokens: Iterable[tuple[str, int]]) -> None:
    """Raises: Refused for tokens or ids that no real tokenizer has, and that others' memory would have to hold."""
    for text, number in tokens:
        if len(text) > LONGEST_TOKEN or number >= MOST_IDS:
            raise Refused(
                f"the checkpoint's tokenizer has a token of {len(text)} characters with the id {number}, over "
                f"{LONGEST_TOKEN} or {MOST_IDS}: choose another model"
            )


@dataclass(frozen=True, slots=True)
class TokenLength:
    """How much text one token can stand for, at most, in characters."""

    characters: int

    @classmethod
    def of(cls, tokens: Iterable[str], *, normalizes: bool) -> "TokenLength":
        return cls(max(1, max(map(len, tokens), default=1)) * (_COMPOSED if normalizes else 1))

    def exceeds(self, characters: int, limit: int) -> bool:
        """Whether a text of so many characters certainly has more than `limit` tokens."""
        return characters > limit * self.characters

    def encode(self, text: str, limit: int, keep: int, *, first: Encode, further: Encode) -> list[int]:
        """The ids of a text. Of one that has more than `limit` those of its ends suffice, which are more than `limit`
        too: `keep` of its beginning (all for -1), and its last ones. `further` encodes what is no beginning.
        """
        enough = limit + _SEAM
        if len(text) <= enough * _TYPICAL:
            return list(first(text))
        last = further(text[-enough * _TYPICAL :])
        if len(last) <= enough:
            if not self.exceeds(len(text), limit):
                return list(first(text))
            last = further(text[-enough * self.characters :])
        return [*self._first(text, limit if keep < 0 else min(keep, limit), first), *last]

    def _first(self, text: str, count: int, first: Encode) -> Sequence[int]:
        enough = count + _SEAM
        ids = first(text[: enough * _TYPICAL])
        return (ids if len(ids) > enough else first(text[: enough * self.characters]))[:count]
