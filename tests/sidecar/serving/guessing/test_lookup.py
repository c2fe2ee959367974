"""What followed the last tokens where they stood before."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.serving.guessing.lookup import LENGTHS, Lookup

TEXTS = st.lists(st.integers(0, 3), max_size=60)


def looked_up(text: Sequence[int], most: int) -> list[int]:
    """The same by looking through all of the text."""
    for length in LENGTHS:
        end = list(text[-length:])
        places = [at + length for at in range(len(text) - length) if list(text[at : at + length]) == end]
        if len(text) > length and places:
            found = list(text)
            for number in range(most):
                found.append(found[places[-1] + number])
            return found[len(text) :]
    return []


@given(TEXTS, st.integers(1, 8))
def test_guesses_when_compared_with_a_search_through_the_text_then_the_same(text: list[int], most: int) -> None:
    lookup = Lookup()
    for token in text:
        lookup.add([token])
    assert lookup.guesses(most) == looked_up(text, most)


@given(TEXTS, st.integers(0, 3))
def test_guesses_when_there_are_some_then_that_was_known_a_token_before(text: list[int], token: int) -> None:
    lookup = Lookup()
    lookup.add(text)
    may_know = lookup.may_know
    lookup.add([token])
    assert may_know or not lookup.guesses(1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param([1, 2, 3, 4, 5, 1, 2, 3], [4, 5, 1, 2], id="three-tokens"),
        pytest.param([1, 2, 9, 1, 2, 7, 5, 1, 2], [7, 5, 1, 2], id="the-latest-place"),
        pytest.param([6, 1, 2, 9, 3, 1, 2, 7, 6, 1, 2], [9, 3, 1, 2], id="three-before-two"),
        pytest.param([8, 1, 2, 1, 2], [1, 2, 1, 2], id="a-repetition-goes-on"),
        pytest.param([1, 2, 3, 4], [], id="nothing-known"),
        pytest.param([], [], id="no-text"),
    ],
)
def test_guesses_when_the_text_is_this_then_these(text: list[int], expected: list[int]) -> None:
    lookup = Lookup()
    lookup.add(text)
    assert lookup.guesses(4) == expected
