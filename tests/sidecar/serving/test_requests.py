"""Requests on the head: what stands in the table is all that going on with an answer takes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import Exhausted, InvalidInput, Unavailable
from kafila_sidecar.runtime.text.stop import StopStrings
from kafila_sidecar.serving.intake.intake import Intake, PreparedRequest
from kafila_sidecar.serving.intake.limits import AnswerLimits
from kafila_sidecar.serving.intake.prompt import Framer
from kafila_sidecar.serving.intake.question import Question
from kafila_sidecar.serving.intake.requests import Generation, RequestTable

END = 0
PROMPT = (7, 8, 9)


class Letters:
    """Text as the detokenizer gives it: token 1 is "a", 2 is "b"; the last letter is held back until the next."""

    def __init__(self) -> None:
        self._held = ""

    def add(self, token: int) -> str:
        certain, self._held = self._held, chr(ord("a") + token - 1)
        return certain

    def finish(self) -> str:
        return self._held


def prepared(*, stop: Sequence[str] = (), context: int = 100, most: int | None = None) -> PreparedRequest:
    return PreparedRequest(
        request=pb.GenerateRequest(prompt="once"),
        prompt=PROMPT,
        limits=AnswerLimits(context, most),
        sampler=cast(Any, None),
        text=cast(Any, Letters()),
        stops=StopStrings(stop),
        framer=Framer(framed=False),
        ends=frozenset({END}),
        began=0.0,
    )


async def answered(asked: PreparedRequest, tokens: Sequence[int]) -> tuple[str, str, int]:
    """The text and why it ended, when an engine picks these tokens as long as one is wanted; and how many it took."""
    generation = Generation(1, asked)
    for token in tokens:
        if not generation.take(token):
            break
    reason = generation.finish(pb.GenerateReply())
    text, told = "", list[int]()
    while True:
        said = await generation.replies.next()
        text += said.reply.text
        told += said.tokens
        if said.reply.done:
            break
    assert told == generation.answer
    assert generation.tokens == [*PROMPT, *tokens[: len(generation.answer)]]
    return text, reason, len(generation.answer)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (prepared(), ("abcd", "stop", 5)),
        (prepared(most=2), ("ab", "length", 2)),
        (prepared(most=1), ("a", "length", 1)),
        (prepared(context=6), ("abc", "length", 3)),
        (prepared(stop=["bc"]), ("a", "stop", 4)),
        (prepared(stop=["cx"]), ("abcd", "stop", 5)),
        (prepared(stop=["b"], most=2), ("a", "stop", 2)),
    ],
    ids=["end token", "two", "one", "context", "stop string", "no stop string", "stop string in what was held back"],
)
async def test_generation_when_tokens_come_then_text_and_reason_are_those_of_the_request(
    asked: PreparedRequest, wanted: tuple[str, str, int]
) -> None:
    assert await answered(asked, [1, 2, 3, 4, END, 5]) == wanted


@pytest.mark.parametrize(("asked_for", "told"), [(True, [*PROMPT, 1, 2]), (False, [])])
async def test_generation_when_its_ids_are_asked_for_then_the_last_reply_has_them_without_the_end(
    asked_for: bool, told: list[int]
) -> None:
    generation = Generation(1, replace(prepared(), request=pb.GenerateRequest(tells_context=asked_for)))
    for token in (1, 2, END):
        generation.take(token)
    last = pb.GenerateReply()
    generation.finish(last)
    assert list(last.context) == told


async def test_replies_when_the_answer_fails_then_what_was_said_before_comes_first() -> None:
    generation = Generation(1, prepared())
    generation.take(1)
    generation.take(2)
    generation.replies.fail(Unavailable("bob was lost"))
    assert (await generation.replies.next()).reply.text == "a"
    with pytest.raises(Unavailable, match="bob"):
        await generation.replies.next()


class Desk:
    """Prepares requests when it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.refuses = False
        self.begun = 0

    async def prepare(self, request: pb.GenerateRequest, replay: ring_pb2.Replay) -> PreparedRequest:
        self.begun += 1
        await self.may.wait()
        if self.refuses:
            raise InvalidInput("no")
        return prepared()


async def test_table_when_full_then_refused_before_any_work_and_later_taken() -> None:
    desk = Desk()
    table = RequestTable(cast(Intake, desk), most=2)
    askers = [Question(pb.GenerateRequest(), asker=name) for name in ("ada", "bob")]  # one's own take turns
    opening = [asyncio.ensure_future(table.open(question)) for question in askers]
    await asyncio.sleep(0)
    for _ in range(2):  # while they are prepared, and when they stand in it
        with pytest.raises(Exhausted, match="2 requests"):
            await table.open(Question(pb.GenerateRequest()))
        assert desk.begun == 2
        desk.may.set()
        first, second = await asyncio.gather(*opening)
    table.remove(first)
    third = await table.open(Question(pb.GenerateRequest()))
    assert len({first.number, second.number, third.number}) == 3


async def test_table_when_a_request_is_refused_then_it_takes_no_place() -> None:
    desk = Desk()
    desk.refuses = True
    desk.may.set()
    table = RequestTable(cast(Intake, desk), most=1)
    for _ in range(3):
        with pytest.raises(InvalidInput):
            await table.open(Question(pb.GenerateRequest()))
    assert len(table) == 0
