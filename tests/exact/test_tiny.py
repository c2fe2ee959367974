"""Tiny random checkpoints in several files: the ring is the whole model, bit for bit."""

from pathlib import Path
from typing import Any

import pytest

from tests.exact.shards import RingOfShards, Whole, assert_same
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

BLOCKS = 6
CUTS = [(0, 6), (0, 3, 6), (0, 1, 6), (0, 2, 4, 6), (0, 4, 5, 6), (0, 1, 2, 6), (0, 1, 3, 4, 6)]
PROMPT = [(7 * i) % 250 + 3 for i in range(40)]
COUNT = 12
SLIDING = {"layer_types": ["full_attention", "sliding_attention"] * 3, "sliding_window": 16}
"""A llama with both kinds of attention: its masks come from caches of blocks that may be elsewhere."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


def check(folder: Path, chunk: int) -> None:
    reference = Whole(folder).greedy(PROMPT, COUNT, chunk)
    for cuts in CUTS:
        ring = RingOfShards(folder, cuts)
        assert_same(ring.greedy(PROMPT, COUNT, chunk), reference)
        ring.close()


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_ring_when_cut_anywhere_then_the_whole_models_tokens(
    folders: Path, family: str, dtype: str, tied: bool
) -> None:
    config = {"tie_word_embeddings": tied, "num_hidden_layers": BLOCKS}
    folder = tiny_folder(folders / f"{family}-{dtype}-{tied}", model_type=family, dtype=dtype, config=config)
    check(folder, chunk=16)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_ring_when_quantised_then_the_whole_models_tokens(folders: Path, family: str, bits: int) -> None:
    folder = tiny_folder(folders / f"{family}-{bits}bit", model_type=family, dtype="bf16", bits=bits)
    check(folder, chunk=16)


def test_ring_when_attention_slides_in_some_blocks_then_the_whole_models_tokens(folders: Path) -> None:
    check(tiny_folder(folders / "sliding", config=SLIDING), chunk=9)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_ring_when_the_prompt_comes_in_chunks_then_the_whole_models_tokens(folders: Path, chunk: int) -> None:
    check(tiny_folder(folders / "chunks"), chunk=chunk)


def test_ring_when_two_sequences_take_turns_then_each_gets_its_own_tokens(folders: Path) -> None:
    folder = tiny_folder(folders / "turns")
    ring, whole = RingOfShards(folder, (0, 2, 4, 6)), Whole(folder)
    prompts: dict[int, list[int]] = {1: PROMPT, 2: PROMPT[::-1]}
    answers: dict[int, list[Any]] = {1: [], 2: []}
    for sequence, prompt in prompts.items():
        ring.prefill(sequence, prompt[:-1])
        answers[sequence].append(int(ring.step(sequence, prompt[-1:]).argmax()))
    for _ in range(COUNT - 1):
        for sequence, answer in answers.items():
            answer.append(int(ring.step(sequence, answer[-1:]).argmax()))
    for sequence, prompt in prompts.items():
        assert answers[sequence] == [token for token, _ in whole.greedy(prompt, COUNT, chunk=64)]
