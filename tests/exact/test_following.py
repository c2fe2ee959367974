"""Tokens that follow one another where one shard has all the blocks, each begun before the one before is known: the
same as one by one, whatever comes in between."""

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import pytest

from kafila_sidecar.errors import NotFound
from kafila_sidecar.runtime.shard.following import Follow
from kafila_sidecar.runtime.shard.picking import Picked
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.text.sample import Sampler
from tests.exact.shards import load_shard
from tests.exact.test_ahead import DRAWN, FORMS, GREEDY
from tests.exact.test_tiny import CUTS, PROMPT
from tests.support.tiny import tiny_folder

pytestmark = pytest.mark.mlx

WHOLE = (CUTS[0][0], CUTS[0][-1])
COUNT = 24


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("following")


class FollowedAnswer:
    """One sequence's answer, token by token."""

    def __init__(self, shard: Shard, sequence: int, prompt: Sequence[int], sampler: Sampler) -> None:
        self._shard, self._sequence, self._sampler = shard, sequence, sampler
        self.tokens = [*prompt]
        self.scores: list[object] = []
        shard.embed_and_blocks(sequence, prompt[:-1])

    def follow(self, more: int, top: int | None = None) -> None:
        """One token, with so many after it begun as may be."""
        row = Follow(self._sequence, len(self.tokens) - 1, self.tokens[-1], self._sampler, more, top)
        picked = self._shard.follow(row)
        assert isinstance(picked, Picked)
        assert picked.state is None
        self.tokens.append(picked.token)
        self.scores.append(picked.score)

    def prepare(self) -> None:
        self._shard.prepare_follow(self._sequence)


def after(shard: Shard, answer: FollowedAnswer) -> bytes:
    """The state of the next token of another run, which only the caches tell from another."""
    return bytes(shard.embed_and_blocks(answer._sequence, answer.tokens[-1:]).payload)


@pytest.mark.parametrize("form", ["f32", "bf16", "4 bits"])
@pytest.mark.parametrize("options", [GREEDY, DRAWN], ids=["greedy", "drawn, with penalties"])
def test_follow_when_later_tokens_are_begun_then_they_are_those_of_single_steps(
    folders: Path, form: str, options: object
) -> None:
    shard = load_shard(tiny_folder(folders / form, **FORMS[form]), *WHOLE, head=True)
    told = []
    for sequence, ahead in enumerate((False, True), 1):
        answer = FollowedAnswer(shard, sequence, PROMPT[:9], Sampler(options, PROMPT[:9]))  # type: ignore[arg-type]
        for left in reversed(range(COUNT)):
            answer.follow(left if ahead else 0, top=2)
            if ahead and left % 3:
                answer.prepare()
        told.append((answer.tokens, answer.scores, after(shard, answer)))
    assert told[0] == told[1]
    shard.close()


def test_follow_when_something_else_comes_then_what_was_begun_is_forgotten(folders: Path) -> None:
    shard = load_shard(tiny_folder(folders / "f32"), *WHOLE, head=True)
    left = FollowedAnswer(shard, 1, PROMPT[:9], Sampler(GREEDY, PROMPT[:9]))
    plain = FollowedAnswer(shard, 2, PROMPT[:9], Sampler(GREEDY, PROMPT[:9]))
    for answer, more in ((left, 5), (plain, 0)):
        answer.follow(more)
    left.prepare()
    assert shard.position(1) == shard.position(2)
    shard.rewind(1, 5)
    shard.rewind(2, 5)
    assert after(shard, left) == after(shard, plain)
    shard.close()


def test_follow_when_the_options_change_then_it_goes_on_from_the_token_that_was_told(folders: Path) -> None:
    shard = load_shard(tiny_folder(folders / "f32"), *WHOLE, head=True)
    changing = FollowedAnswer(shard, 1, PROMPT[:9], Sampler(GREEDY, PROMPT[:9]))
    plain = FollowedAnswer(shard, 2, PROMPT[:9], Sampler(GREEDY, PROMPT[:9]))
    for at in range(9):
        changing.follow(9, top=at % 2)
        plain.follow(0)
    assert changing.tokens == plain.tokens
    shard.close()


def test_follow_when_the_sequence_is_over_then_nothing_is_left(folders: Path) -> None:
    shard = load_shard(tiny_folder(folders / "f32"), *WHOLE, head=True)
    answer = FollowedAnswer(shard, 1, PROMPT[:9], Sampler(GREEDY, PROMPT[:9]))
    answer.follow(5)
    shard.release(1)
    answer.prepare()
    assert shard.active == 0
    with pytest.raises(NotFound):
        answer.follow(5)
    shard.close()


def test_follow_when_all_blocks_are_on_a_processor_then_it_is_not_for_it(folders: Path) -> None:
    """There computing takes far longer than building, and what nobody wants would be computed at an answer's end."""
    shard = load_shard(tiny_folder(folders / "f32"), *WHOLE, head=True)
    assert mx.default_device() != mx.Device(mx.cpu) or not shard.runs_ahead
    shard.close()
