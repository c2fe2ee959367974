"""Several tokens a circuit, with a tiny real model on real links: the text is the one without guesses."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kafila_proto import sidecar_pb2 as pb
from tests.sidecar.serving.stages import NAMES, StageParty, answer, ask, party

pytestmark = pytest.mark.mlx

THREE = (0, 2, 4, 6)
PROMPT = "one two three, one two three, one two three, one two"
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "penalties": {"repeat_penalty": 1.1, "frequency_penalty": 0.1},
    "seed": {"temperature": 0.7, "seed": 5, "top_k": 5},
    "hot seed": {"temperature": 1.3, "seed": 6, "top_p": 0.8, "repeat_penalty": 1.05},
}


@pytest.fixture
async def three(tiny: Path, tmp_path: Path) -> AsyncIterator[StageParty]:
    async with party(tiny, tmp_path, *NAMES[:3]) as made:
        await made.serve(THREE, NAMES[:3])
        yield made


async def traced(made: StageParty, request: pb.GenerateRequest) -> tuple[str, pb.GenerateReply, dict[str, Any]]:
    """The answer, and its record."""
    text, last = await answer(made["ada"], request)
    await made.until_free(10)
    return text, last, made["ada"].traces[-1]


@pytest.mark.parametrize("kind", KINDS)
async def test_answer_when_tokens_are_guessed_then_it_is_the_one_without(three: StageParty, kind: str) -> None:
    given = {"num_predict": 100, **KINDS[kind]}
    plain, last, without = await traced(three, ask(PROMPT, guesses=0, **given))
    text, last_too, with_guesses = await traced(three, ask(PROMPT, **given))
    assert text == plain
    assert (last.output_tokens, last.done_reason) == (last_too.output_tokens, last_too.done_reason)
    assert (without["guesses"], without["circuits_per_token"]) == (0, 1)
    assert with_guesses["circuits"] + with_guesses["guesses_right"] >= with_guesses["output_tokens"] - 1


async def test_answer_when_it_repeats_itself_then_it_takes_fewer_circuits_than_tokens(three: StageParty) -> None:
    _, last, trace = await traced(three, ask(PROMPT, num_predict=120))
    assert last.output_tokens == trace["output_tokens"] == 120
    assert trace["circuits_per_token"] < 0.7
    assert 0 < trace["guesses_right"] <= trace["guesses"]
    assert trace["circuits"] + trace["guesses_right"] >= 119


async def test_answer_when_it_ends_among_guesses_then_nothing_of_what_follows_is_told(three: StageParty) -> None:
    whole, _, _ = await traced(three, ask(PROMPT, num_predict=60, guesses=0))
    for length in (7, 23, 41):
        text, last, trace = await traced(three, ask(PROMPT, num_predict=length))
        assert whole.startswith(text)
        assert last.output_tokens == trace["output_tokens"] == length
    stop = whole[30:33]
    plain, last, _ = await traced(three, ask(PROMPT, num_predict=60, stop=[stop], guesses=0))
    text, last_too, _ = await traced(three, ask(PROMPT, num_predict=60, stop=[stop]))
    assert (text, last_too.output_tokens, last_too.done_reason) == (plain, last.output_tokens, pb.DONE_REASON_STOP)


async def test_answer_when_the_context_is_nearly_full_then_no_guess_goes_past_it(three: StageParty) -> None:
    text, last, _ = await traced(three, ask("ab" * 100, num_predict=-1))
    plain, last_too, _ = await traced(three, ask("ab" * 100, num_predict=-1, guesses=0))
    assert (text, last.output_tokens) == (plain, last_too.output_tokens)
    assert last.prompt_tokens + last.output_tokens == 256
    assert not any(member.broken or member.misled for member in three.members)


async def test_answers_when_several_run_at_once_then_each_is_as_if_alone(tiny: Path, tmp_path: Path) -> None:
    prompts = [PROMPT, "a b c d e a b c d e a b", "x y x y x y", "the end, the end, the"]
    async with party(tiny, tmp_path, *NAMES[:3]) as made:
        await made.serve(THREE, NAMES[:3], concurrency=4)
        plain = [(await answer(made["ada"], ask(prompt, num_predict=50, guesses=0)))[0] for prompt in prompts]
        asked = [answer(made["bob"], ask(prompt, num_predict=50)) for prompt in prompts]
        assert [text for text, _ in await asyncio.gather(*asked)] == plain
        await made.until_free(10)


async def test_answer_when_given_up_or_its_ring_breaks_then_nothing_is_left_and_it_goes_on(three: StageParty) -> None:
    whole, _, _ = await traced(three, ask(PROMPT, num_predict=100, guesses=0))
    for replies in (1, 5, 20):
        generation = three["bob"].stage.generate(ask(PROMPT, num_predict=100))
        for _ in range(replies):
            await anext(generation)
        await generation.aclose()
        await three.until_free(10)
    for here, there in (("ada", "bob"), ("bob", "cyd"), ("cyd", "ada")):
        pieces = three["ada"].stage.generate(ask(PROMPT, num_predict=100))
        text = "".join([(await anext(pieces)).text for _ in range(6)])
        await three.link_anew(here, there)
        async with asyncio.timeout(20):
            async for reply in pieces:
                text += reply.text
        assert text == whole
        await three.until_free(10)
    assert not any(member.broken or member.misled for member in three.members)
