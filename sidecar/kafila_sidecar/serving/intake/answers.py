"""One answer on its way from the engine to its caller."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.runtime.answer.calls import Call
from kafila_sidecar.runtime.answer.pieces import CallText, Content, Piece
from kafila_sidecar.serving.intake.prompt import Framer
from kafila_sidecar.serving.intake.question import Told

ReadCalls = Callable[[str], Awaitable[Sequence[Call]]]
"""The calls of tools in a part of an answer; none where it is no call."""


async def no_calls(text: str) -> Sequence[Call]:
    """Where none are looked for."""
    return ()


@dataclass(frozen=True, slots=True)
class Speech:
    """Pieces of an answer made text, for one prompt. What was meant for a call and is none is content."""

    framer: Framer
    read_calls: ReadCalls

    async def text_of(self, pieces: Sequence[Piece]) -> str:
        return "".join([await self._said(piece) for piece in pieces])

    async def _said(self, piece: Piece) -> str:
        if not isinstance(piece, CallText):
            return self.framer.said(piece)
        try:
            calls = await self.read_calls(piece.text)
        except KafilaError:
            calls = ()
        return self.framer.calls(calls) if calls else self.framer.said(Content(piece.whole))


class AnswerQueue:
    """What the engine tells, which never waits for a slow caller.

    It never holds more replies than an answer may have tokens.
    """

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._replies: asyncio.Queue[tuple[Told, Sequence[Piece]] | Exception] = asyncio.Queue()

    def put(self, told: Told, pieces: Sequence[Piece] = ()) -> None:
        """`pieces`: what becomes the reply's text."""
        self._replies.put_nowait((told, pieces))

    def fail(self, error: Exception) -> None:
        """Nothing more comes, and why."""
        self._replies.put_nowait(error)

    async def next(self) -> Told:
        """See `Replies`."""
        reply = await self._replies.get()
        if isinstance(reply, Exception):
            raise reply
        told, pieces = reply
        told.reply.text = await self._speech.text_of(pieces)
        return told
