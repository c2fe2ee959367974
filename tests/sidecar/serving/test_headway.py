"""How far an answer is before its text, told to who asks for it, at the head and elsewhere."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.serving.engine import EngineLimits
from tests.sidecar.serving.stages import LIMITS, NAMES, StageParty, answer, ask, party

pytestmark = pytest.mark.mlx

CHUNK = 16
PROMPT = "it was the caravan of a merchant who never came back " * 3


@pytest.fixture
async def two(tiny: Path, tmp_path: Path) -> AsyncIterator[StageParty]:
    limits = replace(LIMITS, engine=EngineLimits(prefill_chunk_tokens=CHUNK))
    async with party(tiny, tmp_path, *NAMES[:2], limits=limits) as made:
        await made.serve((0, 2, 6), NAMES[:2], concurrency=1)
        yield made


def following(prompt: str, tokens: int = 4) -> pb.GenerateRequest:
    asked = ask(prompt, num_predict=tokens)
    asked.tells_headway = True
    return asked


async def told(made: StageParty, at: str, asked: pb.GenerateRequest) -> list[pb.GenerateReply]:
    return [reply async for reply in made[at].stage.generate(asked)]


@pytest.mark.parametrize("at", ["ada", "bob"])
async def test_reading_when_it_takes_several_chunks_then_told_as_it_comes_and_only_to_who_asks(
    two: StageParty, at: str
) -> None:
    replies = await told(two, at, following(PROMPT))
    updates = [reply.headway for reply in replies if reply.HasField("headway")]
    assert updates == [reply.headway for reply in replies[: len(updates)]]  # before all text
    read = [update.tokens for update in updates]
    assert {(update.doing, update.of) for update in updates} == {("reading", len(PROMPT))}
    assert read == [*range(0, len(PROMPT) - 1, CHUNK), len(PROMPT) - 1]
    text, _ = await answer(two[at], ask(PROMPT, num_predict=4))
    assert "".join(reply.text for reply in replies) == text
    again = await told(two, at, ask(PROMPT + "then", num_predict=4))
    assert not any(reply.HasField("headway") for reply in again)


async def test_reading_when_the_ring_is_planned_anew_midway_then_said_and_the_text_is_the_same(
    two: StageParty,
) -> None:
    expected, _ = await answer(two["ada"], ask(PROMPT, num_predict=60))
    asked, text = two["bob"].stage.generate(following(PROMPT, 60)), ""
    while not text:
        text += (await anext(asked)).text
    await two.stop()
    await two.serve((0, 4, 6), NAMES[:2], concurrency=1)
    rest = [reply async for reply in asked]
    assert text + "".join(reply.text for reply in rest) == expected
    doing = [reply.headway.doing for reply in rest if reply.HasField("headway")]
    assert (doing[0], doing[-1]) == ("interrupted", "reading")
