"""The sequences that the ring holds for one epoch's head: those that run, and those that are kept for what may come."""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.keeping.kept import Beginning, Kept, KeptSequences
from kafila_sidecar.serving.ring import Ring
from kafila_sidecar.serving.running.headwork import HeadWork


class SequencePlaces:
    """Never more than `most` at once; a kept one makes room first, wherever a stage might see both."""

    def __init__(self, *, work: HeadWork, ring: Ring, most: int, forgets: bool) -> None:
        """forgets: as of `KeptSequences`."""
        self._work = work
        self._ring = ring
        self._forgets = forgets
        self._kept = KeptSequences(most=most, forgets=forgets)
        self._running: set[int] = set()
        self._freeing: set[asyncio.Task[None]] = set()
        self._is_over = False
        ring.broke = self._lost

    @property
    def resting(self) -> int:
        """How many are kept."""
        return len(self._kept)

    def enter(self, number: int, asker: str, tokens: Sequence[int]) -> Beginning:
        """Where a request with these tokens begins: with a kept sequence, or with one of its own number."""
        begins = self._kept.take(asker, tokens, running=len(self._running)) or Beginning(number)
        self._ring.goes_on(begins.sequence, begins.tokens)
        self._running.add(begins.sequence)
        self._work.enter()
        return begins

    async def ready(self, begins: Beginning) -> None:
        """Returns once the sequence stands where it begins, and what had to go for it is on its way out."""
        await self._free_soon(self._kept.make_room(running=len(self._running)))
        if begins.tokens:
            await self._ring.settled(begins.sequence)
            await self._work.rewind(begins.sequence, begins.tokens)

    async def restart(self, begins: Beginning, number: int, *, keep: int) -> Beginning:
        """The sequence goes on from its first `keep` tokens; where it can't forget what followed them, one of this
        number begins in its place."""
        if self._forgets and keep:
            await self._work.rewind(begins.sequence, keep)
            return Beginning(begins.sequence, keep)
        await self._free_soon([begins.sequence])
        self._running.discard(begins.sequence)
        self._running.add(number)
        return Beginning(number)

    async def leave(self, sequence: int, *, asker: str, tokens: Sequence[int], last: HiddenState | None) -> None:
        """It runs no longer, and is kept if that is worth it and can be; else every stage frees it. tokens: what it has
        seen, and none where that is not known; last: their last one's state, where only the head has that yet."""
        await self._put_by(sequence, asker, self._taken(sequence, tokens, last))

    async def break_off(self, sequence: int, *, asker: str, tokens: Sequence[int]) -> None:
        """It runs no longer, in whatever midst it was. As much of it is kept as every stage has or will have; where
        caches can't forget what one of them has beyond that, none. tokens: all that it was to see."""
        await self._put_by(sequence, asker, self._sent(sequence, tokens))

    async def close(self) -> None:
        """Frees all that are kept; none is kept any more."""
        self._is_over = True
        await asyncio.gather(self._free_soon(self._kept.give_up()), *self._freeing)

    async def _put_by(self, sequence: int, asker: str, taken: Awaitable[Sequence[int]]) -> None:
        self._work.leave(sequence)
        try:
            is_kept = await self._keep(Kept(sequence, asker, await taken))
        finally:
            self._running.discard(sequence)
        if is_kept:
            await self._ring.rest(sequence)

    async def _keep(self, one: Kept) -> bool:
        """Whether it is kept; where it is not worth it, or can't be, it is freed."""
        is_kept = not self._is_over and self._ring.has(one.sequence) and self._kept.keep(one)
        if not is_kept:
            await self._free(one.sequence)
        return is_kept

    def _lost(self) -> None:
        """The other stages have forgotten every sequence."""
        self._free_soon(self._kept.give_up())

    async def _taken(self, sequence: int, tokens: Sequence[int], last: HiddenState | None) -> Sequence[int]:
        """What all stages have of it. Where caches can't forget, none may have more than another."""
        if self._forgets or last is None:
            return tokens[:-1]
        with suppress(KafilaError):
            await self._ring.send(sequence, last, wants_output=False)
            return tokens
        return ()

    async def _sent(self, sequence: int, tokens: Sequence[int]) -> Sequence[int]:
        """What every stage has of it, or will have."""
        return tokens[: self._ring.sent(sequence)] if self._forgets else ()

    def _free_soon(self, sequences: Sequence[int]) -> "asyncio.Future[None]":
        """In a task of its own, which nobody's cancelling ends."""
        task = asyncio.create_task(self._free_all(sequences), name="free kept sequences")
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)
        return asyncio.shield(task)

    async def _free_all(self, sequences: Sequence[int]) -> None:
        for sequence in sequences:
            await self._free(sequence)

    async def _free(self, sequence: int) -> None:
        await self._work.release(sequence)
        await self._ring.release(sequence)
