"""What a device computes while the thread that gave it the work goes on with other work."""

from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HandedOver(Generic[T]):
    """What a call of the MLX thread returns that has given its work to the device. finish: waits for it, on any thread,
    and evaluates nothing that was not handed over."""

    finish: Callable[[], T]


class WaitingThread:
    """Finishes what was handed over, in that order, on a thread of its own."""

    def __init__(self, name: str) -> None:
        self._left: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = Thread(target=self._serve, name=name, daemon=True)

    def put(self, finish: Callable[[], None]) -> None:
        """It must not raise."""
        if self._thread.ident is None:
            self._thread.start()
        self._left.put(finish)

    def close(self, most_s: float) -> bool:
        """Once all is finished, if that is within so long."""
        self._left.put(None)
        if self._thread.ident is not None:
            self._thread.join(most_s)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        while (finish := self._left.get()) is not None:
            finish()
            del finish
