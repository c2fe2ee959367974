"""The requests of one session on its head, each from its asking to the end of its run here."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Exhausted
from kafila_sidecar.serving.intake.intake import Intake, PreparedRequest
from kafila_sidecar.serving.intake.question import Question, Told

TOKENS_AT_ONCE = 64  # of an answer that goes on: each may cost as many steps as there are stop strings
MOST_REQUESTS = 1024  # running, waiting, and answered but not read to the end yet


class AnswerQueue:
    """One answer on its way from the engine, which never waits for a slow caller, to the caller.

    It never holds more replies than the context has tokens.
    """

    def __init__(self) -> None:
        self._replies: asyncio.Queue[Told | Exception] = asyncio.Queue()

    def put(self, told: Told) -> None:
        self._replies.put_nowait(told)

    def fail(self, error: Exception) -> None:
        """Nothing more comes, and why."""
        self._replies.put_nowait(error)

    async def next(self) -> Told:
        """See `Replies`."""
        reply = await self._replies.get()
        if isinstance(reply, Exception):
            raise reply
        return reply


@dataclass(slots=True)
class Generation:
    """One run of a request: its answer so far, an end token included, and its state in words.

    Whatever tokens it has when it begins were told by a run before: `replay` takes them in and says nothing. What the
    caches of a ring then lack is `tokens`, as for a prompt.
    """

    number: int
    asked: PreparedRequest
    key: tuple[str, bytes] = ("", b"")  # of the question
    answer: list[int] = field(default_factory=list)
    replies: AnswerQueue = field(default_factory=AnswerQueue)
    is_over: bool = False  # no further token is wanted
    _untold: list[int] = field(default_factory=list)  # tokens that made no text certain yet

    @property
    def tokens(self) -> Sequence[int]:
        """All that the caches of a ring have to have seen before the next token."""
        return [*self.asked.prompt, *self.answer]

    @property
    def is_last(self) -> bool:
        """Whether the next token is the last one, whatever it is."""
        length = len(self.answer) + 1
        return bool(self.asked.limits.reason_to_stop(len(self.asked.prompt) + length, length))

    async def replay(self, answer: Sequence[int]) -> None:
        """Takes in what was told before: sampler, text and stop strings are then as if it had been picked here. Others
        have their turns meanwhile."""
        for at, token in enumerate(answer, 1):
            if at % TOKENS_AT_ONCE == 0:
                await asyncio.sleep(0)
            self.asked.sampler.take(token)
            self._framed(self._text_of(token))

    def begin(self) -> None:
        """Tells what the run begins with."""
        beginning = ring_pb2.Beginning(prompt=self.asked.prompt, seed=self.asked.sampler.seed)
        self.replies.put(Told(pb.GenerateReply(), beginning=beginning))

    def take(self, token: int) -> bool:
        """Adds a token, and tells the caller its text as far as that is certain. Whether another one is wanted."""
        text = self._framed(self._text_of(token))
        self._untold.append(token)
        if text:
            self._tell(pb.GenerateReply(text=text))
        return not self.is_over

    def finish(self, done: pb.GenerateReply) -> str:
        """Tells what was held back, with `done`, which gets the reason too; "stop" or "length"."""
        asked = self.asked
        done.text = self._framed(asked.stops.feed(asked.text.finish()) + asked.stops.finish())
        is_stopped = self.answer[-1] in asked.ends or asked.stops.stopped
        done.done, done.done_reason = True, pb.DONE_REASON_STOP if is_stopped else pb.DONE_REASON_LENGTH
        self._tell(done)
        return "stop" if is_stopped else "length"

    def _text_of(self, token: int) -> str:
        """The text that is certain with one more token."""
        asked = self.asked
        self.answer.append(token)
        if token in asked.ends:
            self.is_over = True
            return ""
        text = asked.stops.feed(asked.text.add(token))
        is_full = asked.limits.reason_to_stop(len(asked.prompt) + len(self.answer), len(self.answer))
        self.is_over = asked.stops.stopped or is_full
        return text

    def _framed(self, text: str) -> str:
        return self.asked.framer.content(text) if text else ""

    def _tell(self, reply: pb.GenerateReply) -> None:
        tokens, self._untold = self._untold, []
        self.replies.put(Told(reply, tokens))


class RequestTable:
    """Takes requests in, and has them until their callers have all of the answer or have gone. It outlives the epochs,
    so that no two runs in a session have one number."""

    def __init__(self, intake: Intake, *, most: int = MOST_REQUESTS) -> None:
        self._intake = intake
        self._most = most
        self._opening = 0
        self._entering: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._generations: dict[int, Generation] = {}
        self._latest: dict[tuple[str, bytes], Generation] = {}  # run of each question
        self._numbers = count(1)

    async def open(self, question: Question) -> Generation:
        """A request, ready to be answered from where its answer stands. Those of one member get ready in turns, so that
        others have theirs.

        Raises:
            InvalidInput: options or prompt make no sense, or the prompt is too long and may not be cut.
            Exhausted: the table is full.
        """
        if len(self) >= self._most:
            raise Exhausted(f"{len(self)} requests are being answered already: try again later")
        self._opening += 1
        try:
            async with self._entering[question.asker]:
                asked = await self._intake.prepare(question.request, question.replay)
                generation = Generation(next(self._numbers), asked, question.key)
                await generation.replay(question.replay.answer)
        finally:
            self._opening -= 1
        self._generations[generation.number] = self._latest[question.key] = generation
        return generation

    def former(self, question: Question) -> Generation | None:
        """The run that a question has here already."""
        return self._latest.get(question.key)

    @property
    def unfinished(self) -> Sequence[Generation]:
        """Those that want a further token, the oldest first."""
        return [generation for generation in self._generations.values() if not generation.is_over]

    def remove(self, generation: Generation) -> None:
        self._generations.pop(generation.number, None)
        if self._latest.get(generation.key) is generation:
            del self._latest[generation.key]

    def close(self) -> None:
        """No more requests."""
        self._intake.close()

    def __len__(self) -> int:
        return len(self._generations) + self._opening
