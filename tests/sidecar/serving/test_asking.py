"""What is passed on of an answer, whoever the head is; and what is told while there is no ring for it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.serving.asking import AnswerPatience, answer
from kafila_sidecar.serving.intake.question import Question, Told
from kafila_sidecar.serving.ring import Interrupted
from kafila_sidecar.serving.succession import Succession
from kafila_sidecar.session.coordination.effects import Fault

SAID = [
    pb.GenerateReply(headway=pb.Headway(doing="reading", tokens=1, of=2)),
    pb.GenerateReply(text="once"),
    pb.GenerateReply(done=True),
]


LOST = Fault("bob", "UNAVAILABLE", "bob was lost")


class Telling:
    """An epoch in which each answer is there as soon as it is asked for, but breaks off so many times before."""

    def __init__(self, replies: Sequence[pb.GenerateReply] = SAID[-1:], interruptions: int = 0) -> None:
        self._interruptions = interruptions
        self._replies = iter(replies)
        self.proposal = SimpleNamespace(epoch=1)

    @asynccontextmanager
    async def asked(self, _: Question) -> AsyncIterator["Telling"]:
        yield self

    async def next(self) -> Told:
        if self._interruptions:
            self._interruptions -= 1
            raise Interrupted("a hop broke")
        return Told(next(self._replies))


@pytest.mark.parametrize("is_wanted", [True, False])
async def test_headway_when_nobody_asked_for_it_then_it_is_dropped(is_wanted: bool) -> None:
    epochs = Succession()
    epochs.begin(cast(Any, Telling(SAID)))
    question = Question(pb.GenerateRequest(tells_headway=is_wanted))
    assert [reply async for reply in answer(question, epochs, AnswerPatience())] == (SAID if is_wanted else SAID[1:])


@pytest.mark.parametrize("tells", [True, False])
async def test_answer_when_asked_between_two_epochs_then_it_says_that_it_waits_for_the_ring_if_wanted(
    tells: bool,
) -> None:
    epochs = Succession()
    epochs.end(LOST)
    replies = answer(Question(pb.GenerateRequest(tells_headway=tells)), epochs, AnswerPatience())
    if tells:
        assert (await anext(replies)).headway.doing == "interrupted"
    epochs.begin(cast(Any, Telling()))
    assert [reply.done async for reply in replies] == [True]


@pytest.mark.parametrize("times", [0, 1, 2])
async def test_answer_when_it_breaks_off_then_it_says_each_time_that_it_waits_for_the_ring(times: int) -> None:
    epochs = Succession()
    epochs.begin(cast(Any, Telling(interruptions=times)))
    patience = AnswerPatience(first_pause_s=0.0, give_way_s=0.0)
    replies = answer(Question(pb.GenerateRequest(tells_headway=True)), epochs, patience)
    assert [reply.headway.doing async for reply in replies] == ["interrupted"] * times + [""]
