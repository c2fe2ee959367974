"""SmolLM2 on three stages with all that makes answers quicker, beside single-process mlx-lm: the same greedy text."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.serving.stages import NAMES, StageParty, answer, ask, party
from tests.support.smollm2 import smollm2_folder
from tests.support.ties import is_same_or_tie

pytestmark = pytest.mark.mlx

CUTS = (0, 10, 20, 30)
AT_ONCE = 4
PLAIN: dict[str, Any] = {"repeat_penalty": 1.0}  # as mlx-lm
NO_GUESSES: dict[str, Any] = {"guesses": 0}
PROMPTS = (
    "The capital of France is",
    "one two three four five six one two three four five six one two",
    "def total(items):\n    all = 0\n    for item in items:\n        all += item\n    return all\n\ndef total(",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "Water boils at a temperature of",
    "Once upon a time, in a village by a river,",
    "The three primary colours are",
    "Dear Sir or Madam,\nI am writing to you because",
    "Roses are red, violets are blue,",
    "SELECT name, count(*) FROM members WHERE",
    "The sun rises in the east and sets in the",
    "Ingredients:\n- two eggs\n- a cup of flour\n- a cup of milk\nMethod:",
    "In 1969, the first men",
    "Q: What is a caravan?\nA: A caravan is",
    "import json\n\ndef read(path):",
    "A haiku about the sea:",
    "Monday, Tuesday, Wednesday,",
    "To be, or not to be, that is",
    "The largest planet of the solar system is",
    "Good morning, my friends! Today we",
)
FEW = pytest.param(5, 32, id="few")
ALL = pytest.param(20, 128, id="all", marks=(pytest.mark.long, pytest.mark.timeout(3600)))


@cache
def mlx_lms(folder: Path, prompt: str, tokens: int) -> str:
    """The whole model's text, in one process."""
    from mlx_lm import load
    from mlx_lm.generate import stream_generate

    loaded: Any = cache(load)(str(folder))
    model, tokenizer = loaded
    ids = [step.token for step in stream_generate(model, tokenizer, prompt, max_tokens=tokens)]
    return str(tokenizer.decode([token for token in ids if token not in tokenizer.eos_token_ids]))


async def told(three: StageParty, number: int, tokens: int, options: dict[str, Any]) -> str:
    """What a member says after a prompt; the members take turns."""
    member = three[NAMES[number % 3]]
    return (await answer(member, ask(PROMPTS[number], num_predict=tokens, **PLAIN, **options)))[0]


async def given_up(three: StageParty, number: int, options: dict[str, Any]) -> None:
    """An answer that nobody wants any more once some pieces of it have come."""
    replies = three[NAMES[number % 3]].stage.generate(ask(PROMPTS[number], num_predict=64, **PLAIN, **options))
    for _ in range(1 + number % 5):
        await anext(replies)
    await replies.aclose()


@asynccontextmanager
async def ring_of_three(folder: Path, data: Path) -> AsyncIterator[StageParty]:
    async with party(folder, data, *NAMES[:3]) as three:
        await three.serve(CUTS, NAMES[:3], concurrency=AT_ONCE + 1)
        yield three
        await three.until_free()


@pytest.mark.parametrize(("prompts", "tokens"), [FEW, ALL])
@pytest.mark.parametrize("options", [NO_GUESSES, {}], ids=["plain", "guesses"])
async def test_answer_when_alone_after_one_that_was_given_up_then_mlx_lms_text(
    tmp_path: Path, options: dict[str, Any], prompts: int, tokens: int
) -> None:
    folder = smollm2_folder()
    async with ring_of_three(folder, tmp_path) as three:
        for number in range(prompts):
            await given_up(three, number - 1, options)
            text = await told(three, number, tokens, options)
            assert is_same_or_tie(folder, PROMPTS[number], text, mlx_lms(folder, PROMPTS[number], tokens))
        traces = [trace for member in three.members for trace in member.traces]
        assert any(trace["guesses_right"] for trace in traces) == (not options)


@pytest.mark.parametrize(("prompts", "tokens"), [FEW, ALL])
@pytest.mark.parametrize("options", [NO_GUESSES, {}], ids=["plain", "guesses"])
async def test_answers_when_four_at_once_beside_one_that_is_given_up_then_mlx_lms_texts(
    tmp_path: Path, options: dict[str, Any], prompts: int, tokens: int
) -> None:
    folder = smollm2_folder()
    async with ring_of_three(folder, tmp_path) as three:
        for first in range(0, prompts, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, prompts))
            async with asyncio.TaskGroup() as group:
                group.create_task(given_up(three, first - 1, options))
                answers = [group.create_task(told(three, number, tokens, options)) for number in numbers]
            for number, one in zip(numbers, answers, strict=True):
                theirs = mlx_lms(folder, PROMPTS[number], tokens)
                assert is_same_or_tie(folder, PROMPTS[number], one.result(), theirs)
        rows = [row["rows"] for member in three.members for trace in member.traces for row in trace["stages"]]
        assert max(rows) > 1
