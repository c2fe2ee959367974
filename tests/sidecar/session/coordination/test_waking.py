"""The time that this process itself ran, by two clocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.session.judging.majority import FRESH_S, Majority
from kafila_sidecar.session.judging.waking import BEAT_S, LONGEST_GAP_S, RunningTime


@pytest.mark.parametrize(
    ("name", "steady_s", "outer_s", "naps", "counted_s"),
    [
        ("the process ran", 1.0, 1.0, 0, 1.0),
        ("a little late", LONGEST_GAP_S, LONGEST_GAP_S, 0, LONGEST_GAP_S),
        ("stopped", 22.0, 22.0, 1, BEAT_S),
        ("the machine slept, and the loop's clock with it", 0.5, 3600.0, 1, 0.5),
        ("somebody set the clock back", 1.0, -3600.0, 0, 1.0),
    ],
)
def test_running_time_when_a_gap_passes_then_it_counts_as_a_beat(
    name: str, steady_s: float, outer_s: float, naps: int, counted_s: float
) -> None:
    running = RunningTime(100.0, 5000.0)
    now = running.read(100.0 + steady_s, 5000.0 + outer_s)
    assert running.naps == naps, name
    assert running.napped_s == pytest.approx(max(steady_s, outer_s) - counted_s if naps else 0.0)
    assert now == pytest.approx(100.0 + counted_s)
    assert running.steady(now + 7.0) == pytest.approx(100.0 + steady_s + 7.0)


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(-100.0, 100.0)), max_size=30))
def test_running_time_when_whatever_passes_then_it_never_goes_back_and_is_never_ahead(
    gaps: list[tuple[float, float]],
) -> None:
    running, steady, outer, before = RunningTime(0.0, 0.0), 0.0, 0.0, 0.0
    for steady_s, outer_s in gaps:
        steady, outer = steady + steady_s, outer + outer_s
        now = running.read(steady, outer)
        assert before - 1e-6 <= now <= steady + 1e-6
        before = now


def test_majority_when_who_was_heard_falls_silent_then_it_is_gone_until_enough_are_heard() -> None:
    majority = Majority("ada")
    majority.receive_members(("ada", "bob", "cyd", "dan"), 0.0)
    for name in ("bob", "cyd"):
        majority.receive_message(name, 10.0)
    assert majority.is_here(10.0 + FRESH_S)
    assert not majority.is_here(10.1 + FRESH_S)
    majority.receive_silence({"bob": 0.5, "dan": 0.5, "zoe": 0.1}, 20.0)
    assert majority.unheard(20.0) == ["cyd"]
    majority.receive_members(("ada", "cyd"), 20.0)
    majority.receive_message("cyd", 20.1)
    assert majority.is_here(99.0)


@pytest.mark.parametrize(
    ("came_or_went", "then"),
    [
        (("ada", "bob", "cyd", "dan", "eve"), "a newcomer is heard"),
        (("ada", "bob", "cyd"), "somebody was removed"),
    ],
)
def test_majority_when_members_changed_after_some_fell_silent_then_those_may_vote_as_it_was(
    came_or_went: tuple[str, ...], then: str
) -> None:
    """Of ada, bob, cyd and dan the first two hear each other, and the others may have gone on with more than half."""
    majority = Majority("ada")
    majority.receive_members(("ada", "bob", "cyd", "dan"), 0.0)
    majority.receive_silence(dict.fromkeys(("bob", "cyd", "dan"), 0.0), 10.0)
    majority.receive_members(came_or_went, 20.0)
    majority.receive_silence(dict.fromkeys(set(came_or_went) - {"ada", "cyd", "dan"}, 0.0), 30.0)
    assert not majority.is_here(30.0)
    majority.receive_message("cyd", 31.0)
    assert majority.is_here(31.0)


def test_majority_when_those_who_left_are_none_that_vote_then_the_rest_is_enough() -> None:
    majority = Majority("ada")
    majority.receive_members(("ada", "bob", "cyd", "dan"), 0.0)
    majority.receive_members(("ada", "bob", "cyd"), 5.0)  # dan was removed
    for name in ("cyd", "dan"):
        majority.receive_goodbye(name)
    majority.receive_members(("ada", "bob"), 10.0)
    assert majority.is_here(90.0)
