"""The epochs of one member, one after another, and who waits for the next."""

import asyncio
from collections.abc import Callable

from kafila_sidecar.errors import TimedOut, from_code
from kafila_sidecar.serving.epoch import Epoch
from kafila_sidecar.session.coordination.effects import Fault

NOT_READY = Fault("", "UNAVAILABLE", "the session is not ready yet")


class Succession:
    """At most one epoch is served at a time; between two there is a fault, which ended the one before."""

    def __init__(self) -> None:
        self.epoch: Epoch | None = None
        self.fault = NOT_READY  # while there is no epoch
        self._is_closed = False
        self._changed = asyncio.Event()

    @property
    def is_between(self) -> bool:
        """Whether one has ended and the next is to come."""
        return self.epoch is None and not self._is_closed and self.fault is not NOT_READY

    def begin(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self._change()

    def end(self, fault: Fault) -> Epoch | None:
        """The epoch that was served until now; another one is to come."""
        epoch, self.epoch, self.fault = self.epoch, None, fault
        self._change()
        return epoch

    def close(self, fault: Fault) -> Epoch | None:
        """The same, and none is to come."""
        self._is_closed = True
        return self.end(fault)

    def check(self) -> None:
        """Raises the fault, as a KafilaError, of a session that is over or not ready yet: no epoch is waited for."""
        if self.epoch is None and (self._is_closed or self.fault is NOT_READY):
            raise from_code(self.fault.code, self.fault.sentence)

    async def present(self, deadline_s: float) -> Epoch:
        """The epoch, or the next one to come.

        Raises:
            KafilaError: see `check`.
            TimedOut: none came within the deadline; in words who was lost.
        """
        self.check()
        if await self._until(lambda: self.epoch is not None or self._is_closed, deadline_s):
            self.check()
            assert self.epoch is not None
            return self.epoch
        raise TimedOut(
            f"{self.fault.sentence}; the others did not go on without it within {deadline_s / 60:.0f} minutes, so this"
            " answer ends here: ask again when the session is ready"
        )

    async def serving(self, number: int, deadline_s: float) -> Epoch | None:
        """The epoch of this number or a later one; None if it did not come within the deadline."""
        is_there = await self._until(lambda: self.epoch is not None and self.epoch.proposal.epoch >= number, deadline_s)
        return self.epoch if is_there else None

    async def replaced(self, epoch: Epoch, deadline_s: float) -> None:
        """Returns when this one is served no longer, or after the deadline."""
        await self._until(lambda: self.epoch is not epoch, deadline_s)

    async def _until(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        try:
            async with asyncio.timeout(deadline_s):
                while not condition():
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
