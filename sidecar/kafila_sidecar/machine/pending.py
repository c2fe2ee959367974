"""Offers that were made to this machine's owner and not yet taken up. They lapse."""

import asyncio
from dataclasses import dataclass

from kafila_sidecar.errors import NotFound
from kafila_sidecar.session.join import Approach
from kafila_sidecar.weights.checkpoint import Checkpoint

OFFER_TTL_S = 300.0


@dataclass(frozen=True, slots=True)
class PendingJoin:
    """A proved code, with what joining needs."""

    approach: Approach
    checkpoint: Checkpoint | None  # None: the host has to describe it first
    memory_bytes: int  # the most that its owner lends; 0: what is usable
    code: str
    spare_bytes: int | None = None  # the most that may be fetched for the loss of others, where its owner said so


class PendingJoins:
    """By session id; a newer offer of the same session replaces the older."""

    def __init__(self, ttl_s: float = OFFER_TTL_S) -> None:
        self.ttl_s = ttl_s
        self._open: dict[str, tuple[PendingJoin, asyncio.TimerHandle]] = {}
        self._lapsing: set[asyncio.Task[None]] = set()

    async def keep(self, offer: PendingJoin) -> None:
        key = offer.approach.session.hex()
        await self._drop(key)
        timer = asyncio.get_running_loop().call_later(self.ttl_s, self._lapse, key)
        self._open[key] = (offer, timer)

    def take(self, session: str) -> PendingJoin:
        """The offer, which is nobody else's from now on.

        Raises:
            NotFound: it lapsed, or never was.
        """
        try:
            offer, timer = self._open.pop(session)
        except KeyError:
            raise NotFound("that offer has lapsed: type the code again") from None
        timer.cancel()
        return offer

    async def give_up(self, session: str) -> None:
        """Nobody needs the offer any more, if there is one."""
        await self._drop(session)

    async def close(self) -> None:
        for key in list(self._open):
            await self._drop(key)

    async def _drop(self, key: str) -> None:
        if key in self._open:
            await self.take(key).approach.abandon()

    def _lapse(self, key: str) -> None:
        task = asyncio.ensure_future(self._drop(key))
        self._lapsing.add(task)
        task.add_done_callback(self._lapsing.discard)
