"""Who runs and who waits."""

import asyncio

import pytest

from kafila_sidecar.errors import Exhausted, TimedOut
from kafila_sidecar.serving import slots as module
from kafila_sidecar.serving.slots import Slots


class Holder:
    """Takes a slot and keeps it until told."""

    def __init__(self, slots: Slots, order: list[int], number: int) -> None:
        self._slots, self._order, self._number = slots, order, number
        self.done = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self._slots.take():
            self._order.append(self._number)
            await self.done.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_take_when_more_come_than_run_then_the_rest_follows_in_order() -> None:
    slots, order = Slots(2), list[int]()
    holders = [Holder(slots, order, i) for i in range(6)]
    await settle()
    assert order == [0, 1]
    for i in (1, 0, 2, 3, 4, 5):
        holders[i].done.set()
        await settle()
    await asyncio.gather(*(holder.task for holder in holders))
    assert order == [0, 1, 2, 3, 4, 5]


async def test_take_when_a_waiting_one_is_cancelled_then_its_turn_passes_on() -> None:
    slots, order = Slots(1), list[int]()
    holders = [Holder(slots, order, i) for i in range(3)]
    await settle()
    holders[1].task.cancel()
    holders[0].done.set()
    await settle()
    assert order == [0, 2]
    holders[2].task.cancel()
    await asyncio.wait([holder.task for holder in holders])
    async with slots.take():
        pass  # nothing is held any more


async def test_take_when_the_holder_fails_then_the_slot_is_free() -> None:
    slots = Slots(1)
    with pytest.raises(KeyError):
        async with slots.take():
            raise KeyError
    async with asyncio.timeout(1), slots.take():
        pass


async def test_take_when_the_queue_is_full_then_refused_and_later_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    slots, order = Slots(1), list[int]()
    holders = [Holder(slots, order, i) for i in range(4)]
    await settle()
    with pytest.raises(Exhausted, match="3 requests"):
        async with slots.take():
            pass
    holders[0].done.set()
    await settle()
    last = Holder(slots, order, 9)
    for holder in (*holders, last):
        holder.done.set()
    await asyncio.gather(*(holder.task for holder in holders), last.task)
    assert order == [0, 1, 2, 3, 9]


async def test_take_when_nothing_comes_free_then_it_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_DEADLINE_S", 0.02)
    slots, order = Slots(1), list[int]()
    holder = Holder(slots, order, 0)
    await settle()
    with pytest.raises(TimedOut):
        async with slots.take():
            pass
    holder.done.set()
    await holder.task
