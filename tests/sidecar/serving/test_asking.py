"""What is passed on of an answer, whoever the head is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.serving.asking import AnswerPatience, answer
from kafila_sidecar.serving.epoch import Epoch
from kafila_sidecar.serving.intake.question import Question, Replies, Told
from kafila_sidecar.serving.succession import Succession

SAID = [
    pb.GenerateReply(headway=pb.Headway(doing="reading", tokens=1, of=2)),
    pb.GenerateReply(text="once"),
    pb.GenerateReply(done=True),
]


class Head:
    """Of one epoch that never ends; says the same to all."""

    async def present(self, deadline_s: float) -> Epoch:
        return cast(Epoch, self)

    @asynccontextmanager
    async def asked(self, question: Question) -> AsyncIterator[Replies]:
        self._left = iter(SAID)
        yield self

    async def next(self) -> Told:
        return Told(next(self._left))


@pytest.mark.parametrize("is_wanted", [True, False])
async def test_headway_when_nobody_asked_for_it_then_it_is_dropped(is_wanted: bool) -> None:
    question = Question(pb.GenerateRequest(tells_headway=is_wanted))
    told = [reply async for reply in answer(question, cast(Succession, Head()), AnswerPatience())]
    assert told == (SAID if is_wanted else SAID[1:])
