"""Given ids through real shards and the head's text path: what is shown is what they say, exactly."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafila_sidecar.runtime.shard.picking import Pick, Picked
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.text.options import SamplingOptions, resolve
from kafila_sidecar.runtime.text.sample import Sampler
from kafila_sidecar.runtime.text.tokenizer import Tokenizer
from tests.support.saying import BLOCKS, FEW, saying_folder
from tests.support.vocabularies import KINDS, vocabulary

pytestmark = pytest.mark.mlx

SAID = "日語\n ifb  the quick the quick 🐫🐫 don't ü <td>\n\n\naaaaaaaaaa"
CUTS: list[list[int]] = [[0, 4], [0, 1, 4], [0, 2, 3, 4], [0, 1, 2, 3, 4]]


def shards(folder: Path, cuts: Sequence[int]) -> list[Shard]:
    import mlx.core as mx

    files = {path: frozenset(map(str, mx.load(str(path)))) for path in sorted(folder.glob("*.safetensors"))}
    return [
        Shard.load(
            folder=folder, files=_held(files, start, end, head=start == 0), start=start, end=end, head=start == 0
        )
        for start, end in pairwise(cuts)
    ]


def _held(files: dict[Path, frozenset[str]], start: int, end: int, *, head: bool) -> dict[Path, frozenset[str]]:
    blocks = tuple(f"model.layers.{block}." for block in range(start, end))
    ends = ("model.embed_tokens", "model.norm", "lm_head") if head else ()
    return {path: frozenset(name for name in names if name.startswith(blocks + ends)) for path, names in files.items()}


def answer(
    folder: Path, cuts: Sequence[int], options: SamplingOptions, messages: list[dict[str, Any]]
) -> tuple[list[int], str]:
    """As the head does it: ids until an end, and the text that is shown of them."""
    ring, tokenizer = shards(folder, cuts), Tokenizer.load(folder)
    sampler, stream = Sampler(options, (), tokenizer.size, tokenizer.gaps), tokenizer.stream()
    tokens: Sequence[int] = tokenizer.render(messages)
    ids: list[int] = []
    shown = ""
    while len(ids) < 2 * FEW:
        state = ring[0].embed_and_blocks(1, tokens)
        for shard in ring[1:]:
            state = shard.run_blocks(1, state)
        [picked] = ring[0].pick([Pick(1, state, sampler, goes_on=False)])
        assert isinstance(picked, Picked)
        token = picked.token
        if token in tokenizer.eos_ids:
            break
        ids.append(token)
        shown += stream.add(token)
        tokens = (token,)
    for shard in ring:
        shard.close()
    return ids, shown + stream.finish()


@pytest.mark.parametrize("kind", list(KINDS))
def test_ids_when_said_by_a_model_then_shown_as_they_decode(tmp_path: Path, kind: str) -> None:
    folder = vocabulary(tmp_path / kind, kind)
    backend = Tokenizer.load(folder).backend
    ids = backend.encode(SAID, add_special_tokens=False).ids[:FEW]
    saying_folder(folder, ids)
    said, shown = answer(folder, CUTS[0], resolve({}, {"do_sample": False}), [{"role": "user", "content": "Say it!"}])
    assert said == ids
    whole = backend.decode(ids, skip_special_tokens=False)
    assert shown in (whole, whole.removesuffix("\ufffd"))
    if kind in ("byte_level", "keeping_spaces", "smollm2"):
        assert shown == SAID


@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize("words", [1, 40])
def test_ids_when_the_model_is_cut_then_the_same_whatever_the_prompt(
    tmp_path: Path, cuts: list[int], words: int
) -> None:
    folder = vocabulary(tmp_path / "byte_level", "byte_level")
    ids = Tokenizer.load(folder).backend.encode("ab" * 60 + SAID, add_special_tokens=False).ids[:FEW]
    saying_folder(folder, ids)
    history = [{"role": role, "content": "hm <|answer|> " * words} for role in ("user", "assistant", "user")]
    said, _ = answer(folder, cuts, SamplingOptions(temperature=0.0), history)
    assert cuts[-1] == BLOCKS
    assert said == ids


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(temperature=0.0),
        SamplingOptions(temperature=0.7, seed=1),
        SamplingOptions(temperature=1.0, top_k=0, top_p=1.0, seed=2),
        SamplingOptions(temperature=1.0, top_k=3, seed=3),
        SamplingOptions(temperature=1.0, top_p=0.5, min_p=0.2, seed=4),
        SamplingOptions(temperature=0.0, repeat_penalty=1.01, presence_penalty=0.1, frequency_penalty=0.1),
    ],
    ids=str,
)
def test_head_when_wider_than_the_tokenizer_then_no_id_beyond_is_picked(
    tmp_path: Path, options: SamplingOptions
) -> None:
    folder = vocabulary(tmp_path / "byte_level", "byte_level")
    ids = Tokenizer.load(folder).backend.encode("once upon a time", add_special_tokens=False).ids
    saying_folder(folder, ids, padding=50)
    said, shown = answer(folder, CUTS[1], options, [{"role": "user", "content": "Say it!"}])
    assert (said, shown) == (ids, "once upon a time")
