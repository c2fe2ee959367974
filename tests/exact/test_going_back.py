"""Guesses that are taken back where caches can't forget: windows, convolutions, recurrences and mixtures of them. Every
stage puts back what it had, and runs once more what of it was certain; the text is the one without guesses.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.shard.limits import StepLimits
from tests.exact.shapes import tiny_config
from tests.exact.shards import RingOfShards, over_the_wire
from tests.exact.test_ahead import CONVOLVED
from tests.exact.test_guesses import COUNT, GREEDY, OPTIONS, RIGHT, VOCABULARY, plain, sampler, stepped
from tests.exact.test_tiny import PROMPT, SLIDING
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx


def shaped(module: str, **more: Any) -> dict[str, Any]:
    return {"model_type": module, "shape": {}, "config": {**tiny_config(module), **more, "vocab_size": 259}}


FORMS: dict[str, dict[str, Any]] = {
    "sliding": {"config": SLIDING, "dtype": "bf16"},
    "sliding, 4 bits": {"config": SLIDING, "dtype": "bf16", "bits": 4},
    "convolved": {"model_type": "lfm2", "config": CONVOLVED, "dtype": "bf16"},
    "recurrent": shaped("mamba"),
    "recurrent and attentive": shaped("qwen3_next"),
    "recurrent, attentive and mixed": shaped("jamba"),
}
CUTS = (0, 2, 4, 6)


def forms(*soon: str) -> list[Any]:
    """All of them, and which are not left to the long run."""
    return [pytest.param(form, id=form, marks=[] if form in soon else [pytest.mark.long]) for form in FORMS]


def guessed(ring: RingOfShards, text: Sequence[int], rng: random.Random, most: int, options: Any = GREEDY) -> list[int]:
    """The text where an oracle that errs guesses, with no more tokens in a run than `most`."""
    picks, answer, again = sampler(options), list[int](), 0
    ring.prefill(1, PROMPT[:-1])
    while len(answer) < COUNT:
        at = len(answer)
        ahead = text[at : at + rng.randint(0, max(0, most - 1 - again))]
        guesses = [token if rng.random() < RIGHT else (token + 1) % VOCABULARY for token in ahead]
        last = answer[-1] if answer else PROMPT[-1]
        kept = stepped(ring.shards, [last, *guesses], len(PROMPT) + at - 1, picks, 0.0)
        again = 0 if len(kept) > len(guesses) else again + len(kept)
        answer += kept
    ring.release(1)
    return answer[:COUNT]


@pytest.mark.parametrize("form", forms("convolved"))
def test_text_when_guesses_are_taken_back_where_caches_cant_forget_then_it_is_the_one_without(
    tmp_path: Path, form: str
) -> None:
    ring = RingOfShards(tiny_folder(tmp_path / "model", **FORMS[form]), CUTS)
    for shard in ring.shards:
        shard.learn_steps()
    most = min(shard.step_limits.exact for shard in ring.shards)
    assert most > 1
    assert all(shard.model_can_forget and not shard.all_rewind for shard in ring.shards)
    for seed, options in enumerate(OPTIONS.values()):
        text = plain(ring, options)
        assert guessed(ring, text, random.Random(seed), most, options) == text
    ring.close()


@pytest.mark.parametrize("form", forms("sliding", "recurrent and attentive"))
def test_logits_when_any_guesses_are_taken_back_then_those_of_a_ring_that_made_none(tmp_path: Path, form: str) -> None:
    """Bit for bit, and so are the caches: single steps follow."""
    folder = tiny_folder(tmp_path / "model", **FORMS[form])
    ring = RingOfShards(folder, CUTS)
    for shard in ring.shards:
        shard.learn_steps()
    most = min(4, *(shard.step_limits.exact for shard in ring.shards))
    assert most > 1
    ring.prefill(1, PROMPT[:-1])
    ring.prefill(2, PROMPT[:-1])
    for certain in range(1, most):
        position = ring.shards[0].position(1)
        tokens = [(11 * position + 5 * at) % 200 for at in range(most)]
        state = ring.shards[0].step(1, position, tokens)
        for shard in ring.shards[1:]:
            [made] = shard.run_rows([(1, over_the_wire(state))], has_guesses=True)
            assert not isinstance(made, Exception)
            state = made
        for token in tokens[:certain]:
            ring.step(2, [token])
        for step in range(certain, certain + 3):
            state = ring.shards[0].step(1, position + step, [7 + step])
            for shard in ring.shards[1:]:
                shard.check_next(1, over_the_wire(state))
                state = shard.run_blocks(1, over_the_wire(state))
            logits = ring.shards[0].norm_and_head(1, over_the_wire(state))
            assert mx.array_equal(logits, ring.step(2, [7 + step]))
    ring.close()


def test_stage_when_it_has_no_copy_of_what_was_there_then_going_back_is_refused_and_nothing_moves(
    tmp_path: Path,
) -> None:
    ring = RingOfShards(tiny_folder(tmp_path / "model", **FORMS["sliding"]), (0, 6))
    [head] = ring.shards
    ring.prefill(1, PROMPT)
    head.embed_and_blocks(1, PROMPT)
    head.step(1, 80, [5, 6, 7])
    head.step(1, 81, [8])  # which settles it
    for position in (80, 81, 20):
        with pytest.raises(InvalidInput, match="goes back"):
            head.rewind(1, position)
        assert head.position(1) == 82
    ring.close()


def test_limits_when_steps_of_several_tokens_leave_a_window_in_another_order_then_only_what_stays_exact_counts(
    tmp_path: Path,
) -> None:
    """What differs by rounding would be carried on: no bound is given for it."""
    ring = RingOfShards(tiny_folder(tmp_path / "model", config=SLIDING), (0, 2, 6))
    for shard in ring.shards:
        shard.learn_steps()
        assert isinstance(shard.step_limits, StepLimits)
        assert shard.step_limits.bounded == shard.step_limits.exact
    ring.close()
