"""A conversation's next turn over kept sequences, with a tiny real model on real links: the text is the one without."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.sidecar.serving.stages import NAMES, StageParty, answer, ask, party

pytestmark = pytest.mark.mlx

RINGS: dict[str, Sequence[int]] = {"one": (0, 6), "two": (0, 2, 6), "three": (0, 2, 4, 6)}
FIRST = "once upon a time there was a caravan"
VARIED: dict[str, Any] = {"repeat_penalty": 1.5}


@pytest.fixture(params=list(RINGS.values()), ids=list(RINGS))
async def ring(request: pytest.FixtureRequest, tiny: Path, tmp_path: Path) -> AsyncIterator[StageParty]:
    names = NAMES[: len(request.param) - 1]
    async with party(tiny, tmp_path, *names) as made:
        await made.serve(request.param, names)
        yield made


@pytest.fixture
async def two(tiny: Path, tmp_path: Path) -> AsyncIterator[StageParty]:
    async with party(tiny, tmp_path, *NAMES[:3]) as made:
        await made.serve(RINGS["two"], NAMES[:2])
        yield made


async def say(made: StageParty, prompt: str, *, at: str = "ada", tokens: int = 20) -> tuple[str, int]:
    """The answer, and how many tokens of the prompt were there already."""
    text, last = await answer(made[at], ask(prompt, num_predict=tokens, **VARIED))
    await made.until_free(10)
    assert last.prompt_tokens == made["ada"].traces[-1]["prompt_tokens"] == len(prompt)
    return text, made["ada"].traces[-1]["reused_tokens"]


def held(made: StageParty) -> set[int]:
    """Sequences with caches, by members with a stage."""
    return {member.stage.held_sequences for member in made.members if member.stage.part.end}


async def replanned(made: StageParty, cuts: Sequence[int]) -> None:
    await made.stop()
    await made.serve(cuts, NAMES[: len(cuts) - 1])


async def turn(made: StageParty, context: Sequence[int], **options: Any) -> tuple[str, Sequence[int], int]:
    """A conversation's next answer, the conversation as token ids then, and how many of them were there already."""
    asked = ask(" and then it went on", num_predict=20, **VARIED, **options)
    asked.context.extend(context)
    asked.tells_context = True
    text, last = await answer(made["ada"], asked)
    await made.until_free(10)
    return text, list(last.context), made["ada"].traces[-1]["reused_tokens"]


async def test_turns_when_a_conversation_goes_on_then_only_what_is_new_is_computed_and_the_text_is_the_same(
    ring: StageParty, request: pytest.FixtureRequest
) -> None:
    cuts = request.node.callspec.params["ring"]
    contexts, texts = [list[int]()], []
    for _ in range(3):
        text, context, reused = await turn(ring, contexts[-1])
        assert reused == max(0, len(contexts[-1]) - 1)  # the last token of an answer that was cut went nowhere
        contexts.append(list(context))
        texts.append(text)
    for context, text in zip(contexts[:-1], texts, strict=True):
        await replanned(ring, cuts)  # nothing is kept
        assert (await turn(ring, context))[::2] == (text, 0)


async def test_turns_when_caches_cannot_forget_then_a_conversation_goes_on_from_where_it_stands(
    windowed: Path, tmp_path: Path
) -> None:
    async with party(windowed, tmp_path, *NAMES[:2]) as made:
        await made.serve(RINGS["two"], NAMES[:2])
        whole, context, _ = await turn(made, [])
        text, _, reused = await turn(made, context)
        assert reused == len(context) - 1
        await replanned(made, RINGS["two"])
        assert (await turn(made, context))[::2] == (text, 0)
        assert (await turn(made, context))[::2] == (text, 0)  # the same text again: it would have to forget
        await replanned(made, RINGS["two"])
        _, stopped, _ = await turn(made, [], stop=[whole[6:8]])  # its last token is nowhere but at the head by then
        text, _, reused = await turn(made, stopped)
        assert reused == len(stopped)
        await replanned(made, RINGS["two"])
        assert (await turn(made, stopped))[::2] == (text, 0)


async def test_turns_when_the_text_parts_from_the_kept_one_then_the_common_part_is_used(two: StageParty) -> None:
    alone, _ = await say(two, FIRST + " of mules")
    await replanned(two, RINGS["two"])
    await say(two, FIRST + " on its way", tokens=4)
    assert await say(two, FIRST + " of mules") == (alone, len(FIRST + " o"))


async def test_turns_when_another_member_asks_the_same_then_it_is_computed_anew(two: StageParty) -> None:
    expected, _ = await say(two, FIRST)
    assert await say(two, FIRST, at="bob") == (expected, 0)
    assert await say(two, FIRST, at="bob") == (expected, len(FIRST) - 1)


async def test_kept_when_others_need_the_room_then_no_more_than_the_plan_has_sequences(two: StageParty) -> None:
    for prompt in ("one " * 8, "two " * 8, "three " * 8, "four " * 8):
        await say(two, prompt)
        assert max(held(two)) <= 2
    assert held(two) == {2}
    assert (await say(two, "one " * 8))[1] == 0
    assert (await say(two, "four " * 8))[1] > 0
    both = await asyncio.gather(*(answer(two[at], ask("five " * 8, **VARIED)) for at in ("ada", "bob")))
    assert both[0][0] == both[1][0]
    await two.until_free()
    assert held(two) == {2}


async def test_kept_when_the_epoch_ends_then_no_stage_holds_anything(two: StageParty) -> None:
    await say(two, FIRST)
    assert held(two) == {1}
    await two.stop()
    assert held(two) == {0}


async def test_kept_when_the_ring_breaks_then_nothing_is_left_and_the_next_turn_is_computed_anew(
    two: StageParty,
) -> None:
    expected, _ = await say(two, FIRST)
    assert held(two) == {1}
    await two.kill("bob")
    async with asyncio.timeout(10):
        while held(two) != {0}:  # noqa: ASYNC110  # the stages tell nobody
            await asyncio.sleep(0.01)
    await asyncio.gather(two["ada"].dial(two["bob"]), two["bob"].dial(two["ada"]))
    assert await say(two, FIRST) == (expected, 0)


LONG = "it was the caravan of a merchant who never came back " * 4


async def give_up(made: StageParty, prompt: str, *, after: int) -> None:
    """Asks, and gives the answer up once so many replies with text came; with 0 some time after it began."""
    replies = made["ada"].stage.generate(ask(prompt, num_predict=40, **VARIED))
    asked = asyncio.ensure_future(anext(replies))
    while not made["ada"].stage.active_sequences:  # noqa: ASYNC110  # the stages tell nobody
        await asyncio.sleep(0.001)
    for _ in range(after):
        await asked
        asked = asyncio.ensure_future(anext(replies))
    asked.cancel()
    await asyncio.wait((asked,))
    await replies.aclose()
    await made.until_free(10)


async def test_kept_when_an_answer_is_given_up_then_what_was_computed_is_used_and_the_text_is_the_same(
    ring: StageParty, request: pytest.FixtureRequest
) -> None:
    alone, _ = await say(ring, LONG)
    await replanned(ring, request.node.callspec.params["ring"])
    await give_up(ring, LONG, after=1)
    assert await say(ring, LONG) == (alone, len(LONG) - 1)


async def test_kept_when_answers_are_given_up_again_and_again_then_the_text_is_as_if_none_had_been(
    two: StageParty,
) -> None:
    alone, _ = await say(two, FIRST)
    for after in (0, 3, 0, 0, 1, 5, 0):
        await give_up(two, FIRST + " of mules" * (after % 2), after=after)
        assert max(held(two)) <= 2
    assert (await say(two, FIRST))[0] == alone


async def test_kept_when_an_answer_is_given_up_whose_caches_cannot_forget_then_its_sequence_is_freed(
    windowed: Path, tmp_path: Path
) -> None:
    async with party(windowed, tmp_path, *NAMES[:2]) as made:
        await made.serve(RINGS["two"], NAMES[:2])
        await give_up(made, FIRST, after=2)
        assert held(made) == {0}
