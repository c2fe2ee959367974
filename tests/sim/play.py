"""Plays one seed: its schedule, its world, the laws."""

import asyncio
import contextlib
import gc
import logging
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.sim import laws
from tests.sim.clock import SimLoop
from tests.sim.schedule import Schedule, draw, draw_moving
from tests.sim.stand_ins import entering, standing_in
from tests.sim.world import World

MOST_WAITS = 20  # of one that is being closed


@dataclass(slots=True)
class Outcome:
    """`broken`: sentences, each begun by its law's name; `passed_over`: those of laws that can't hold yet."""

    seed: int
    trace: str
    broken: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    virtual_s: float = 0.0
    pauses_s: list[float] = field(default_factory=list)


def play(seed: int, *, say: Callable[[str], None] | None = None) -> Outcome:
    """One run from its seed; `say` hears each line of its timeline."""
    return play_schedule(draw(seed), say=say)


def play_moving(seed: int, *, say: Callable[[str], None] | None = None) -> Outcome:
    """The same of `draw_moving`."""
    return play_schedule(draw_moving(seed), say=say)


def play_schedule(schedule: Schedule, *, say: Callable[[str], None] | None = None) -> Outcome:
    """The same, of a schedule that somebody made."""
    loop = SimLoop()
    asyncio.set_event_loop(loop)
    gc.disable()
    random.seed(schedule.seed)
    try:
        with standing_in(loop):
            return loop.run_until_complete(_played(schedule, loop, say))
    finally:
        asyncio.set_event_loop(None)
        _bury(loop)
        gc.enable()


def _bury(loop: SimLoop) -> None:
    """Nothing of the dead may run, or be told, when their memory is given back."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    disabled = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings(action="ignore"):  # of what they would have awaited
            for task in asyncio.all_tasks(loop):
                _end(task.get_coro())
            loop.close()
            gc.collect()
    finally:
        logging.disable(disabled)
        sys.unraisablehook = hook


def _end(life: Any) -> None:
    """Each try ends one wait; whoever is cleaning up waits again."""
    for _ in range(MOST_WAITS):
        with contextlib.suppress(BaseException):
            life.close()
            return


async def _played(schedule: Schedule, loop: SimLoop, say: Callable[[str], None] | None) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        world = World(schedule, loop, Path(folder), say=say)
        with entering(world.rendezvous):
            return await _judged(world)


async def _judged(world: World) -> Outcome:
    await world.run(_look)
    world.is_hopeless = laws.is_hopeless(world)
    found = _broken(laws.WHEN_SETTLED, world)
    await world.ask_everybody()
    await world.leave_all()
    outcome = Outcome(world.schedule.seed, world.trace, virtual_s=world.now_s)
    found += world.broken + _broken(laws.AT_THE_END, world)
    for sentence in found:
        late = sentence.partition(":")[0] in laws.NOT_YET
        (outcome.passed_over if late else outcome.broken).append(sentence)
    outcome.pauses_s = [answer.longest_pause_s for answer in world.answers if answer.is_complete]
    return outcome


def _broken(which: tuple[laws.Law, ...], world: World) -> list[str]:
    return [f"{law.__name__}: {sentence}" for law in which for sentence in law(world)]


def _look(world: World) -> None:
    for look in laws.LOOKS:
        look(world)
