"""Text that knows which of its characters a chat template wrote, so that what people wrote can't pass for them.

`OwnText` is a str in every way: templates compare, split, measure and trim as ever. Beside its characters it keeps the
spans of those that are the template's own. They follow through what templates do with their own texts: joining,
slicing, stripping, splitting, replacing, formatting. Where that isn't followed the result counts as written by people.
"""

from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

Span = tuple[int, int]


class OwnText(str):
    """`spans`: half-open, in order, apart from one another."""

    __slots__ = ("spans",)
    spans: tuple[Span, ...]

    def __new__(cls, text: object = "", spans: tuple[Span, ...] = ()) -> "OwnText":
        made = super().__new__(cls, text)
        made.spans = spans
        return made

    def owns(self, start: int, end: int) -> bool:
        """Whether all characters in [start, end) are the template's own."""
        return any(first <= start and end <= last for first, last in self.spans)

    def owns_any(self, start: int, end: int) -> bool:
        """Whether any character in [start, end) is the template's own."""
        return any(first < end and start < last for first, last in self.spans)

    def __str__(self) -> str:
        return self  # so that str(), which templates go through, keeps the spans

    def __add__(self, other: str) -> "OwnText":
        return joined((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> "OwnText":
        return joined((other, self)) if isinstance(other, str) else NotImplemented

    def __mod__(self, values: Any) -> "OwnText":
        pieces, given = self.split("%s"), values if isinstance(values, tuple) else (values,)
        if any("%" in piece for piece in pieces) or len(given) != len(pieces) - 1:
            return OwnText(super().__mod__(values))
        return joined(part for pair in zip(pieces, (*map(str, given), ""), strict=True) for part in pair)

    def __getitem__(self, key: SupportsIndex | slice) -> "OwnText":
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._cut(start, max(start, stop)) if step == 1 else OwnText(super().__getitem__(key))
        at = key.__index__()
        super().__getitem__(at)
        return self._cut(at % len(self), at % len(self) + 1)

    def lstrip(self, chars: str | None = None, /) -> "OwnText":
        return self._cut(len(self) - len(super().lstrip(chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> "OwnText":
        return self._cut(0, len(super().rstrip(chars)))

    def strip(self, chars: str | None = None, /) -> "OwnText":
        return self.lstrip(chars).rstrip(chars)

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._pieces(super().split(sep, maxsplit), len(sep or ""))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._pieces(super().rsplit(sep, maxsplit), len(sep or ""))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> "OwnText":
        if not old:
            return OwnText(super().replace(old, new, count))
        between = new if isinstance(new, OwnText) else OwnText(new)
        return between.join(self.split(old, count))

    def join(self, parts: Iterable[str], /) -> "OwnText":
        between: list[str] = []
        for part in parts:
            between += (self, part)
        return joined(between[1:])

    def _pieces(self, pieces: Sequence[str], gap: int) -> list[str]:
        """Parts of this text that stand in it in this order, `gap` characters apart; 0: with blanks between them."""
        found: list[str] = []
        at = 0
        for piece in pieces:
            at = at if gap else self.index(piece, at)
            found.append(self._cut(at, at + len(piece)))
            at += len(piece) + gap
        return found

    def _cut(self, start: int, end: int) -> "OwnText":
        inside = ((max(first, start) - start, min(last, end) - start) for first, last in self.spans)
        return OwnText(str.__getitem__(self, slice(start, end)), tuple(span for span in inside if span[0] < span[1]))


def own(text: str) -> OwnText:
    """Text that is the template's own as a whole."""
    return OwnText(text, ((0, len(text)),) if text else ())


def joined(parts: Iterable[str]) -> OwnText:
    """The parts as one text, as `"".join` has it."""
    texts = list(parts)
    spans: list[Span] = []
    at = 0
    for text in texts:
        for start, end in text.spans if isinstance(text, OwnText) else ():
            first = spans.pop()[0] if spans and spans[-1][1] == at + start else at + start
            spans.append((first, at + end))
        at += len(text)
    return OwnText("".join(texts), tuple(spans))
