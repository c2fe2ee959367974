"""The requests of one session on its head, each from its asking to the end of its run here."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Exhausted
from kafila_sidecar.runtime.answer.pieces import Piece
from kafila_sidecar.runtime.shard.picking import TokenScore
from kafila_sidecar.serving.intake.answers import AnswerQueue, Speech
from kafila_sidecar.serving.intake.intake import Intake, PreparedRequest
from kafila_sidecar.serving.intake.question import Question, Told
from kafila_sidecar.serving.intake.scoring import ScoreLine, arrived, on_the_way
from kafila_sidecar.serving.intake.window import Window

TOKENS_AT_ONCE = 64  # of an answer that goes on: each may cost as many steps as there are stop strings
HEADWAY_PARTS = 20  # of a text that is read; far fewer lines without text than stock takes for a model that loops
MOST_REQUESTS = 1024  # running, waiting, and answered but not read to the end yet


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
    replies: AnswerQueue = field(init=False)
    is_over: bool = False  # no further token is wanted
    _untold: list[int] = field(default_factory=list)  # tokens that made no text certain yet
    _unsent: list[TokenScore] = field(default_factory=list)  # theirs
    _scores: ScoreLine = field(init=False)
    _window: Window = field(init=False)
    _decoded: int = 0  # characters, and those of them that stop strings let through
    _shown: int = 0
    _read: int = -1  # the last part of the text that was told as read

    def __post_init__(self) -> None:
        self._window = self.asked.limits.window(len(self.asked.prompt))
        self.replies = AnswerQueue(Speech(self.asked.framer, self.asked.read_calls))
        self._scores = ScoreLine(self.asked.spell)

    @property
    def tokens(self) -> Sequence[int]:
        """All that the caches of a ring have to have seen before the next token."""
        return self._window.of([*self.asked.prompt, *self.answer])

    @property
    def ran(self) -> Sequence[int]:
        """What they have seen, and the last token."""
        return [*self._window.of([*self.asked.prompt, *self.answer[:-1]]), *self.answer[-1:]]

    @property
    def has_moved(self) -> bool:
        """Whether with the last token others went, so that the ring has to see anew what is left."""
        return self._window.moves(self._total)

    @property
    def moves_next(self) -> bool:
        """Whether some will go with the next one."""
        return self._window.moves(self._total + 1)

    @property
    def keep(self) -> int:
        """How many at the beginning stay then."""
        return self._window.keep or 0

    @property
    def _total(self) -> int:
        return len(self.asked.prompt) + len(self.answer)

    @property
    def is_last(self) -> bool:
        """Whether the next token is the last one, whatever it is."""
        length = len(self.answer) + 1
        return bool(self.asked.limits.reason_to_stop(len(self.asked.prompt) + length, length))

    @property
    def left(self) -> int:
        """How many tokens the answer may yet get, before any others go."""
        return self.asked.limits.left(self.length, len(self.answer))

    @property
    def length(self) -> int:
        """Of what is left of prompt and answer so far, in tokens."""
        return self._total - self._window.gone(self._total)

    @property
    def takes_guesses(self) -> bool:
        """Whether several tokens may be picked at once: what a format allows is known for the next one only, and so are
        log probabilities."""
        return self.asked.held is None and self.asked.top is None

    async def allowed(self) -> bytes | None:
        """A bit for each id that the answer's format allows next; None: all. To be asked once for each token, while the
        ring computes.

        Raises: InvalidInput when finding out takes more than it may.
        """
        held = self.asked.held
        return None if held is None else await held.allowed(self.asked.reader.standing)

    async def replay(self, answer: Sequence[int], scores: Sequence[TokenScore] = ()) -> None:
        """Takes in what was told before: sampler, text, format and stop strings are then as if it had been picked here.
        Others have their turns meanwhile. `scores`: of the last tokens, which were not told with them."""
        ended = bool(answer) and answer[-1] in self.asked.ends
        scored = len(answer) - ended - len(scores)
        for at, token in enumerate(answer):
            if at % TOKENS_AT_ONCE == TOKENS_AT_ONCE - 1:
                await asyncio.sleep(0)
            self.asked.sampler.take(token)
            self._pieces_of(token, scores[at - scored] if scored <= at < scored + len(scores) else None)

    def begin(self) -> None:
        """Tells what the run begins with."""
        beginning = ring_pb2.Beginning(prompt=self.asked.prompt, seed=self.asked.sampler.seed)
        self.replies.put(Told(pb.GenerateReply(), beginning=beginning))

    def read(self, tokens: int, of: int) -> None:
        """Tells how many the ring has read, where that is asked for, at first and whenever a further part is read."""
        part = tokens * HEADWAY_PARTS // of
        if self.asked.request.tells_headway and part > self._read:
            self._read = part
            self.replies.put(Told(pb.GenerateReply(headway=pb.Headway(doing="reading", tokens=tokens, of=of))))

    def take(self, token: int, score: TokenScore | None = None) -> bool:
        """Adds a token, and tells the caller its text as far as that is certain. Whether another one is wanted.

        Raises: InvalidInput for a token that the answer's format does not allow.
        """
        pieces = self._pieces_of(token, score)
        self._untold.append(token)
        if score is not None and token not in self.asked.ends:
            self._unsent.append(score)
        if pieces:
            self._tell(pb.GenerateReply(logprobs=self._scores.due(self._shown)), pieces)
        return not self.is_over

    def take_all(self, tokens: Sequence[int], score: TokenScore | None = None) -> int:
        """Adds tokens one after another, as long as another one is wanted; how many those were. `score`: of the only
        one.

        Raises: InvalidInput as `take`.
        """
        for taken, token in enumerate(tokens, 1):
            if not self.take(token, score):
                return taken
        return len(tokens)

    def finish(self, done: pb.GenerateReply) -> str:
        """Tells what was held back, with `done`, which gets the reason too; "stop" or "length"."""
        asked = self.asked
        last = asked.stops.feed(asked.text.finish()) + asked.stops.finish()
        self._shown += len(last)
        done.logprobs.extend(self._scores.due(self._shown) if asked.stops.stopped else self._scores.rest())
        is_whole = asked.held is not None and asked.held.is_over
        is_stopped = self.answer[-1] in asked.ends or asked.stops.stopped or is_whole
        if asked.request.tells_context:
            done.context.extend(asked.prompt)
            done.context.extend(token for token in self.answer if token not in asked.ends)
        done.done, done.done_reason = True, pb.DONE_REASON_STOP if is_stopped else pb.DONE_REASON_LENGTH
        self._tell(done, [*asked.reader.feed(last), *asked.reader.finish()])
        return "stop" if is_stopped else "length"

    def finish_embedding(self, embedding: Sequence[float], done: pb.GenerateReply) -> str:
        """Tells what was made of the prompt where no answer is wanted; "stop"."""
        done.embedding.extend(embedding)
        done.done, done.done_reason = True, pb.DONE_REASON_STOP
        self.replies.put(Told(done))
        return "stop"

    def _pieces_of(self, token: int, score: TokenScore | None) -> list[Piece]:
        """What is certain with one more token."""
        asked = self.asked
        self.answer.append(token)
        if asked.held is not None:
            asked.held.take(token, asked.reader.standing)
        if token in asked.ends:
            self.is_over = True
            return []
        if score is not None:
            self._scores.add(self._decoded, token, score)
        text = asked.text.add(token)
        self._decoded += len(text)
        shown = asked.stops.feed(text)
        self._shown += len(shown)
        is_full = asked.limits.reason_to_stop(len(asked.prompt) + len(self.answer), len(self.answer))
        is_whole = asked.held is not None and asked.held.is_over
        self.is_over = asked.stops.stopped or is_full or is_whole
        return asked.reader.feed(shown)

    def _tell(self, reply: pb.GenerateReply, pieces: Sequence[Piece]) -> None:
        tokens, self._untold = self._untold, []
        scores, self._unsent = on_the_way(self._unsent), []
        self.replies.put(Told(reply, tokens, scores), pieces)


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

    def number(self) -> int:
        """Of a further sequence for a run that needs one."""
        return next(self._numbers)

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
                await generation.replay(question.replay.answer, arrived(question.replay.scores))
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
