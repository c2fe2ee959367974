"""How busy an engine is, told once a second while it has something to do."""

import asyncio
from collections.abc import Callable

EVERY_S = 1.0

Told = Callable[[float], None]


class Pulse:
    """Counts tokens, and tells how many a second there were: every second from the first sign of work on, until `idle`
    says that there is none, and then once more."""

    def __init__(self, *, tell: Told, idle: Callable[[], bool], every_s: float = EVERY_S) -> None:
        self._tell = tell
        self._idle = idle
        self._every_s = every_s
        self._tokens = 0
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def beat(self, tokens: int = 0) -> None:
        """There is something to do, and so many tokens are done."""
        self._tokens += tokens
        if self._timer is None:
            self._start()

    def stop(self) -> None:
        """Nothing more is told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        self._timer = loop.call_later(self._every_s, self._due)

    def _due(self) -> None:
        passed = asyncio.get_running_loop().time() - self._since
        tokens, self._tokens, self._timer = self._tokens, 0, None
        if self._idle():
            self._tell(0.0)
            return
        self._tell(tokens / passed)
        self._start()
