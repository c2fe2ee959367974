"""How fast each address may ask."""

import pytest

from kafila_rendezvous.pace import Pace


def pace(per_s: float = 10.0, burst: int = 3) -> Pace:
    return Pace(per_s=per_s, burst=burst, salt=b"salt")


def test_allows_when_a_burst_is_used_up_then_refused_until_time_passes() -> None:
    bucket = pace()
    assert [bucket.allows("192.0.2.1", 100.0) for _ in range(5)] == [True, True, True, False, False]
    assert not bucket.allows("192.0.2.1", 100.09)
    assert bucket.allows("192.0.2.1", 100.11)


@pytest.mark.parametrize("seconds", [1, 10])
def test_allows_when_asked_all_the_time_then_the_rate_comes_through(seconds: int) -> None:
    bucket = pace()
    taken = sum(bucket.allows("192.0.2.1", 100.0 + i / 1000) for i in range(1000 * seconds))
    assert taken == pytest.approx(10 * seconds + 3, abs=1)


def test_allows_when_one_address_is_spent_then_another_is_not() -> None:
    bucket = pace(burst=1)
    assert bucket.allows("192.0.2.1", 100.0)
    assert not bucket.allows("192.0.2.1", 100.0)
    assert bucket.allows("192.0.2.2", 100.0)


def test_allows_when_a_hundred_thousand_addresses_ask_then_the_table_has_its_size() -> None:
    bucket = pace()
    before = len(bucket._paid_at)
    for number in range(100_000):
        bucket.allows(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 100.0)
    assert len(bucket._paid_at) == before
