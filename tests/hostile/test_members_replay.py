"""An answer that goes on, made up by the member that asks for it: refused before anything is built of it, and however
long it is, others have their turns."""

import asyncio
from typing import Any, cast

import pytest

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.text.decoding import Decoding
from kafila_sidecar.runtime.text.stop import MOST_STOPS
from kafila_sidecar.runtime.text.vocabulary import Vocabulary
from kafila_sidecar.serving.intake.intake import Intake
from kafila_sidecar.serving.intake.question import Question
from kafila_sidecar.serving.intake.requests import TOKENS_AT_ONCE, RequestTable
from tests.hostile.test_prompts_bounds import Untouched

TOKENS = 4
CONTEXT = 4096
BEGINNING = ring_pb2.Beginning(prompt=[1, 2], seed=1)

MADE_UP = {
    "an answer without a prompt": ring_pb2.Replay(answer=[1]),
    "no token of the model": ring_pb2.Replay(answer=[TOKENS]),
    "a huge token": ring_pb2.Replay(answer=[(1 << 32) - 1]),
    "a huge answer": ring_pb2.Replay(answer=[1] * 1_000_000),
    "a huge answer to a prompt": ring_pb2.Replay(beginning=BEGINNING, answer=[1] * 1_000_000),
    "a huge prompt": ring_pb2.Replay(beginning=ring_pb2.Beginning(prompt=[1] * 1_000_000)),
    "a prompt of other tokens": ring_pb2.Replay(beginning=ring_pb2.Beginning(prompt=[TOKENS])),
    "time that is none": ring_pb2.Replay(beginning=BEGINNING, prompt_s=float("nan")),
    "time without end": ring_pb2.Replay(beginning=BEGINNING, output_s=float("inf")),
    "time before the beginning": ring_pb2.Replay(beginning=BEGINNING, output_s=-1.0),
}


def intake() -> Intake:
    vocabulary = Vocabulary(TOKENS, (), frozenset(), {}, Decoding.read(None, lambda _: "ab"))
    return Intake(text=Untouched(), vocabulary=vocabulary, context_tokens=CONTEXT)


@pytest.mark.parametrize("replay", MADE_UP.values(), ids=MADE_UP)
async def test_replay_when_no_run_can_have_told_it_then_refused_before_anything_is_built(
    replay: ring_pb2.Replay,
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await intake().prepare(pb.GenerateRequest(prompt="x"), replay)
    assert len(str(refused.value)) < 200


async def test_replay_when_it_is_as_long_as_the_context_then_others_have_their_turns_meanwhile() -> None:
    turns, stop = 0, ["ab" * 400 + str(number) for number in range(MOST_STOPS)]

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    table = RequestTable(intake())
    replay = ring_pb2.Replay(beginning=BEGINNING, answer=[1] * (CONTEXT - 10))
    question = Question(pb.GenerateRequest(prompt="x", options=pb.Options(stop=stop)), replay, asker="eve")
    task = asyncio.create_task(others())
    generation = await table.open(question)
    task.cancel()
    assert len(generation.answer) == CONTEXT - 10
    assert turns >= len(generation.answer) // TOKENS_AT_ONCE


async def test_questions_when_two_members_give_the_same_id_then_neither_gets_the_others_run() -> None:
    table = RequestTable(cast(Any, intake()))
    ids = bytes(16)
    replay = ring_pb2.Replay(beginning=BEGINNING)
    eve, ada = (Question(pb.GenerateRequest(prompt="x"), replay, ids, asker) for asker in ("eve", "ada"))
    run = await table.open(ada)
    assert table.former(eve) is None
    assert table.former(ada) is run
    assert (await table.open(eve)).replies is not run.replies
    assert table.former(ada) is run
