"""Frames of one token that run ahead of what is known, through rings of shards: every stage computes single steps, and
each certain token's logits are those of a ring without guesses, bit for bit, whatever is dropped early or late."""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx
import pytest

from kafila_sidecar.runtime.shard.state import HiddenState
from tests.exact.shards import RingOfShards, over_the_wire
from tests.exact.test_rows import FORMS
from tests.exact.test_tiny import PROMPT
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

COUNT = 24
RIGHT = 0.7  # of the guesses
MOST = 5  # on their way
RINGS = {"two": (0, 3, 6), "three": (0, 2, 4, 6), "five": (0, 1, 2, 3, 4, 6)}


@dataclass
class Pipeline:
    """What waits in front of each stage, the head last; whoever has something may be next."""

    ring: RingOfShards
    rng: random.Random
    attempt: int = 0
    void: int = 0
    lines: list[deque[tuple[int, HiddenState]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines = [deque() for _ in self.ring.shards]

    def send(self, position: int, token: int) -> None:
        self._put(0, self.attempt, self.ring.shards[0].step(1, position, [token]))

    def move(self) -> HiddenState | None:
        """One stage runs what it has waited with longest; what came back to the head, unless that is void."""
        place = self.rng.choice([place for place, line in enumerate(self.lines) if line])
        attempt, state = self.lines[place].popleft()
        if place + 1 < len(self.lines):
            self._put(place + 1, attempt, self.ring.shards[place + 1].run_blocks(1, over_the_wire(state)))
            return None
        return state if attempt == self.attempt else None

    def _put(self, place: int, attempt: int, state: HiddenState) -> None:
        """A stage that finds a newer attempt leaves out what waits of older ones, if it looks."""
        line = self.lines[place]
        if self.rng.random() < 0.5:
            for one in [one for one in line if one[0] != attempt]:
                line.remove(one)
                self.void += 1
        line.append((attempt, state))


def ran_ahead(ring: RingOfShards, text: Sequence[int], plain: Sequence[mx.array], rng: random.Random) -> int:
    """Fed the text, with guesses behind each token of it; how many frames were left out."""
    pipeline = Pipeline(ring, rng)
    ring.prefill(1, PROMPT[:-1])
    first = len(PROMPT) - 1
    at, ahead = 0, list[int]()  # tokens that are certain, and what was guessed behind them
    pipeline.send(first, text[0])
    while at < COUNT:
        if len(ahead) < MOST and at + len(ahead) + 1 < len(text) and rng.random() < 0.6:
            coming = text[at + len(ahead) + 1]
            ahead.append(coming if rng.random() < RIGHT else (coming + 1) % 200)
            pipeline.send(first + at + len(ahead), ahead[-1])
        elif any(pipeline.lines) and (back := pipeline.move()) is not None:
            assert back.position == first + at
            assert mx.array_equal(ring.shards[0].norm_and_head(1, over_the_wire(back)), plain[at])
            at += 1
            if ahead and ahead[0] == text[at]:
                ahead.pop(0)
                continue
            if ahead:
                ahead.clear()
                pipeline.attempt += 1
            pipeline.send(first + at, text[at])
    return pipeline.void


@pytest.mark.parametrize("cuts", RINGS.values(), ids=RINGS)
@pytest.mark.parametrize("form", [form for form in FORMS if form != "sliding"])
def test_logits_when_wrong_guesses_run_ahead_then_those_without_bit_for_bit(
    tmp_path: Path, form: str, cuts: tuple[int, ...]
) -> None:
    ring = RingOfShards(tiny_folder(tmp_path / "model", **FORMS[form]), cuts)
    text = [PROMPT[-1], *(int(token) for token in mx.random.randint(0, 200, (COUNT + MOST,), key=mx.random.key(1)))]
    ring.prefill(1, PROMPT[:-1])
    plain = [ring.step(1, [token]) for token in text[:COUNT]]
    ring.release(1)
    assert ran_ahead(ring, text, plain, random.Random(5)) > 0
    ring.close()
