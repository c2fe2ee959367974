"""Several states of one sequence on their way round at once, and attempts: what is void is left out, not believed."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from kafila_sidecar.runtime.shard.finite import NotFinite
from kafila_sidecar.serving.frames.hop import frame_of
from kafila_sidecar.serving.frames.wire import Frame, FrameKind, RulesBroken, encode
from tests.sidecar.serving.rings import EPOCH, HEAD, Round, settle, state


@pytest.fixture
async def two() -> AsyncIterator[Round]:
    made = Round(workers=2)
    yield made
    await made.end()


async def flown(ring: Round, first: int, count: int, *, value: int = 0) -> list[int]:
    """So many tokens' states, one behind another without waiting; the first bytes that came back."""
    sent = [await ring.ring.set_out(1, state(at, value + at)) for at in range(first, first + count)]
    return [(await ring.ring.back(1, one)).state.payload[0] for one in sent]


async def test_ring_when_states_fly_one_behind_another_then_each_comes_back_in_order(two: Round) -> None:
    await two.token(1, 0)
    assert await flown(two, 1, 6) == [3, 4, 5, 6, 7, 8]
    assert [shard.at for shard in two.shards] == [{1: 7}, {1: 7}]


async def test_ring_when_an_attempt_is_void_then_what_comes_of_it_is_dropped_and_the_next_one_is_right(
    two: Round,
) -> None:
    await two.token(1, 0)
    for _ in range(3):
        certain = await two.ring.set_out(1, state(1, value=10))
        for at in (2, 3, 4):
            await two.ring.set_out(1, state(at, value=100))
        assert (await two.ring.back(1, certain)).state.payload[0] == 12
        two.ring.void(1)
        assert await two.token(1, 2, value=20) == 22
        assert [shard.at for shard in two.shards] == [{1: 3}, {1: 3}]
    assert two.errors == []


async def test_stage_when_a_new_attempt_comes_then_it_leaves_out_what_waits_of_the_one_before(two: Round) -> None:
    await two.token(1, 0)
    out = two.wires[0].ends[0][0]
    assert await two.token(1, 1) == 2
    out.stalled = True  # so that all of it comes to the stage at once
    going = [asyncio.ensure_future(two.ring.set_out(1, state(at))) for at in range(2, 10)]
    await settle()
    two.ring.void(1)
    going.append(asyncio.ensure_future(two.ring.set_out(1, state(2, value=7))))
    await settle()
    before = two.shards[0].runs
    out.stalled = False
    out.stream.acknowledged()
    *_, right = await asyncio.gather(*going)
    assert (await two.ring.back(1, right)).state.payload[0] == 9
    assert two.shards[0].runs - before < 8
    assert two.shards[1].at == {1: 3}


async def test_stage_when_a_new_attempt_leaves_out_what_was_certain_then_its_sender_broke_the_rules() -> None:
    made = Round(workers=1)
    stream = await made.wires[0].open()
    for at, attempt in ((0, 0), (1, 0), (2, 1)):
        frame = frame_of(state(at), epoch=EPOCH, sequence=1, needs_output=False, attempt=attempt)
        await stream.send(*encode(frame))
    await settle()
    assert [error.by for error in made.errors if isinstance(error, RulesBroken)] == [HEAD]
    assert made.held == [set()]
    await made.end()


async def test_stage_when_a_void_guess_made_no_numbers_then_the_sequence_goes_on(two: Round) -> None:
    await two.token(1, 0)
    two.shards[0].fails = NotFinite("infinity")
    await two.ring.set_out(1, state(1))
    await asyncio.sleep(0)
    two.ring.void(1)
    await settle()
    two.shards[0].fails = None
    assert await two.token(1, 1, value=1) == 3
    assert two.errors == []


async def test_head_when_a_stage_tells_of_a_void_attempt_that_it_made_no_numbers_then_it_is_not_believed(
    two: Round,
) -> None:
    await two.token(1, 0)
    two.ring.void(1)
    told = Frame(FrameKind.NOT_FINITE, epoch=EPOCH, sequence=1, position=1)
    await two.wires[2].ends[0][0].stream.send(*encode(told))
    assert await two.token(1, 1) == 2
    await two.wires[2].ends[0][0].stream.send(*encode(replace(told, attempt=1)))
    await settle()
    with pytest.raises(NotFinite):
        await two.token(1, 2)


async def test_stage_when_a_guess_made_no_numbers_then_the_token_before_it_by_itself_tells_whether_it_did(
    two: Round,
) -> None:
    await two.token(1, 0)
    two.shards[1].fails = NotFinite("infinity")
    with pytest.raises(NotFinite):
        await two.ring.go_round(1, state(1, tokens=3), is_prompt=False, has_guesses=True)
    two.shards[1].fails = None
    two.ring.void(1)
    assert await two.token(1, 1, value=1) == 3
    assert [shard.at for shard in two.shards] == [{1: 2}, {1: 2}]
    assert two.errors == []


async def test_rest_when_guesses_are_still_on_their_way_then_the_next_answer_goes_on_from_what_was_certain(
    two: Round,
) -> None:
    await two.token(1, 0)
    for at in (1, 2, 3):
        await two.ring.set_out(1, state(at, value=100))
    two.ring.void(1)
    await two.ring.rest(1)
    assert await two.token(1, 1, value=5) == 7
    await settle()
    assert [shard.at for shard in two.shards] == [{1: 2}, {1: 2}]
    await two.ring.release(1)
    await settle()
    assert two.held == [set(), set()]
    assert await two.token(1, 0) == 2  # another sequence of that number begins with attempt 0
    assert two.errors == []


async def test_ring_when_it_breaks_while_states_fly_then_all_of_them_hear_of_it(two: Round) -> None:
    await two.token(1, 0)
    two.wires[2].ends[0][0].stalled = True
    sent = [await two.ring.set_out(1, state(at)) for at in (1, 2, 3)]
    await settle()
    two.wires[1].cut()
    await settle()
    assert all(one.returned.done() for one in sent)
    await two.ring.release(1)
    assert two.held == [set(), set()]
