"""Sets of byte ranges, half-open `[start, end)`. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Self


class Span(NamedTuple):
    """Bytes `[start, end)` of one file."""

    start: int
    end: int


@dataclass(slots=True)
class Ranges:
    """A set of bytes of one file, kept as its fewest spans, in order."""

    spans: list[Span] = field(default_factory=list)

    @classmethod
    def of(cls, spans: Iterable[Span]) -> Self:
        """The bytes of any spans, in any order."""
        ranges = cls()
        for start, end in spans:
            ranges.add(start, end)
        return ranges

    def __iter__(self) -> Iterator[Span]:
        return iter(self.spans)

    def __len__(self) -> int:
        """How many bytes."""
        return sum(end - start for start, end in self.spans)

    def add(self, start: int, end: int) -> None:
        if start >= end:
            return
        first = bisect_left(self.spans, start, key=lambda span: span.end)
        last = bisect_right(self.spans, end, key=lambda span: span.start)
        touched = self.spans[first:last]
        if touched:
            start, end = min(start, touched[0].start), max(end, touched[-1].end)
        self.spans[first:last] = [Span(start, end)]

    def covers(self, start: int, end: int) -> bool:
        at = bisect_right(self.spans, start, key=lambda span: span.start) - 1
        return start >= end or (at >= 0 and self.spans[at].end >= end)

    def touches(self, start: int, end: int) -> bool:
        """Whether any byte of `[start, end)` is in the set."""
        at = bisect_right(self.spans, start, key=lambda span: span.end)
        return start < end and at < len(self.spans) and self.spans[at].start < end

    def minus(self, other: "Ranges") -> "Ranges":
        left = Ranges()
        for start, end in self.spans:
            at = start
            for held in other.spans[bisect_right(other.spans, start, key=lambda span: span.end) :]:
                if held.start >= end:
                    break
                left.add(at, min(held.start, end))
                at = max(at, held.end)
            left.add(at, end)
        return left


def pieces(ranges: Ranges, most_bytes: int) -> Iterator[Span]:
    """The same bytes in order, in spans of `most_bytes` at most."""
    for start, end in ranges:
        for at in range(start, end, most_bytes):
            yield Span(at, min(at + most_bytes, end))
