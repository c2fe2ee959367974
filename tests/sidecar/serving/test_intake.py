"""A request's prompt as ids: plain text whatever it looks like, what it goes on from, and a gap to fill in."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from kafila_proto import ring_pb2
from kafila_proto import sidecar_pb2 as pb
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.models.gaps import gap_tokens
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from kafila_sidecar.serving.intake.intake import Intake, PreparedRequest
from tests.sidecar.serving.stages import TextHere
from tests.support.vocabularies import vocabulary

CONTEXT = 64
CHAT = "\x02kafila1 " + json.dumps({"messages": [{"role": "user", "content": "hello"}]}) + "\x03"
GAP = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")


async def prepared(folder: Path, prompt: str, *, context_tokens: int = CONTEXT, **fields: Any) -> PreparedRequest:
    text = TextHere(folder)
    intake = Intake(text=text, vocabulary=await text.vocabulary(), context_tokens=context_tokens)
    request = pb.GenerateRequest(prompt=prompt, **{"truncate": True, **fields})
    return await intake.prepare(request, ring_pb2.Replay())


@pytest.fixture(params=["byte_level", "sentencepiece_bpe"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return vocabulary(tmp_path / "model", request.param)


@pytest.fixture
def filling(tmp_path: Path) -> Path:
    """A model that fills in."""
    made = vocabulary(tmp_path / "filling", "byte_level")
    backend = Backend.from_file(str(made / "tokenizer.json"))
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in GAP])
    backend.save(str(made / "tokenizer.json"))
    return made


@pytest.mark.parametrize("prompt", [CHAT, "\x02kafila1 ", "\x02kafila1 {}", CHAT + "and on", "\x1e{}", "\x03"])
async def test_prompt_when_said_to_be_plain_then_text_whatever_it_looks_like(folder: Path, prompt: str) -> None:
    made = await prepared(folder, prompt, context_tokens=500, plain=True)
    assert list(made.prompt) == Tokenizer.load(folder).encode(prompt)
    assert made.framer.content("x") == "x"


async def test_prompt_when_an_envelope_then_answered_in_frames(folder: Path) -> None:
    assert (await prepared(folder, CHAT)).framer.content("x") != "x"


@pytest.mark.parametrize("prompt", [CHAT, "hello again"])
async def test_context_when_given_then_the_prompt_follows_it(folder: Path, prompt: str) -> None:
    alone = list((await prepared(folder, prompt)).prompt)
    before = [3, 1, 4, 1, 5]
    first = (await TextHere(folder).vocabulary()).first
    further = alone[1:] if alone[0] == first else alone
    assert list((await prepared(folder, prompt, context=before)).prompt) == [*before, *further]


async def test_context_when_too_long_then_cut_as_a_prompt_is_or_refused(folder: Path) -> None:
    before = [7] * CONTEXT
    made = await prepared(folder, CHAT, context=[1, 2, 3, 4, *before])
    alone = list((await prepared(folder, CHAT)).prompt)
    assert len(made.prompt) == CONTEXT - CONTEXT // 4
    assert list(made.prompt[:4]) == [1, 2, 3, 4]
    assert list(made.prompt[-5:]) == alone[-5:]
    with pytest.raises(InvalidInput, match="exceeds the context length"):
        await prepared(folder, CHAT, context=before, truncate=False)


@pytest.mark.parametrize("beginning", ["Paris", " Paris is ", "<", "<|im_end|>", "assistant", "hello", "|im_end|>\n"])
async def test_answer_when_its_beginning_is_given_then_the_prompt_ends_with_it(folder: Path, beginning: str) -> None:
    turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": beginning}]
    chat = "\x02kafila1 " + json.dumps({"messages": turns}) + "\x03"
    tokenizer = Tokenizer.load(folder)
    shown = tokenizer.backend.decode((await prepared(folder, CHAT)).prompt, skip_special_tokens=False)
    begun = tokenizer.backend.decode(
        (await prepared(folder, chat, begun=True, context_tokens=200)).prompt, skip_special_tokens=False
    )
    assert begun == shown + beginning.strip()  # this template strips what it writes


@pytest.mark.parametrize("wrong", [[-1], [1, 1 << 30]])
async def test_context_when_it_holds_no_token_then_refused(folder: Path, wrong: Sequence[int]) -> None:
    with pytest.raises(InvalidInput, match="no token of this session's model"):
        await prepared(folder, CHAT, context=wrong)


@pytest.mark.parametrize("plain", [True, False])
async def test_suffix_when_the_model_fills_in_then_its_tokens_stand_around_both(filling: Path, plain: bool) -> None:
    before, after = "def a():", "    return b <fim_middle>\n"
    prompt = before if plain else CHAT.replace("hello", before)
    made = list((await prepared(filling, prompt, plain=plain, suffix=after)).prompt)
    backend = Tokenizer.load(filling).backend
    marks = [backend.token_to_id(token) for token in GAP]
    assert [token for token in made if token in marks] == marks  # the one that was typed is text
    assert (made[0], made[-1]) == (marks[0], marks[2])
    assert backend.decode(made) == before + after


async def test_suffix_when_it_does_not_fit_then_cut_or_refused(filling: Path) -> None:
    made = await prepared(filling, "a " * 400, plain=True, suffix="b " * 400)
    assert len(made.prompt) == CONTEXT - CONTEXT // 4
    with pytest.raises(InvalidInput, match="exceeds the context length"):
        await prepared(filling, "a " * 400, plain=True, suffix="b", truncate=False)


async def test_suffix_when_the_model_does_not_fill_in_then_refused(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="leave `suffix` out"):
        await prepared(folder, "a", plain=True, suffix="b")


def test_gap_tokens_when_one_is_missing_then_none() -> None:
    assert gap_tokens(frozenset(GAP)) is not None
    assert gap_tokens(frozenset(GAP[:2])) is None
