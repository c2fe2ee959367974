"""Whether anything comes back in a stream, as long as something is sent in it."""

import asyncio
from collections.abc import Callable

PATIENCE_S = 1.0  # with nothing back for so long the relay is asked, which answers; then as long again


class Silence:
    """One stream's, from `begin` to `end`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, ask: Callable[[], None]) -> None:
        """`ask` sends something that the other side answers at once."""
        self._loop = loop
        self._ask = ask
        self._timer: asyncio.TimerHandle | None = None
        self._fell = asyncio.Event()
        self._runs = False
        self._has_asked = False
        self.heard_once = False

    def begin(self) -> None:
        """A new stream."""
        self.end()
        self._runs, self.heard_once = True, False
        self._fell.clear()

    def end(self) -> None:
        self._runs, self._has_asked = False, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def asked(self) -> None:
        """Something was sent."""
        if self._runs and self._timer is None:
            self._timer = self._loop.call_later(PATIENCE_S, self._on_timer)

    def heard(self) -> None:
        """Something came back."""
        self.heard_once, self._has_asked = True, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait(self) -> None:
        """Returns once nothing came back, to a question either."""
        await self._fell.wait()

    def _on_timer(self) -> None:
        self._timer = None
        if self._has_asked:
            self._fell.set()
            return
        self._has_asked = True
        self._ask()
        self.asked()
