"""What a token takes beside the model, over a real link on this machine."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from kafila_sidecar.machine.handling import DEADLINE_S, Handling

P = ParamSpec("P")
T = TypeVar("T")


class CountingThread:
    """Instead of the MLX thread, to which one turn of each end goes."""

    def __init__(self) -> None:
        self.turns = 0

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.turns += 1
        return fn(*args, **kwargs)


class FailingThread:
    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        raise TimeoutError


async def test_handling_when_asked_then_measured_once_for_each_width() -> None:
    thread = CountingThread()
    handling = Handling(thread)
    small = await handling.entry({"hidden_size": 64})
    assert 0 < small["handling_s"] < DEADLINE_S
    turns = thread.turns
    assert turns > 0
    assert await handling.entry({"hidden_size": 64}) == small
    assert thread.turns == turns
    assert (await handling.entry({"hidden_size": 8192}))["handling_s"] > 0
    assert thread.turns == 2 * turns


async def test_handling_when_it_cant_be_measured_then_the_plan_leaves_it_out() -> None:
    assert await Handling(FailingThread()).entry({"hidden_size": 64}) == {}
