"""GuessCount as long as they pay, and no more than there is room for."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.serving.guessing.gate import (
    LONGEST_SILENCE,
    SILENT_STEPS,
    Allowed,
    GuessCount,
    GuessGate,
    StepTimes,
    expected,
)
from kafila_sidecar.serving.guessing.room import MOST_AHEAD, most_ahead, most_guesses, why_none

Slope = Callable[[int], float]
FLAT: Slope = lambda tokens: 1.0 + 0.01 * (tokens - 1)  # noqa: E731  # a table of slopes
STEEP: Slope = lambda tokens: 1.0 + 0.9 * (tokens - 1)  # noqa: E731
ONE = Allowed(1, STEEP)


def best(gate: GuessGate, allowed: Allowed) -> GuessCount:
    return gate.best(allowed)[1]


def served(rate: float, cost: Slope, circuits: int = 400) -> float:
    """Tokens a second with the gate, where guesses are right at this rate, over those without guesses."""
    rng, gate, times, tokens, seconds = random.Random(3), GuessGate(), StepTimes(), 0, 0.0
    for _ in range(circuits):
        guesses = best(gate, Allowed(7, times.of)).together
        right = 0
        while right < guesses and rng.random() < rate:
            right += 1
        if guesses:
            gate.judge(right, guesses)
        else:
            gate.went_without()
        times.took(1 + guesses, cost(1 + guesses) * rng.uniform(1.0, 1.2))
        tokens += 1 + right
        seconds += cost(1 + guesses)
    return tokens / seconds * cost(1)


@pytest.mark.parametrize(
    ("rate", "cost", "least"),
    [
        pytest.param(0.95, FLAT, 5.0, id="copying"),
        pytest.param(0.6, FLAT, 2.0, id="a-code-edit"),
        pytest.param(0.02, FLAT, 0.97, id="chat"),
        pytest.param(0.0, STEEP, 0.95, id="chat-where-tokens-are-dear"),
        pytest.param(0.5, STEEP, 0.9, id="half-right-where-tokens-are-dear"),
    ],
)
def test_gate_when_guesses_are_right_at_a_rate_then_it_gains_what_there_is_and_loses_little(
    rate: float, cost: Slope, least: float
) -> None:
    assert served(rate, cost) >= least


@pytest.mark.parametrize(("failed", "silence"), [(1, 2 * SILENT_STEPS), (40, LONGEST_SILENCE)])
def test_gate_when_it_was_silent_for_long_then_one_guess_is_tried(failed: int, silence: int) -> None:
    gate = GuessGate()
    for _ in range(40):
        gate.judge(1, 2)
    for _ in range(failed):
        gate.judge(0, 1)
    for _ in range(silence):
        assert best(gate, ONE) == GuessCount()
        gate.went_without()
    assert best(gate, ONE) == GuessCount(together=1)
    assert best(gate, Allowed(0, STEEP)) == GuessCount()
    assert best(gate, Allowed(0, STEEP, ahead=4, gap_s=0.9)) == GuessCount(ahead=1)
    gate.judge(0, 1)
    assert best(gate, ONE) == GuessCount()


@pytest.mark.parametrize(
    ("rate", "allowed", "guesses"),
    [
        pytest.param(0.9, Allowed(7, FLAT, ahead=4, gap_s=0.25), GuessCount(together=7), id="tokens-cost-little"),
        pytest.param(0.9, Allowed(7, STEEP, ahead=4, gap_s=0.25), GuessCount(ahead=4), id="tokens-are-dear"),
        pytest.param(0.9, Allowed(0, STEEP, ahead=4, gap_s=0.25), GuessCount(ahead=4), id="steps-stay-single"),
        pytest.param(0.1, Allowed(0, STEEP, ahead=4, gap_s=0.25), GuessCount(), id="hardly-any-is-right"),
        pytest.param(0.05, Allowed(0, STEEP, ahead=8, gap_s=0.001), GuessCount(), id="members-would-work-in-vain"),
        pytest.param(0.3, Allowed(0, STEEP, ahead=8, gap_s=0.001), GuessCount(ahead=8), id="most-of-the-ring-idles"),
        pytest.param(0.9, Allowed(0, STEEP), GuessCount(), id="none-is-allowed"),
    ],
)
def test_gate_when_guesses_may_go_together_or_run_ahead_then_what_gives_a_token_soonest(
    rate: float, allowed: Allowed, guesses: GuessCount
) -> None:
    gate, rng = GuessGate(), random.Random(5)
    for _ in range(200):
        gate.judge(int(rng.random() < rate), 1)
    assert best(gate, allowed) == guesses


@given(st.floats(0, 1), st.integers(0, 7))
def test_expected_when_counted_out_then_the_formula(rate: float, guesses: int) -> None:
    counted = sum(number * rate ** (number - 1) * (1 - rate) for number in range(1, guesses + 1))
    assert expected(rate, guesses) == pytest.approx(counted + (guesses + 1) * rate**guesses)


def test_times_when_some_are_known_then_the_rest_lies_between_or_a_little_above() -> None:
    times = StepTimes()
    assert times.of(2) == math.inf
    for seconds in (0.010, 0.011, 0.5):
        times.took(1, seconds)
    times.took(5, 0.014)
    assert times.of(1) == 0.010
    assert times.of(3) == pytest.approx(0.012)
    assert 0.014 < times.of(8) < 0.02


def test_times_when_a_larger_step_took_less_then_the_smaller_one_was_disturbed() -> None:
    times = StepTimes()
    times.took(1, 0.009)
    times.took(2, 9.0)
    times.took(4, 0.01)
    assert times.of(2) == 0.01


ROOM: dict[str, Any] = {"is_greedy": True, "running": 1, "wanted_tokens": 100, "token_bytes": 4096}


@pytest.mark.parametrize(
    ("limits", "given_", "most"),
    [
        pytest.param(StepLimits(8, 8, 8), {}, 7, id="all-exact"),
        pytest.param(StepLimits(1, 1, 8), {}, 0, id="caches-that-cant-forget"),
        pytest.param(StepLimits(3, 8, 8), {}, 7, id="bounded-and-greedy"),
        pytest.param(StepLimits(3, 8, 8), {"is_greedy": False}, 2, id="bounded-and-drawn"),
        pytest.param(StepLimits(8, 8, 8), {"running": 2}, 3, id="two-in-turns"),
        pytest.param(StepLimits(8, 8, 8), {"running": 4}, 1, id="four-in-turns"),
        pytest.param(StepLimits(8, 8, 8), {"running": 9}, 0, id="too-many"),
        pytest.param(StepLimits(8, 8, 8), {"wanted_tokens": 3}, 2, id="near-the-end"),
        pytest.param(StepLimits(8, 8, 8), {"wanted_tokens": 0}, 0, id="at-the-end"),
        pytest.param(StepLimits(8, 8, 8), {"token_bytes": 32768}, 3, id="wide-states"),
        pytest.param(StepLimits(8, 8, 8), {"token_bytes": 1 << 20}, 0, id="states-too-wide"),
    ],
)
def test_room_when_a_step_may_have_so_many_then_so_many_guesses(
    limits: StepLimits, given_: dict[str, Any], most: int
) -> None:
    assert most_guesses(limits, **{**ROOM, **given_}) == most


@pytest.mark.parametrize(
    ("lone_s", "busiest_s", "given_", "most"),
    [
        pytest.param(0.1, 0.02, {}, 5, id="a-long-ring"),
        pytest.param(0.1, 0.05, {}, 2, id="two-stages-that-are-alike"),
        pytest.param(0.1, 0.06, {}, 0, id="one-stage-has-most-of-it"),
        pytest.param(0.1, 0.001, {}, MOST_AHEAD, id="far-apart"),
        pytest.param(0.1, 0.02, {"running": 2}, 2, id="another-one-runs-and-much-idles"),
        pytest.param(0.1, 0.02, {"running": 3}, 0, id="others-fill-it"),
        pytest.param(0.1, 0.02, {"wanted_tokens": 3}, 2, id="near-the-end"),
        pytest.param(0.1, 0.02, {"wanted_tokens": 0}, 0, id="at-the-end"),
        pytest.param(None, 0.02, {}, 0, id="no-circuit-yet"),
        pytest.param(0.1, None, {}, 0, id="no-stage-alone-yet"),
    ],
)
def test_room_when_the_ring_idles_then_so_many_guesses_run_ahead(
    lone_s: float | None, busiest_s: float | None, given_: dict[str, int], most: int
) -> None:
    assert most_ahead(lone_s, busiest_s, **{"running": 1, "wanted_tokens": 100, **given_}) == most


@pytest.mark.parametrize(
    ("limits", "is_wanted", "can_forget", "told"),
    [
        (StepLimits(exact=2, bounded=2), True, True, ""),
        (StepLimits(exact=1, bounded=8), True, True, ""),
        (StepLimits(exact=8, bounded=8), False, True, "created without"),
        (StepLimits(), False, False, "created without"),
        (StepLimits(), True, False, "can't take back"),
        (None, True, False, "can't take back"),
        (None, True, True, "not every member has told"),
        (StepLimits(), True, True, "otherwise than one by one"),
    ],
)
def test_why_none_when_some_may_be_guessed_then_nothing_else_the_first_reason(
    limits: StepLimits | None, is_wanted: bool, can_forget: bool, told: str
) -> None:
    why = why_none(limits, is_wanted=is_wanted, can_forget=can_forget, has_others=False)
    assert bool(why) == bool(told)
    assert told in why


def test_why_none_when_steps_stay_single_then_in_a_ring_guesses_may_run_ahead() -> None:
    assert not why_none(StepLimits(), is_wanted=True, can_forget=True, has_others=True)
