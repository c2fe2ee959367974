from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.weights.format.ranges import Ranges, Span, pieces

spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: Span(pair[0], sum(pair))), max_size=12
)


def bytes_in(some: list[Span]) -> set[int]:
    return {at for start, end in some for at in range(start, end)}


def ranges_of(some: list[Span]) -> Ranges:
    ranges = Ranges()
    for start, end in some:
        ranges.add(start, end)
    return ranges


@given(spans)
def test_ranges_are_the_set_of_their_bytes_in_fewest_spans(some: list[Span]) -> None:
    ranges = ranges_of(some)
    assert bytes_in(list(ranges)) == bytes_in(some)
    assert len(ranges) == len(bytes_in(some))
    assert all(left.end < right.start for left, right in zip(ranges.spans, ranges.spans[1:], strict=False))


@given(spans, spans)
def test_difference_is_the_difference_of_sets(some: list[Span], others: list[Span]) -> None:
    assert bytes_in(list(ranges_of(some).minus(ranges_of(others)))) == bytes_in(some) - bytes_in(others)


@given(spans, st.integers(0, 70), st.integers(0, 20))
def test_covers_tells_whether_every_byte_is_in(some: list[Span], start: int, length: int) -> None:
    assert ranges_of(some).covers(start, start + length) == (bytes_in(some) >= set(range(start, start + length)))


@given(spans, st.integers(1, 9))
def test_pieces_are_the_same_bytes_in_order_and_none_is_too_long(some: list[Span], most: int) -> None:
    cut = list(pieces(ranges_of(some), most))
    assert [at for start, end in cut for at in range(start, end)] == sorted(bytes_in(some))
    assert all(0 < end - start <= most for start, end in cut)
