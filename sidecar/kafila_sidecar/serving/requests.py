"""The requests of one session on its head, from their asking to their end. The table outlives every epoch: what stands
here of a request is all that going on with its answer takes."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Exhausted
from kafila_sidecar.serving.intake import Intake, PreparedRequest

MOST_REQUESTS = 1024  # running, waiting, and answered but not read to the end yet


class Replies(Protocol):
    """An answer as its caller takes it, wherever it is made."""

    async def next(self) -> pb.GenerateReply:
        """The next reply, the last one with `done`; raises what ended the answer."""


class AnswerQueue:
    """One answer on its way from the engine, which never waits for a slow caller, to the caller.

    It never holds more replies than the context has tokens.
    """

    def __init__(self) -> None:
        self._replies: asyncio.Queue[pb.GenerateReply | Exception] = asyncio.Queue()

    def put(self, reply: pb.GenerateReply) -> None:
        self._replies.put_nowait(reply)

    def fail(self, error: Exception) -> None:
        """Nothing more comes, and why."""
        self._replies.put_nowait(error)

    async def next(self) -> pb.GenerateReply:
        """See `Replies`."""
        reply = await self._replies.get()
        if isinstance(reply, Exception):
            raise reply
        return reply


@dataclass(slots=True)
class Generation:
    """A request with its answer so far, an end token included."""

    number: int
    asked: PreparedRequest
    answer: list[int] = field(default_factory=list)
    replies: AnswerQueue = field(default_factory=AnswerQueue)

    @property
    def tokens(self) -> Sequence[int]:
        """All that the caches of a ring have to have seen before the next token."""
        return [*self.asked.prompt, *self.answer]

    def take(self, token: int) -> bool:
        """Adds a token, and tells the caller its text as far as that is certain. Whether another one is wanted."""
        self.answer.append(token)
        if token in self.asked.ends:
            return False
        self._tell(self.asked.stops.feed(self.asked.text.add(token)))
        is_full = self.asked.limits.reason_to_stop(len(self.asked.prompt) + len(self.answer), len(self.answer))
        return not (self.asked.stops.stopped or is_full)

    def finish(self) -> str:
        """Tells what was held back; "stop" or "length"."""
        asked = self.asked
        self._tell(asked.stops.feed(asked.text.finish()) + asked.stops.finish())
        return "stop" if self.answer[-1] in asked.ends or asked.stops.stopped else "length"

    def _tell(self, text: str) -> None:
        if text:
            self.replies.put(pb.GenerateReply(text=self.asked.framer.content(text)))


class RequestTable:
    """Takes requests in, and has them by number until their callers have all of the answer or have gone."""

    def __init__(self, intake: Intake, *, most: int = MOST_REQUESTS) -> None:
        self._intake = intake
        self._most = most
        self._opening = 0
        self._generations: dict[int, Generation] = {}
        self._numbers = count(1)

    async def open(self, request: pb.GenerateRequest) -> Generation:
        """A request, ready to be answered.

        Raises:
            InvalidInput: options or prompt make no sense, or the prompt is too long and may not be cut.
            Exhausted: the table is full.
        """
        if len(self) >= self._most:
            raise Exhausted(f"{len(self)} requests are being answered already: try again later")
        self._opening += 1
        try:
            asked = await self._intake.prepare(request)
        finally:
            self._opening -= 1
        generation = Generation(next(self._numbers), asked)
        self._generations[generation.number] = generation
        return generation

    def remove(self, number: int) -> None:
        self._generations.pop(number, None)

    def close(self) -> None:
        """No more requests."""
        self._intake.close()

    def __len__(self) -> int:
        return len(self._generations) + self._opening
