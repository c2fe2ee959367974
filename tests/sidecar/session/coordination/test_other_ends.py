"""When a member closes its own end of a link whose other end is down."""

import pytest

from kafila_sidecar.session.judging.ends import STALE_S, OtherEnds
from kafila_sidecar.session.judging.majority import FRESH_S


def closed_at(ends: OtherEnds, silent_since_s: float | None, now: float) -> list[float]:
    """When bob's end is to be closed; `silent_since_s`: when its link brought something last, None: it always does."""
    times = []
    for _ in range(20):
        silent_s = {"bob": 0.25 if silent_since_s is None else now - silent_since_s}
        times += [now] * ends.handle_timer(now, silent_s).count("bob")
        timer = ends.next_timer(now, silent_s)
        if timer is None:
            return times
        assert timer > now
        now = timer
    raise AssertionError("it looks and looks")


@pytest.mark.parametrize(
    ("silent_since_s", "times"),
    [(9.8, [9.8 + FRESH_S]), (2.0, [10.0]), (10.0 + FRESH_S, [10.0 + 2 * FRESH_S]), (None, [])],
)
def test_end_when_the_other_one_is_down_then_closed_once_it_has_brought_nothing_for_so_long(
    silent_since_s: float | None, times: list[float]
) -> None:
    ends = OtherEnds()
    ends.receive_down("bob", 10.0)
    assert closed_at(ends, silent_since_s, 10.0) == times


def test_end_when_the_other_one_is_up_again_then_left_alone_however_silent() -> None:
    ends = OtherEnds()
    ends.receive_down("bob", 10.0)
    ends.receive_up("bob")
    assert closed_at(ends, 9.0, 10.0) == []


def test_end_when_there_is_no_link_any_more_then_what_was_said_is_not_held_against_the_next_one() -> None:
    ends = OtherEnds()
    ends.receive_down("bob", 10.0)
    assert ends.handle_timer(10.0, {}) == []
    assert ends.next_timer(10.0, {}) is None


def test_end_when_what_was_said_of_it_is_old_then_a_link_that_falls_silent_is_left_alone() -> None:
    ends = OtherEnds()
    ends.receive_down("bob", 10.0)
    assert closed_at(ends, 10.0 + STALE_S - 1.0, 10.0) == []
