"""SmolLM2 in three shards against single-process mlx-lm: 64 greedy tokens for ten prompts, every other one of them in
`make test`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.exact.shards import RingOfShards, Whole, assert_same
from tests.support.smollm2 import smollm2_folder

pytestmark = pytest.mark.mlx

COUNT = 64
CHUNK = 16
CUTS: list[tuple[int, ...]] = [(0, 10, 20, 30), (0, 1, 29, 30), (0, 13, 14, 30)]
PROMPTS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Count from one to twenty.",
    "def fibonacci(n):",
    "Explain to a child why the sky is blue.",
    "Translate to German: Good morning, my friends!",
    "List three fruits, and a colour for each of them: 1.",
    "Once upon a time, in a village by a river,",
    "¿Qué es un caravasar? ¡Dímelo! 🐫",
    "Summarise: a caravan is a group of people who travel together through difficult country, for safety. " * 3,
]


@pytest.fixture(scope="module")
def folder() -> Path:
    return smollm2_folder()


@pytest.fixture(scope="module")
def whole(folder: Path) -> Whole:
    return Whole(folder)


@pytest.fixture(scope="module")
def rings(folder: Path) -> Iterator[dict[tuple[int, ...], RingOfShards]]:
    """A ring for each way to cut; the prompts take them in turn."""
    rings = {cuts: RingOfShards(folder, cuts) for cuts in CUTS}
    yield rings
    for ring in rings.values():
        ring.close()


def chat(folder: Path, text: str) -> list[int]:
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    return list(Tokenizer.from_file(str(folder / "tokenizer.json")).encode(prompt).ids)


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=[pytest.mark.long] * (number % 2)) for number in range(len(PROMPTS))]
)
def test_three_shards_when_greedy_then_the_tokens_of_single_process_mlx_lm(
    folder: Path, whole: Whole, rings: dict[tuple[int, ...], RingOfShards], number: int
) -> None:
    ring = rings[CUTS[number % len(CUTS)]]
    prompt = chat(folder, PROMPTS[number])
    assert_same(ring.greedy(prompt, COUNT, CHUNK, sequence=number), whole.greedy(prompt, COUNT, CHUNK))
    ring.release(number)


def test_three_shards_in_bf16_when_greedy_then_the_tokens_of_single_process_mlx_lm() -> None:
    folder = smollm2_folder(dtype="bf16")
    ring = RingOfShards(folder, CUTS[0])
    prompt = chat(folder, PROMPTS[0])
    assert_same(ring.greedy(prompt, COUNT, CHUNK), Whole(folder).greedy(prompt, COUNT, CHUNK))
    ring.close()
