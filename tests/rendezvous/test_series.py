"""Which numbers rooms get."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_rendezvous.rooms.numbers import RoomNumbers
from kafila_rendezvous.series import EMBEDDED_STEP, EVERY, Series, embedded_series

COOL_S = 600.0
NEVER_S = 0.0


@given(
    series=st.sampled_from([EVERY, Series(37, EMBEDDED_STEP)]),
    given_back=st.lists(st.integers(0, 9), max_size=5),
    kept=st.frozensets(st.integers(1, 400), max_size=4),
)
def test_take_when_numbers_were_kept_claimed_and_given_back_then_each_is_of_the_series_and_one_rooms_alone(
    series: Series, given_back: list[int], kept: frozenset[int]
) -> None:
    numbers = RoomNumbers(COOL_S, kept, series)
    held = [numbers.take(NEVER_S) for _ in range(10)]
    assert all(series.has(number) for number in held)
    assert not kept & set(held)
    held += [number for number in sorted(kept) if numbers.claim(number)]
    assert kept <= set(held)
    for place in given_back:
        numbers.give_back(held[place % len(held)], NEVER_S)
        held.pop(place % len(held))
    held += [numbers.take(2 * COOL_S) for _ in range(10)]
    assert len(held) == len(set(held))
    assert all(series.has(number) for number in held[-10:])


def test_claim_when_a_number_is_of_another_series_then_once() -> None:
    numbers = RoomNumbers(COOL_S, (), Series(37, EMBEDDED_STEP))
    assert numbers.claim(1)
    assert not numbers.claim(1)
    assert numbers.take(NEVER_S) == 37


@pytest.mark.parametrize("fingerprint", ["mcwqzspzi5esea64axpg", "a" * 20, "7" * 20])
def test_series_when_it_is_of_any_certificate_then_two_digits_that_are_not_00(fingerprint: str) -> None:
    series = embedded_series(fingerprint)
    assert 1 <= series.first < EMBEDDED_STEP == series.step
