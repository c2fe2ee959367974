"""Several tokens a step through a ring of shards: right and wrong guesses, and the text is the one without."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from kafila_sidecar.runtime.shard.kv import SequenceCache
from kafila_sidecar.runtime.shard.limits import F32_LEAD, StepLimits
from kafila_sidecar.runtime.shard.picking import Guessed
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.shard.steps import SIZES, Standing, Trial, look
from kafila_sidecar.runtime.text.options import SamplingOptions
from kafila_sidecar.runtime.text.sample import Sampler
from tests.exact.shards import RingOfShards, over_the_wire
from tests.exact.test_rows import FORMS
from tests.exact.test_tiny import CUTS, PROMPT
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

COUNT = 40
RIGHT = 0.7  # of the guesses
MOST = max(SIZES)
VOCABULARY = 200
GREEDY = SamplingOptions(temperature=0.0)
OPTIONS = {
    "greedy": GREEDY,
    "penalties": SamplingOptions(temperature=0.0, repeat_penalty=1.3, repeat_last_n=7, frequency_penalty=0.2),
    "seed": SamplingOptions(temperature=1.0, seed=11, repeat_penalty=1.2),
    "another seed": SamplingOptions(temperature=0.8, top_k=10, seed=12, repeat_last_n=-1, presence_penalty=0.4),
}
Form = dict[str, Any]


def sampler(options: SamplingOptions) -> Sampler:
    return Sampler(options, PROMPT, VOCABULARY)


def plain(ring: RingOfShards, options: SamplingOptions) -> list[int]:
    """The text where every token goes round alone."""
    picks, answer = sampler(options), list[int]()
    ring.prefill(1, PROMPT[:-1])
    token = PROMPT[-1]
    while len(answer) < COUNT:
        token = picks.pick(ring.step(1, [token]))
        answer.append(token)
    ring.release(1)
    return answer


def stepped(shards: Sequence[Shard], tokens: Sequence[int], position: int, picks: Sampler, lead: float) -> list[int]:
    """The tokens that a step with guesses gives; none where the first one is not certain."""
    head, *others = shards
    state = head.step(1, position, tokens)
    for shard in others:
        [made] = shard.run_rows([(1, over_the_wire(state))], has_guesses=len(tokens) > 1)
        assert not isinstance(made, Exception)
        state = made
    true = head.check_guesses(Guessed(1, over_the_wire(state), picks, tokens[1:], lead))
    return list(true.tokens)


def guessed(
    ring: RingOfShards, options: SamplingOptions, text: Sequence[int], rng: random.Random, most: int, lead: float = 0.0
) -> list[int]:
    """The text where an oracle that errs guesses up to `most` tokens less one a step."""
    picks, answer, may_guess = sampler(options), list[int](), True
    ring.prefill(1, PROMPT[:-1])
    while len(answer) < COUNT:
        at = len(answer)
        ahead = text[at : at + rng.randint(0, most - 1)] if may_guess else []
        guesses = [token if rng.random() < RIGHT else (token + 1) % VOCABULARY for token in ahead]
        last = answer[-1] if answer else PROMPT[-1]
        kept = stepped(ring.shards, [last, *guesses], len(PROMPT) + at - 1, picks, lead if guesses else 0.0)
        may_guess = bool(kept)
        answer += kept
    ring.release(1)
    return answer[:COUNT]


def check(folder: Path, cuts: tuple[int, ...], options: SamplingOptions, *, seed: int = 7) -> None:
    ring = RingOfShards(folder, cuts)
    for shard in ring.shards:
        shard.learn_steps()
    text = plain(ring, options)
    most = min(shard.step_limits.exact for shard in ring.shards)
    assert most > 1
    assert guessed(ring, options, text, random.Random(seed), most) == text
    ring.close()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("form", ["f32", "bf16", "4 bits"])
def test_text_when_an_oracle_guesses_and_errs_then_it_is_the_one_without(
    tmp_path: Path, form: str, options: SamplingOptions
) -> None:
    check(tiny_folder(tmp_path / "model", **FORMS[form]), CUTS[3], options)


MORE: dict[str, Form] = {
    **{form: given for form, given in FORMS.items() if form != "sliding"},
    **{f"{kind} {dtype}": {"model_type": kind, "dtype": dtype} for kind in ("qwen3", "qwen2") for dtype in ("bf16",)},
}


@pytest.mark.long
@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize("form", MORE)
def test_text_when_families_cuts_and_seeds_change_then_it_is_the_one_without(
    tmp_path: Path, form: str, cuts: tuple[int, ...]
) -> None:
    folder = tiny_folder(tmp_path / "model", **MORE[form])
    for seed, options in enumerate(OPTIONS.values()):
        check(folder, cuts, options, seed=seed)


def test_text_when_attention_goes_token_by_token_then_it_is_the_one_without(tmp_path: Path) -> None:
    ring = RingOfShards(tiny_folder(tmp_path / "model"), CUTS[3])
    for shard in ring.shards:
        shard._steps.by_token = True
    text = plain(ring, GREEDY)
    assert guessed(ring, GREEDY, text, random.Random(5), MOST) == text
    ring.close()


def test_text_when_a_token_hardly_leads_then_it_is_picked_from_a_single_step(tmp_path: Path) -> None:
    ring = RingOfShards(tiny_folder(tmp_path / "model"), CUTS[3])
    text = plain(ring, GREEDY)
    for lead in (F32_LEAD, 0.05, 0.5):
        assert guessed(ring, GREEDY, text, random.Random(3), MOST, lead) == text
    ring.close()


def test_caches_when_one_has_a_window_in_which_steps_round_otherwise_then_no_step_has_guesses(tmp_path: Path) -> None:
    ring = RingOfShards(tiny_folder(tmp_path / "model", **FORMS["sliding"]), (0, 2, 6))
    for shard in ring.shards:
        shard.learn_steps()
    assert (1, 1) in [(shard.step_limits.exact, shard.step_limits.bounded) for shard in ring.shards]
    assert not any(shard.all_rewind for shard in ring.shards)
    ring.close()


class RoundingTrial(Trial):
    """A device whose numbers change when a step has more than so many tokens, or attends to several at once."""

    def __init__(self, *, exact: int, attends_at_once: int, rows: int = MOST) -> None:
        self.exact, self.attends_at_once, self.rows, self.dtype = exact, attends_at_once, rows, mx.bfloat16

    def run(self, stands: Sequence[Standing], tokens: range, *, by_token: bool = False) -> list[mx.array]:
        count = len(tokens)
        most = self.rows if len(stands) > 1 else self.exact if by_token else min(self.exact, self.attends_at_once)
        return [mx.array([[[float(token)] for token in tokens]]) + (0.5 if count > most else 0.0)]


@pytest.mark.parametrize(
    ("trial", "limits", "by_token"),
    [
        pytest.param(RoundingTrial(exact=8, attends_at_once=8), StepLimits(8, 8, 8), False, id="all"),
        pytest.param(RoundingTrial(exact=8, attends_at_once=3), StepLimits(8, 8, 8), True, id="attention"),
        pytest.param(RoundingTrial(exact=3, attends_at_once=8, rows=2), StepLimits(3, 3, 2), False, id="products"),
        pytest.param(RoundingTrial(exact=1, attends_at_once=1, rows=1), StepLimits(1, 1, 1), False, id="none"),
    ],
)
def test_steps_when_they_round_otherwise_from_some_size_on_then_that_is_found(
    trial: Trial, limits: StepLimits, by_token: bool
) -> None:
    begun = (SequenceCache([], ()),)
    assert look(trial, begun, by_token=True, rows=True) == (limits, by_token)
