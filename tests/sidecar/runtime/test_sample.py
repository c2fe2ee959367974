from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from kafila_sidecar.runtime.text.options import SamplingOptions
from kafila_sidecar.runtime.text.sample import Sampler, choose_each

pytestmark = pytest.mark.mlx

PROBABILITIES = [0.5, 0.25, 0.15, 0.07, 0.03]
LOGITS = mx.log(mx.array(PROBABILITIES))


def options(**changes: Any) -> SamplingOptions:
    return SamplingOptions(**({"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 7} | changes))


def drawn(choice: SamplingOptions, count: int = 400) -> Counter[int]:
    sampler = Sampler(choice)
    return Counter(sampler.pick(LOGITS) for _ in range(count))


def test_pick_when_temperature_is_zero_then_the_likeliest() -> None:
    assert drawn(options(temperature=0.0), 5) == {0: 5}


@pytest.mark.parametrize("temperature", [5e-324, 1e-45, 1e-40, 1e-37, 1e-20])
def test_pick_when_it_is_colder_than_numbers_reach_then_the_likeliest(temperature: float) -> None:
    assert drawn(options(temperature=temperature), 20) == {0: 20}


def test_pick_when_nothing_is_cut_off_then_as_often_as_the_model_says() -> None:
    counts = drawn(options(), 4000)
    assert np.allclose([counts[token] / 4000 for token in range(5)], PROBABILITIES, atol=0.03)


@pytest.mark.parametrize(
    ("choice", "tokens"),
    [
        (options(top_k=2), {0, 1}),
        (options(top_k=1), {0}),
        (options(top_k=99), {0, 1, 2, 3, 4}),
        (options(top_p=0.7), {0, 1}),
        (options(top_p=0.8), {0, 1, 2}),
        (options(min_p=0.29), {0, 1, 2}),
        (options(top_k=3, top_p=0.6), {0, 1}),
        (options(temperature=0.05), {0}),
    ],
    ids=str,
)
def test_pick_when_the_unlikely_are_cut_off_then_only_the_others(choice: SamplingOptions, tokens: set[int]) -> None:
    assert set(drawn(choice)) <= tokens
    if choice.temperature == 1:
        assert set(drawn(choice)) == tokens


@pytest.mark.parametrize("choice", [options(), options(top_k=3), options(presence_penalty=0.5, repeat_last_n=3)])
def test_picks_when_taken_up_anywhere_then_as_if_never_interrupted(choice: SamplingOptions) -> None:
    whole = Sampler(choice, (4,))
    expected = [whole.pick(LOGITS) for _ in range(30)]
    for told in range(30):
        later = Sampler(replace(choice, seed=whole.seed), (4,))
        for token in expected[:told]:
            later.take(token)
        assert [later.pick(LOGITS) for _ in range(30 - told)] == expected[told:]


def test_picks_when_seeded_then_the_same_whatever_runs_beside() -> None:
    alone = Sampler(options(seed=3))
    expected = [alone.pick(LOGITS) for _ in range(40)]
    one, other, picks = Sampler(options(seed=3)), Sampler(options(seed=4)), []
    for _ in range(40):
        other.pick(LOGITS)
        mx.random.normal((3,))
        picks.append(one.pick(LOGITS))
    assert picks == expected


@pytest.mark.parametrize(
    "choice", [options(top_k=40), options(top_k=40, top_p=0.9), options(top_k=40, min_p=0.05), options(top_p=0.9)]
)
def test_picks_when_seeded_and_the_scores_are_rounded_otherwise_then_the_same(choice: SamplingOptions) -> None:
    scores = np.random.default_rng(1).normal(scale=2.0, size=(300, 5000)).astype(np.float32)
    others = scores * np.random.default_rng(2).uniform(1 - 1e-5, 1 + 1e-5, scores.shape).astype(np.float32)
    one, other = Sampler(choice), Sampler(choice)
    picks = [(one.pick(mx.array(row)), other.pick(mx.array(again))) for row, again in zip(scores, others, strict=True)]
    assert len({first for first, _ in picks}) > 100
    assert sum(first != second for first, second in picks) <= 3  # where two were as good as equal


@pytest.mark.parametrize("choice", [options(top_k=2), options()])
def test_picks_when_seeds_are_neighbours_then_no_more_alike_than_others(choice: SamplingOptions) -> None:
    logits = mx.array([-9.0] * 10 + [1.0, 1.0])  # two ids that differ in their last bit
    picks = [Sampler(replace(choice, seed=seed)).pick(logits) for seed in range(400)]
    alike = [one == other for one, other in pairwise(picks)]
    for pairs in (alike[::2], alike[1::2]):
        assert 0.35 < sum(pairs) / len(pairs) < 0.65


def test_picks_when_the_likeliest_are_cut_off_then_each_as_often_as_the_model_says() -> None:
    counts = drawn(options(top_k=3), 4000)
    likeliest = np.array(PROBABILITIES[:3]) / sum(PROBABILITIES[:3])
    assert np.allclose([counts[token] / 4000 for token in range(3)], likeliest, atol=0.03)


def test_picks_when_not_seeded_then_differ() -> None:
    first, second = Sampler(options(seed=None)), Sampler(options(seed=None))
    assert [first.pick(LOGITS) for _ in range(60)] != [second.pick(LOGITS) for _ in range(60)]


@pytest.mark.parametrize("seed", [0, -5, 2**64 + 1])
def test_pick_when_the_seed_is_odd_then_still_picks(seed: int) -> None:
    assert Sampler(options(seed=seed)).pick(LOGITS) in range(5)


@pytest.mark.parametrize(
    ("choice", "prompt", "token"),
    [
        ({"repeat_penalty": 3.0}, [0], 1),
        ({"repeat_penalty": 3.0}, [], 0),
        ({"presence_penalty": 1.0}, [0, 0], 1),
        ({"frequency_penalty": 0.5}, [0], 0),
        ({"frequency_penalty": 0.5}, [0, 0], 1),
        ({"presence_penalty": 1.0, "repeat_last_n": 0}, [0], 0),
        ({"presence_penalty": 1.0, "repeat_last_n": 2}, [0, 3, 3], 0),
        ({"presence_penalty": 1.0, "repeat_last_n": 4}, [0, 3, 3], 1),
        ({"presence_penalty": 1.0, "repeat_last_n": -1}, [0, *[3] * 99], 1),
    ],
    ids=str,
)
def test_pick_when_tokens_were_seen_lately_then_they_count_less(
    choice: dict[str, Any], prompt: list[int], token: int
) -> None:
    assert Sampler(options(temperature=0.0, **choice), prompt).pick(LOGITS) == token


def test_picks_when_penalised_then_the_answer_counts_as_seen() -> None:
    sampler = Sampler(options(temperature=0.0, presence_penalty=1.0))
    assert [sampler.pick(LOGITS) for _ in range(3)] == [0, 1, 0]


def test_logits_when_picked_from_then_unchanged() -> None:
    logits = mx.array(PROBABILITIES)
    Sampler(options(temperature=0.0, repeat_penalty=2.0), [0, 1]).pick(logits)
    assert logits.tolist() == pytest.approx(PROBABILITIES)


PATHS = [
    {"temperature": 0.0},
    {},
    {"top_k": 2},
    {"top_k": 5, "top_p": 0.99},
    {"top_p": 0.9, "min_p": 0.01},
    {"temperature": 0.0, "repeat_penalty": 9.0, "repeat_last_n": -1},
]


@pytest.mark.parametrize("choice", PATHS, ids=str)
def test_pick_when_ids_are_no_tokens_then_never_they(choice: dict[str, Any]) -> None:
    sampler = Sampler(options(**choice), (), 4, (0, 2))
    assert {sampler.pick(mx.array([9.0, 1.0, 9.0, 2.0, 9.0, 9.0])) for _ in range(100)} <= {1, 3}


def test_pick_when_the_tokenizer_is_wider_than_the_head_then_from_the_head() -> None:
    sampler = Sampler(options(), (), 9, (7,))
    assert {sampler.pick(LOGITS) for _ in range(200)} <= set(range(5))


def test_pick_when_greedy_in_16_bits_then_mlx_lms_token_ties_of_rounding_included() -> None:
    rows = [(0.3 * mx.random.normal((8192,), key=mx.random.key(seed))).astype(mx.bfloat16) for seed in range(60)]
    reference = [int(mx.argmax(row - mx.logsumexp(row, keepdims=True))) for row in rows]
    assert reference != [int(mx.argmax(row)) for row in rows]
    assert [Sampler(SamplingOptions(temperature=0.0)).pick(row) for row in rows] == reference


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=str)
@pytest.mark.parametrize("gaps", [(), (3, 7000)], ids=str)
def test_choose_each_when_all_rows_are_greedy_then_the_token_that_each_chooses_alone(
    dtype: mx.Dtype, gaps: tuple[int, ...]
) -> None:
    logits = (0.3 * mx.random.normal((60, 8192), key=mx.random.key(3))).astype(dtype)
    samplers = [Sampler(SamplingOptions(temperature=0.0), (), 8000, gaps) for _ in range(60)]
    alone = [int(sampler.choose(row)) for sampler, row in zip(samplers, logits, strict=True)]
    assert choose_each(samplers, logits, [None] * 60).tolist() == alone


def test_choose_each_when_a_format_allows_some_then_they_are_kept_to() -> None:
    logits, samplers = mx.stack([LOGITS] * 3), [Sampler(SamplingOptions(temperature=0.0)) for _ in range(3)]
    assert choose_each(samplers, logits, [None, bytes([0b10]), bytes([0b11000])]).tolist() == [0, 1, 3]
