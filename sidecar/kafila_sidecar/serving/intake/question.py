"""A request where it was asked, with its answer so far: all that going on with it takes, at whatever head."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Protocol

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb

ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Told:
    """What a head tells of an answer at a time. The reply's text is what became certain with `tokens`, so whoever has
    the ids knows how much of the text was told; log probabilities may be told later than the ids they belong to."""

    reply: pb.GenerateReply
    tokens: Sequence[int] = ()
    scores: Sequence[ring_pb2.Score] = ()  # of these tokens, where log probabilities are asked for
    beginning: ring_pb2.Beginning | None = None  # with the first of each run


def interruption() -> pb.GenerateReply:
    """What is told while an answer waits for the ring."""
    return pb.GenerateReply(headway=pb.Headway(doing="interrupted"))


class Replies(Protocol):
    """An answer as its caller takes it, wherever it is made."""

    async def next(self) -> Told:
        """The next reply, the last one with `done`; raises what ended the answer, or interrupted it."""


@dataclass(slots=True)
class Question:
    """A request, and in `replay` how far its answer has come. asker: the member, where it came from another one."""

    request: pb.GenerateRequest
    replay: ring_pb2.Replay = field(default_factory=ring_pb2.Replay)
    id: bytes = field(default_factory=lambda: token_bytes(ID_BYTES))
    asker: str = ""
    _run_began: float | None = None  # when the present run began to read the prompt, and when its first token came
    _first_token: float | None = None

    @property
    def key(self) -> tuple[str, bytes]:
        """What no other question of the session has."""
        return self.asker, self.id

    @property
    def has_begun(self) -> bool:
        """Whether a head had it in its ring."""
        return bool(self.replay.beginning.prompt)

    def take(self, told: Told, now: float) -> None:
        """Adds what was told; `now` in seconds of any clock that does not jump."""
        replay = self.replay
        if told.beginning is not None:
            replay.beginning.CopyFrom(told.beginning)
            self._run_began = now
        if told.tokens:
            self._count_time(now)
            replay.answer.extend(told.tokens)
        replay.scores.extend(told.scores)
        del replay.scores[: len(told.reply.logprobs)]

    def interrupted(self) -> None:
        """The run is over and the answer is not."""
        if self._run_began is not None:
            self.replay.times += 1
        self._run_began = self._first_token = None

    def _count_time(self, now: float) -> None:
        """The first token of a run ends the prompt's time, or what replaying took, which counts as the answer's."""
        if self._first_token is not None:
            self.replay.output_s += now - self._first_token
        elif self._run_began is not None and not self.replay.answer:
            self.replay.prompt_s = now - self._run_began
        self._first_token = now
