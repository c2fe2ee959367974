"""What a pulse tells, on a loop whose time passes only while everybody waits."""

import asyncio

import pytest

from kafila_sidecar.serving.pulse import Pulse
from tests.support.virtual_time import simulate


class Work:
    """Something to do, and what was told of it."""

    def __init__(self) -> None:
        self.is_idle = False
        self.told: list[float] = []
        self.pulse = Pulse(tell=self.told.append, idle=lambda: self.is_idle)


def test_pulse_while_there_is_work_tells_the_tokens_of_each_second() -> None:
    work = Work()

    async def scene() -> None:
        work.pulse.beat()
        for _ in range(20):
            await asyncio.sleep(0.125)
            work.pulse.beat(1)

    simulate(scene)
    assert work.told == pytest.approx([7, 8], abs=1.1)


def test_pulse_once_idle_tells_it_once_and_rests() -> None:
    work = Work()

    async def scene() -> None:
        work.pulse.beat(1)
        work.is_idle = True
        await asyncio.sleep(10)

    simulate(scene)
    assert work.told == [0.0]


def test_pulse_after_a_rest_counts_from_its_next_beat() -> None:
    work = Work()

    async def scene() -> None:
        work.pulse.beat(1)
        work.is_idle = True
        await asyncio.sleep(10)
        work.is_idle = False
        work.pulse.beat(3)
        await asyncio.sleep(1.5)

    simulate(scene)
    assert work.told == [0.0, pytest.approx(3, abs=0.01)]


def test_pulse_when_stopped_tells_nothing() -> None:
    work = Work()

    async def scene() -> None:
        work.pulse.beat(1)
        work.pulse.stop()
        await asyncio.sleep(10)

    simulate(scene)
    assert work.told == []
