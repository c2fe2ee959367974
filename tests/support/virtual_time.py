"""An event loop whose time passes only while everybody waits, and then at once."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

START_S = 1000.0
TURN_S = 1e-6  # each turn of the loop takes a moment, so that timers see time pass
MOST_TURNS = 2000  # in a row without waiting: a timer that stays due would keep a real machine busy

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs the real drivers on a simulated network; nothing in it may wait for a thread or a real socket."""

    def __init__(self) -> None:
        self.now = START_S
        super().__init__(_Leaping(self))

    def time(self) -> float:
        return self.now


class _Leaping(selectors.SelectSelector):
    """Instead of waiting, it moves the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._virtual = loop
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody in the simulation waits, and nothing is due")
        self._turns = 0 if timeout > 2 * TURN_S else self._turns + 1
        if self._turns > MOST_TURNS:
            raise RuntimeError("the simulation spins: something is due again and again")
        self._virtual.now += max(timeout, 0.0) + TURN_S
        return super().select(0)


def simulate(scene: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs a scene to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scene())
