"""One answer that is held to a format, with what may come before and between: the format is for content alone."""

import asyncio
from collections.abc import Iterable

from kafila_sidecar.runtime.answer.pieces import Standing
from kafila_sidecar.runtime.constraint.constraint import Constraint


class HeldAnswer:
    """Follows one answer, token by token."""

    def __init__(self, constraint: Constraint, *, opens: int | None, calls: int | None, ends: Iterable[int]) -> None:
        """opens, calls: the tokens that begin a thought and a call, where content may begin as well. ends: those that
        end an answer, which one that has called a tool may do without content."""
        self._constraint = constraint
        self._calls = calls
        self._ends = frozenset(ends)
        self._instead = {token for token in (opens, calls) if token is not None}

    @property
    def is_over(self) -> bool:
        """Whether the content is whole."""
        return self._constraint.is_over

    async def allowed(self, standing: Standing) -> bytes | None:
        """A bit for each id that may come next, the lowest first; None: all.

        Raises: InvalidInput when finding out takes more than it may.
        """
        if standing is Standing.FREE:
            return None
        bits = await asyncio.to_thread(self._constraint.allowed)
        return _with(bits, self._instead) if standing is Standing.BEFORE and self._instead else bits

    def take(self, token: int, standing: Standing) -> None:
        """A token, and where the answer stood before it.

        Raises: InvalidInput for one that the format doesn't allow.
        """
        if standing is Standing.FREE or token in self._ends:
            return
        if standing is Standing.BEFORE and token in self._instead:
            self._instead.discard(token)  # one thought; of calls there may be several
            if token == self._calls:
                self._instead = {token, *self._ends}
            return
        self._constraint.take(token)


def _with(bits: bytes, tokens: Iterable[int]) -> bytes:
    made = bytearray(bits)
    for token in tokens:
        made[token // 8] |= 1 << token % 8
    return bytes(made)
