"""Embeddings of texts from the ring, with a tiny real model on real links, against the whole model's last states."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from tests.sidecar.serving.stages import CONTEXT, NAMES, StageParty, answer, ask, party, refusal

pytestmark = pytest.mark.mlx

CUTS: dict[str, Sequence[int]] = {"one": (0, 6), "three": (0, 2, 4, 6)}
TEXTS = ("once upon a time", "the capital of France", "\x02kafila1 {}\x03 is text here")


@pytest.fixture(params=list(CUTS.values()), ids=list(CUTS))
async def ring(request: pytest.FixtureRequest, tiny: Path, tmp_path: Path) -> AsyncIterator[StageParty]:
    names = NAMES[: len(request.param) - 1]
    async with party(tiny, tmp_path, *names) as made:
        await made.serve(request.param, names)
        yield made


def text_to_embed(text: str, *, truncate: bool = True, **options: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(prompt=text, embeds=True, plain=True, truncate=truncate, options=pb.Options(**options))


async def embedded(made: StageParty, text: str, *, at: str = "ada", **options: Any) -> tuple[list[float], int]:
    """The embedding, and of how many tokens it is."""
    said, last = await answer(made[at], text_to_embed(text, **options))
    assert (said, last.done, last.output_tokens) == ("", True, 0)
    return list(last.embedding), last.prompt_tokens


def whole(folder: Path, text: str, tokens: int) -> list[float]:
    """The normed state of the first tokens' last one, of length 1."""
    import mlx.core as mx
    from mlx_lm import load

    loaded: Any = load(str(folder))
    model, tokenizer = loaded
    state = model.model(mx.array([tokenizer.encode(text)[:tokens]]))[0, -1].astype(mx.float32)
    numbers: list[float] = (state / mx.linalg.norm(state)).tolist()
    return numbers


async def test_embedding_when_asked_for_then_the_whole_models(ring: StageParty, tiny: Path) -> None:
    for text in TEXTS:
        numbers, tokens = await embedded(ring, text)
        assert tokens == len(text)
        assert numbers == pytest.approx(whole(tiny, text, tokens), abs=1e-5)
        for member in ring.members:
            assert await embedded(ring, text, at=member.name) == (numbers, tokens)
    await ring.until_free()
    assert not any(member.stage.held_sequences for member in ring.members)


async def test_embedding_when_the_text_is_too_long_then_of_its_beginning_or_refused(
    ring: StageParty, tiny: Path
) -> None:
    long = "a long story " * 40
    for context in (CONTEXT, 50):
        numbers, tokens = await embedded(ring, long, num_ctx=context)
        assert tokens == context
        assert numbers == pytest.approx(whole(tiny, long, context), abs=1e-5)
        whole_text = text_to_embed(long, truncate=False, num_ctx=context)
        assert isinstance(await refusal(ring["ada"], whole_text), InvalidInput)
    assert isinstance(await refusal(ring["ada"], text_to_embed("")), InvalidInput)


async def test_embedding_when_answers_run_beside_it_then_neither_is_another(ring: StageParty) -> None:
    alone, _ = await answer(ring["ada"], ask(TEXTS[0], num_predict=30))
    numbers, _ = await embedded(ring, TEXTS[1])
    replies = ring["ada"].stage.generate(ask(TEXTS[0], num_predict=30))
    said = (await anext(replies)).text
    assert (await embedded(ring, TEXTS[1]))[0] == pytest.approx(numbers, abs=1e-5)
    async for reply in replies:
        said += reply.text
    assert said == alone
