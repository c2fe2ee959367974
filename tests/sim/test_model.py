"""The played model tells whatever goes wrong with the tokens that it is fed."""

from collections.abc import Callable
from itertools import combinations, pairwise

import pytest

from kafila_planner import Plan, make_plan, problem_from_json
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.runtime.shard.picking import Pick
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.runtime.text.options import SamplingOptions
from kafila_sidecar.runtime.text.sample import Sampler
from tests.sim.machines import hardware_of
from tests.sim.model import BLOCK_HELD_BYTES, BLOCKS, HEAD_HELD_BYTES, TERMS, HashShard, can_hold, right_answer

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


@pytest.mark.parametrize(
    ("memories", "is_enough"),
    [
        ([BLOCKS * BLOCK_HELD_BYTES + HEAD_HELD_BYTES], True),
        ([BLOCKS * BLOCK_HELD_BYTES + HEAD_HELD_BYTES - 1], False),
        ([4 * BLOCK_HELD_BYTES + HEAD_HELD_BYTES, 4 * BLOCK_HELD_BYTES], True),
        ([4 * BLOCK_HELD_BYTES, 4 * BLOCK_HELD_BYTES + HEAD_HELD_BYTES - 1], False),
        ([4 * BLOCK_HELD_BYTES + HEAD_HELD_BYTES, 4 * BLOCK_HELD_BYTES - 1, BLOCK_HELD_BYTES], True),
        ([HEAD_HELD_BYTES - 1] * 20, False),
    ],
)
def test_memory_when_the_planner_finds_a_plan_then_it_is_enough_and_else_too_little(
    memories: list[int], is_enough: bool
) -> None:
    names = [f"machine{number}" for number in range(len(memories))]
    quick = {name: hardware_of(name, 1, memory).entry() for name, memory in zip(names, memories, strict=True)}
    edges = [{"between": list(pair), "rtt_s": 0.02, "path": "direct"} for pair in combinations(names, 2)]
    members = [{**entry, "name": name} for name, entry in quick.items()]
    problem = {**TERMS.fields(names), "anchor": names[0], "members": members, "edges": edges}
    assert isinstance(make_plan(problem_from_json(problem)), Plan) is is_enough
    assert can_hold(memories) is is_enough
