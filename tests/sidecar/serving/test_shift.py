"""Answers longer than the context, with a tiny real model on real links, against mlx-lm's run anew at each step."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.serving.intake.window import Window
from tests.sidecar.serving.stages import NAMES, StageParty, answer, ask, party

pytestmark = pytest.mark.mlx

CONTEXT = 48
PROMPT = "once upon a time there was"
CUTS: dict[str, Sequence[int]] = {"one": (0, 6), "three": (0, 2, 4, 6)}


@pytest.fixture(params=list(CUTS.values()), ids=list(CUTS))
async def ring(request: pytest.FixtureRequest, tiny: Path, tmp_path: Path) -> AsyncIterator[StageParty]:
    names = NAMES[: len(request.param) - 1]
    async with party(tiny, tmp_path, *names) as made:
        await made.serve(request.param, names, concurrency=1)
        yield made


def long_request(*, tokens: int = 120, shift: bool = True, prompt: str = PROMPT, **options: Any) -> pb.GenerateRequest:
    asked = ask(prompt, num_predict=tokens, num_ctx=CONTEXT, repeat_penalty=1.5, **options)
    asked.shift, asked.tells_context = shift, True
    return asked


def step_by_step(folder: Path, prompt: Sequence[int], count: int, *, keep: int) -> list[int]:
    """Each token from what the window has before it, computed from its beginning."""
    import mlx.core as mx
    from mlx_lm import load
    from mlx_lm.sample_utils import make_logits_processors

    loaded: Any = load(str(folder))
    model, _ = loaded
    (penalty,) = make_logits_processors(repetition_penalty=1.5, repetition_context_size=64)
    ids, window = list(prompt), Window(CONTEXT, keep)
    for _ in range(count):
        logits = model(mx.array([window.of(ids)]))[:, -1]
        best: Any = mx.argmax(penalty(mx.array(ids), logits)).item()
        ids.append(best)
    return ids


@pytest.mark.parametrize("keep", [0, 4, 20, -1])
async def test_answer_when_it_is_longer_than_the_context_then_the_oldest_goes_and_it_goes_on(
    ring: StageParty, tiny: Path, keep: int
) -> None:
    _, last = await answer(ring["ada"], long_request(num_keep=keep))
    assert last.prompt_tokens == len(PROMPT)
    assert last.output_tokens > 2 * CONTEXT
    ids, kept = list(last.context), len(PROMPT) if keep < 0 else keep
    assert ids == step_by_step(tiny, ids[: len(PROMPT)], 120, keep=kept)[: len(ids)]
    await ring.until_free()
    assert all(member.stage.held_sequences <= 1 for member in ring.members)


async def test_answer_when_caches_cannot_forget_then_another_sequence_goes_on(windowed: Path, tmp_path: Path) -> None:
    async with party(windowed, tmp_path, *NAMES[:2]) as made:
        await made.serve((0, 3, 6), NAMES[:2], concurrency=1)
        _, last = await answer(made["ada"], long_request())
        ids = list(last.context)
        assert len(ids) > 2 * CONTEXT
        assert ids == step_by_step(windowed, ids[: len(PROMPT)], 120, keep=4)[: len(ids)]
        await made.until_free()
        assert max(member.stage.held_sequences for member in made.members) <= 1


async def test_answer_when_it_may_not_shift_then_it_ends_where_the_context_is_full(ring: StageParty) -> None:
    _, last = await answer(ring["ada"], long_request(shift=False))
    assert last.done_reason == pb.DONE_REASON_LENGTH
    assert last.prompt_tokens + last.output_tokens == CONTEXT


async def test_answer_when_the_prompt_fills_the_context_then_it_goes_on_all_the_same(
    ring: StageParty, tiny: Path
) -> None:
    _, last = await answer(ring["ada"], long_request(prompt=PROMPT * 3, tokens=30))
    assert (last.prompt_tokens, last.output_tokens) == (CONTEXT, 30)
    ids = list(last.context)
    assert ids == step_by_step(tiny, ids[:CONTEXT], 30, keep=4)


async def test_answer_when_it_has_shifted_and_is_interrupted_then_it_goes_on_as_if_it_were_not(
    ring: StageParty, request: pytest.FixtureRequest
) -> None:
    cuts = request.node.callspec.params["ring"]
    names = NAMES[: len(cuts) - 1]
    expected, _ = await answer(ring["ada"], long_request(tokens=150, guesses=0))
    replies = ring["ada"].stage.generate(long_request(tokens=150, guesses=0))
    text = ""
    while len(text) < 60:  # it has shifted then
        text += (await anext(replies)).text
    await ring.stop()
    await ring.serve(cuts, names, concurrency=1)
    async with asyncio.timeout(20):
        async for reply in replies:
            text += reply.text
    assert text == expected
