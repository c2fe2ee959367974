"""Three hundred schedules, each of which can be played again: `make sim SEED=n` prints what happens in it."""

import os
import subprocess
import sys

import pytest

from tests.sim import laws
from tests.sim.laws import AT_THE_END, LOOKS, NOT_YET, WHEN_SETTLED
from tests.sim.play import play
from tests.sim.schedule import What, draw

SCHEDULES = 300


@pytest.mark.timeout(1200)
def test_sessions_when_300_schedules_are_played_then_every_law_holds() -> None:
    """In processes of their own, whose hash seed is the one of a replay."""
    command = [sys.executable, "-m", "tests.sim", "--count", str(SCHEDULES)]
    path = os.pathsep.join(folder for folder in sys.path if folder)
    played = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    assert played.returncode == 0, played.stdout + played.stderr


@pytest.mark.parametrize("seed", [3, 7, 22])
def test_seed_when_played_twice_then_everything_happens_again(seed: int) -> None:
    lines: list[list[str]] = [[], []]
    first, second = (play(seed, say=said.append) for said in lines)
    assert lines[0] == lines[1]
    assert first.trace == second.trace
    assert first.broken + first.passed_over == second.broken + second.passed_over


def test_seeds_when_drawn_then_every_kind_of_happening_comes() -> None:
    drawn = [draw(seed) for seed in range(SCHEDULES)]
    assert {happening.what for schedule in drawn for happening in schedule.happenings} == set(What)
    assert {len(schedule.members) for schedule in drawn} == {3, 4, 5, 6}


def test_laws_when_they_are_not_held_to_yet_then_they_are_laws_all_the_same() -> None:
    assert set(NOT_YET) <= {law.__name__ for law in (*WHEN_SETTLED, *AT_THE_END, *LOOKS)}
    assert all(law.__doc__ for law in (*WHEN_SETTLED, *AT_THE_END, *LOOKS))
    assert laws.__doc__
