"""Three hundred schedules, each of which can be played again: `make sim SEED=n` prints what happens in it."""

import os
import subprocess
import sys

import pytest

from tests.sim import laws
from tests.sim.laws import AT_THE_END, LOOKS, NOT_YET, WHEN_SETTLED
from tests.sim.schedule import What, draw, draw_moving

SCHEDULES = 300
# broke a law before
FURTHER = (
    1266,
    2132,
    2133,
    2714,
    4512,
    6656,
    10110,
    10267,
    10304,
    10784,
    14706,
    14900,
    15259,
    15552,
    16438,
    16472,
    18554,
    19437,
)
MOVING = 4


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("first", "count"), [(1, SCHEDULES), *((seed, 1) for seed in FURTHER)])
def test_sessions_when_schedules_are_played_then_every_law_holds(first: int, count: int) -> None:
    played = simulate("--first", str(first), "--count", str(count))
    assert played.returncode == 0, played.stdout + played.stderr


@pytest.mark.parametrize(
    "count", [MOVING, pytest.param(SCHEDULES, marks=[pytest.mark.long, pytest.mark.timeout(1200)])]
)
def test_sessions_when_machines_move_to_other_networks_besides_then_every_law_holds(count: int) -> None:
    played = simulate("--moves", "--first", "1", "--count", str(count))
    assert played.returncode == 0, played.stdout + played.stderr


@pytest.mark.parametrize("seed", [3, 7, 22])
def test_seed_when_played_twice_then_everything_happens_again(seed: int) -> None:
    first, second = (simulate("--seed", str(seed)) for _ in range(2))
    assert f"seed {seed}: trace " in first.stdout
    assert first.stdout == second.stdout


@pytest.mark.parametrize("seed", [3, 22, 133])
def test_seed_when_names_hash_otherwise_then_the_same_happens(seed: int) -> None:
    """Nothing is done in the order of a set, by the product or by what plays around it."""
    path = os.pathsep.join(folder for folder in sys.path if folder)
    command = [sys.executable, "-c", f"from tests.sim.play import play; print(play({seed}).trace)"]
    traces = set()
    for hashing in ("0", "11", "77777777"):
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hashing}
        played = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        traces.add(played.stdout)
    assert len(traces) == 1


def simulate(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """In a process of its own, whose hash seed is always the same, and where the dead may lie."""
    path = os.pathsep.join(folder for folder in sys.path if folder)
    command = [sys.executable, "-m", "tests.sim", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})


def test_seeds_when_drawn_then_every_kind_of_happening_comes() -> None:
    drawn = [draw(seed) for seed in range(SCHEDULES)] + [draw_moving(1)]
    assert {happening.what for schedule in drawn for happening in schedule.happenings} == set(What)
    assert {len(schedule.members) for schedule in drawn} == {3, 4, 5, 6}


def test_laws_when_they_are_not_held_to_yet_then_they_are_laws_all_the_same() -> None:
    assert set(NOT_YET) <= {law.__name__ for law in (*WHEN_SETTLED, *AT_THE_END, *LOOKS)}
    assert all(law.__doc__ for law in (*WHEN_SETTLED, *AT_THE_END, *LOOKS))
    assert laws.__doc__
