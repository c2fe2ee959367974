"""A frame at a lower position than its sequence's: what came after it was a guess, and leaves no trace."""

import random
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import pytest

from kafila_sidecar.errors import InvalidInput
from tests.exact.shards import RingOfShards, over_the_wire
from tests.exact.test_rows import FORMS
from tests.exact.test_tiny import CUTS, PROMPT
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

COUNT = 24
RIGHT = 0.7  # of the guesses


def checked(ring: RingOfShards, tokens: Sequence[int], position: int) -> list[int]:
    """The greedy tokens after each of `tokens`, which begin at `position`."""
    head = ring.shards[0]
    head.rewind(1, position)
    state = head.embed_and_blocks(1, tokens)
    for shard in ring.shards[1:]:
        state = shard.run_blocks(1, over_the_wire(state))
    logits = head.norm_and_head(1, over_the_wire(state), last_only=False)
    return [int(token) for token in mx.argmax(logits, axis=-1)]


def with_guesses(ring: RingOfShards, plain: Sequence[int], rng: random.Random) -> list[int]:
    """The greedy text where up to four tokens are guessed a circuit, some of them wrongly."""
    answer = [int(ring.step(1, PROMPT).argmax())]
    while len(answer) < COUNT:
        at = len(answer)
        guesses = [token if rng.random() < RIGHT else (token + 1) % 200 for token in plain[at : at + rng.randint(0, 4)]]
        picked = checked(ring, [answer[-1], *guesses], len(PROMPT) + at - 1)
        right = next((i for i, guess in enumerate(guesses) if guess != picked[i]), len(guesses))
        answer += picked[: right + 1]
    return answer[:COUNT]


@pytest.mark.parametrize("cuts", [CUTS[0], CUTS[3]], ids=str)
@pytest.mark.parametrize("form", [form for form in FORMS if form != "sliding"])
def test_ring_when_guesses_are_taken_back_then_the_text_is_the_one_without(
    tmp_path: Path, form: str, cuts: tuple[int, ...]
) -> None:
    folder = tiny_folder(tmp_path / "model", **FORMS[form])
    ring = RingOfShards(folder, cuts)
    plain = [int(ring.step(2, PROMPT).argmax())]
    while len(plain) < COUNT:
        plain.append(int(ring.step(2, plain[-1:]).argmax()))
    assert all(shard.can_rewind for shard in ring.shards)
    assert with_guesses(ring, plain, random.Random(7)) == plain
    ring.close()


def test_ring_when_a_cache_has_a_window_then_going_back_is_refused_and_nothing_moves(tmp_path: Path) -> None:
    ring = RingOfShards(tiny_folder(tmp_path / "model", **FORMS["sliding"]), (0, 6))
    [head] = ring.shards
    ring.step(1, PROMPT)
    assert not head.can_rewind
    with pytest.raises(InvalidInput, match="goes back"):
        head.rewind(1, 20)
    assert head.position(1) == len(PROMPT)
    ring.close()
