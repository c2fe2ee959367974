"""What a request may guess beside others: as far as a run with all their rows takes hardly longer."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.serving.ring import Ring
from kafila_sidecar.serving.running.guessroom import GuessRoom
from kafila_sidecar.serving.running.headwork import HeadWork
from kafila_sidecar.serving.trace import Circuit


def room(running: int, *, rows: int = 1, model_rewinds: bool = True, has_others: bool = True) -> GuessRoom:
    ring: Any = SimpleNamespace(step_limits=StepLimits(8, 8, 8), token_bytes=4096, has_others=has_others)
    work: Any = SimpleNamespace(running=running, model_rewinds=model_rewinds)
    return GuessRoom(ring=cast(Ring, ring), work=cast(HeadWork, work), rows=lambda users: min(users, rows))


def circuit(stage_s: float, *, rows: int = 1, guesses: int = 0, was_behind: bool = False) -> Circuit:
    return Circuit((0.001, stage_s), (0.001, stage_s), 0.1, 8, 8, (1, rows), guesses=guesses, was_behind=was_behind)


def test_room_when_one_runs_then_the_circuit_counts_and_the_ring_that_idles_lets_guesses_run_ahead() -> None:
    made = room(1)
    made.took(circuit(0.02))
    made.took(circuit(0.9, was_behind=True))  # which waited behind others, and says nothing of a circuit
    now = made.now(is_greedy=True, wanted_tokens=50, again=0)
    assert (now.together, now.ahead) == (7, 5)
    assert (now.cost(1), now.gap_s) == (0.1, 0.02)


def test_room_when_two_run_one_in_a_run_then_what_the_busiest_stage_takes_counts() -> None:
    made = room(2)
    for guesses, stage_s in ((0, 0.02), (3, 0.09)):
        made.took(circuit(stage_s, guesses=guesses))
    now = made.now(is_greedy=True, wanted_tokens=50, again=0)
    assert now.together == 3
    assert (now.cost(1), now.cost(4)) == (0.02, 0.09)
    assert now.ahead == 0  # as long as nobody knows what a lone circuit takes


def test_room_when_runs_have_rows_of_several_then_nothing_is_guessed_for_it_would_go_round_by_itself() -> None:
    made = room(1, rows=2)
    made.took(circuit(0.02))
    assert made.now(is_greedy=True, wanted_tokens=50, again=0).together == 7
    several = room(2, rows=2)
    several.took(circuit(0.02))
    now = several.now(is_greedy=True, wanted_tokens=50, again=0)
    assert (now.together, now.ahead) == (0, 0)


@pytest.mark.parametrize(
    ("model_rewinds", "has_others", "again", "expected"),
    [(True, True, 0, (7, 5)), (False, True, 3, (4, 0)), (True, False, 0, (7, 0)), (False, True, 8, (0, 0))],
    ids=["a-ring", "caches-that-cant-forget", "the-head-alone", "all-of-it-run-again"],
)
def test_room_when_stages_run_some_again_then_so_many_fewer_and_none_ahead(
    model_rewinds: bool, has_others: bool, again: int, expected: tuple[int, int]
) -> None:
    made = room(1, model_rewinds=model_rewinds, has_others=has_others)
    made.took(circuit(0.02))
    now = made.now(is_greedy=True, wanted_tokens=50, again=again)
    assert (now.together, now.ahead) == expected
