"""The fuzzer notices what it is there for."""

import pytest

from kafila_sidecar.errors import InvalidInput
from tests.support.fuzz import MOST_GROWTH_BYTES, WATCHED, fuzz, mutations


def test_mutations_when_drawn_twice_then_the_same_and_various() -> None:
    samples = [b"abcdef", b"ghi"]
    one, two = (list(mutations(samples, seed=1, inputs=500)) for _ in range(2))
    assert one == two
    assert len(set(one)) > 400
    assert one != list(mutations(samples, seed=2, inputs=500))


def test_fuzz_when_a_decoder_crashes_then_the_test_fails_and_shows_the_input() -> None:
    def read(data: bytes) -> None:
        if len(data) > 6:
            raise IndexError(len(data))
        raise InvalidInput("no")

    with pytest.raises(AssertionError, match="IndexError"):
        fuzz(read, [], inputs=100)


def test_fuzz_when_a_decoder_keeps_what_it_gets_then_the_test_fails() -> None:
    kept: list[bytes] = []

    def read(data: bytes) -> None:
        kept.append(bytes(2 * MOST_GROWTH_BYTES // WATCHED) + data)

    with pytest.raises(AssertionError, match="are kept"):
        fuzz(read, [b"sample"], inputs=2 * WATCHED)


def test_fuzz_when_a_decoder_takes_some_then_they_are_counted() -> None:
    def read(data: bytes) -> None:
        if b"s" not in data:
            raise InvalidInput("no")

    taken = fuzz(read, [b"sample"], inputs=1000)
    assert 100 < taken < 1000
