"""Guesses from the text itself: what followed the last tokens where they stood before."""

from collections.abc import Iterable

LENGTHS = (3, 2)  # tokens of a match, the longest first


class Lookup:
    """The prompt and the answer of one request. Each token is looked at once, when it is added."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # where what followed these tokens begins, the latest place
        self._before: set[int] = set()  # tokens that another one followed

    def add(self, tokens: Iterable[int]) -> None:
        """The text goes on."""
        seen = self._tokens
        for token in tokens:
            self._before.update(seen[-1:])
            for length in LENGTHS:
                if length <= len(seen):
                    self._after[tuple(seen[-length:])] = len(seen)
            seen.append(token)

    @property
    def may_know(self) -> bool:
        """Whether there may be guesses after the next token: the last one has stood before another already."""
        return bool(self._tokens) and self._tokens[-1] in self._before

    def guesses(self, most: int) -> list[int]:
        """What may follow, as far as the text tells; where it ends, a repetition is taken to go on."""
        for length in LENGTHS:
            at = self._after.get(tuple(self._tokens[-length:]))
            if at is not None and len(self._tokens) > length:
                return self._from(at, most)
        return []

    def _from(self, at: int, most: int) -> list[int]:
        found = self._tokens[at : at + most]
        while len(found) < most:
            found.append(found[at + len(found) - len(self._tokens)])
        return found
