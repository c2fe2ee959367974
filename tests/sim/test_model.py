"""The played model tells whatever goes wrong with the tokens that it is fed."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.shard.picking import Pick
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.runtime.text.options import SamplingOptions
from kafila_sidecar.runtime.text.sample import Sampler
from tests.sim.model import BLOCKS, HashShard, right_answer

PROMPT = (5, 9, 11)


def said(shards: list[HashShard], *fed: tuple[int, ...]) -> int:
    """The token that follows the last chunk, through these stages in order."""
    token = -1
    for chunk in fed:
        state = shards[0].embed_and_blocks(1, chunk)
        for shard in shards[1:]:
            state = shard.run_blocks(1, state)
        [picked] = shards[0].pick([Pick(1, state, Sampler(SamplingOptions()), goes_on=False)])
        token = picked.token
    return token


@pytest.mark.parametrize("cuts", [(0, BLOCKS), (0, 3, BLOCKS), (0, 1, 2, BLOCKS)])
@pytest.mark.parametrize("chunks", [(PROMPT,), ((5,), (9, 11)), ((5,), (9,), (11,))])
def test_token_when_blocks_and_chunks_are_cut_anyhow_then_it_is_the_whole_models(
    cuts: tuple[int, ...], chunks: tuple[tuple[int, ...], ...]
) -> None:
    stages = [HashShard(start, end) for start, end in pairwise(cuts)]
    assert said(stages, *chunks) == right_answer(PROMPT, 1)[0]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda: said([HashShard(0, BLOCKS)], (5, 9)), id="lost"),
        pytest.param(lambda: said([HashShard(0, BLOCKS)], (5, 9, 9, 11)), id="doubled"),
        pytest.param(lambda: said([HashShard(0, BLOCKS)], (9, 5, 11)), id="out of order"),
        pytest.param(lambda: said([HashShard(0, 3), HashShard(4, BLOCKS)], PROMPT), id="a block left out"),
    ],
)
def test_token_when_something_is_wrong_then_it_is_another(wrong: Callable[[], int]) -> None:
    assert wrong() != right_answer(PROMPT, 1)[0]


def test_stage_when_a_state_is_not_the_next_then_it_is_refused() -> None:
    shard = HashShard(0, BLOCKS)
    state = shard.embed_and_blocks(1, PROMPT)
    with pytest.raises(InvalidInput, match="came to a sequence"):
        shard.run_blocks(1, HiddenState(state.payload, state.dtype, state.shape, 1))
