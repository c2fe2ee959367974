"""Ring, workers and hops joined in memory: frames go round, breaks go round, nothing stays behind."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from kafila_sidecar.errors import InvalidInput, KafilaError, NotFound, TimedOut, Unavailable
from kafila_sidecar.net.errors import LinkLost
from kafila_sidecar.serving.hop import HopSender, frame_of, state_of
from kafila_sidecar.serving.ring import Ring
from kafila_sidecar.serving.wire import Frame, FrameKind, encode
from kafila_sidecar.serving.worker import Bounds
from tests.sidecar.serving.rings import EPOCH, Round, settle, state


@pytest.fixture
async def two() -> AsyncIterator[Round]:
    made = Round(workers=2)
    yield made
    await made.end()


async def test_ring_when_a_state_goes_round_then_every_stage_had_it_once_in_order(two: Round) -> None:
    for position in range(5):
        assert await two.token(1, position, value=10) == 12
    assert [shard.at for shard in two.shards] == [{1: 5}, {1: 5}]


async def test_ring_when_a_state_returns_then_each_stages_times_ride_along(two: Round) -> None:
    back = await two.ring.go_round(1, state(0), is_prompt=True)
    assert len(back.stages) == 2
    assert all(0 <= stage.compute_s <= stage.residence_s < 5 for stage in back.stages)


async def test_ring_when_several_sequences_run_then_each_gets_its_own(two: Round) -> None:
    async def ask(sequence: int) -> list[int]:
        return [await two.token(sequence, position, value=10 * sequence) for position in range(20)]

    answers = await asyncio.gather(*(ask(sequence) for sequence in (1, 2, 3)))
    assert answers == [[10 * sequence + 2] * 20 for sequence in (1, 2, 3)]


async def test_ring_when_a_chunk_wants_no_output_then_the_last_stage_absorbs_it(two: Round) -> None:
    await two.ring.send(1, state(0, tokens=3), wants_output=False)
    assert await two.token(1, 3) == 2
    assert two.shards[0].absorbed == []
    assert two.shards[1].absorbed == [1]


async def test_ring_when_the_head_is_alone_then_the_state_comes_straight_back() -> None:
    ring = Ring(epoch=EPOCH, hop=None)
    sent = state(0, 7)
    assert (await ring.go_round(1, sent, is_prompt=True)).state is sent
    await ring.release(1)
    ring.fail(Unavailable("bob was lost"))
    with pytest.raises(Unavailable, match="bob"):
        await ring.go_round(1, sent, is_prompt=False)


async def test_release_when_said_then_it_goes_round_and_others_stay(two: Round) -> None:
    await two.token(1, 0)
    await two.token(2, 0)
    await two.ring.release(1)
    assert await two.token(2, 1) == 2
    assert two.held == [{2}, {2}]
    await two.ring.release(2)
    await settle()
    assert two.held == [set(), set()]


async def test_frame_when_of_an_old_epoch_then_it_is_dropped_by_worker_and_head(two: Round) -> None:
    await two.token(1, 0)
    old = frame_of(state(0), epoch=EPOCH - 1, sequence=9, needs_output=True)
    out, back = two.wires[0].ends[0][0].stream, two.wires[2].ends[0][0].stream
    waiting = asyncio.ensure_future(two.token(1, 1))
    await back.send(*encode(replace(old, sequence=1)))
    await out.send(*encode(old))
    assert await waiting == 2
    assert two.held == [{1}, {1}]


async def test_frame_when_nobody_waits_for_it_then_the_head_drops_it(two: Round) -> None:
    await two.token(1, 0)
    back = two.wires[2].ends[0][0].stream
    await back.send(*encode(frame_of(state(5), epoch=EPOCH, sequence=77, needs_output=True)))
    await back.send(*encode(Frame(kind=FrameKind.RELEASE, epoch=EPOCH, sequence=1)))
    assert await two.token(1, 1) == 2


async def test_fault_when_told_then_whoever_waits_and_whoever_comes_gets_it(two: Round) -> None:
    await two.token(1, 0)
    await two.token(2, 0)
    two.wires[2].ends[0][0].stalled = True  # the last stage's answers don't leave it
    waiting = [asyncio.ensure_future(two.token(sequence, 1)) for sequence in (1, 2)]
    await settle()
    two.ring.fail(Unavailable("bob was lost"))
    for one in (*waiting, two.token(3, 0)):
        with pytest.raises(Unavailable, match="bob"):
            await one
    await two.ring.release(1)


@pytest.mark.parametrize("broken", [0, 1, 2])
async def test_ring_when_any_link_is_lost_then_all_wait_no_more_and_no_stage_keeps_anything(broken: int) -> None:
    made = Round(workers=2)
    await made.token(1, 0)
    await made.token(2, 0)
    waiting = asyncio.ensure_future(made.token(1, 1))
    made.wires[broken].cut()
    async with asyncio.timeout(1):
        with pytest.raises(Unavailable, match=r"interrupted|lost"):
            await waiting
    await settle()
    assert made.held == [set(), set()]
    with pytest.raises(Unavailable, match="interrupted"):
        await made.token(2, 1)
    await made.end()


@pytest.mark.parametrize("broken", [0, 1, 2])
async def test_ring_when_the_link_is_back_then_new_sequences_run(broken: int) -> None:
    made = Round(workers=2)
    await made.token(1, 0)
    made.wires[broken].cut()
    await settle()
    with pytest.raises(Unavailable):
        await made.token(2, 0)
    await made.ring.release(2)
    made.wires[broken].down = False
    await settle()
    with pytest.raises(Unavailable, match="interrupted"):
        await made.token(1, 1)  # what the stages forgot is not sent to them
    assert not any(isinstance(error, NotFound) for error in made.errors)
    assert await made.token(3, 0, value=1) == 3
    assert await made.token(3, 1, value=1) == 3
    await made.ring.release(1)
    await settle()
    assert made.held == [{3}, {3}]
    await made.end()


@pytest.mark.parametrize("end", [0, 1], ids=["sender", "receiver"])
@pytest.mark.parametrize("wire", [0, 1, 2])
async def test_ring_when_only_one_end_of_a_stream_breaks_then_all_stages_hear_of_it(wire: int, end: int) -> None:
    made = Round(workers=2)
    await made.token(1, 0)
    made.wires[wire].ends[0][end].stream.fail(LinkLost("the link is lost, as this end sees it"))
    await settle()
    assert made.held == [set(), set()]
    with pytest.raises(Unavailable, match="interrupted"):
        await made.token(1, 1)
    assert await made.token(2, 0) == 2
    await made.end()


async def test_ring_when_a_stage_can_not_go_on_then_its_error_is_told_there_and_the_head_is_woken(two: Round) -> None:
    await two.token(1, 0)
    two.shards[1].fails = InvalidInput("no such shape")
    with pytest.raises(Unavailable, match="interrupted"):
        await two.token(1, 1)
    await settle()
    assert any(isinstance(error, InvalidInput) for error in two.errors)
    assert two.held == [set(), set()]


async def test_ring_when_nothing_comes_back_then_it_times_out() -> None:
    made = Round(workers=2, decode_deadline_s=0.05)
    await made.token(1, 0)
    for wire in made.wires:
        for ours, _ in wire.ends:
            ours.stalled = True
    with pytest.raises(TimedOut, match="nothing back"):
        await made.token(1, 1)
    await made.end()


async def test_hop_when_the_next_stage_takes_nothing_then_it_times_out_and_opens_anew() -> None:
    made = Round(workers=2, send_deadline_s=0.05)
    await made.token(1, 0)
    made.wires[0].ends[0][0].stalled = True
    with pytest.raises(TimedOut, match="w1 took no frame"):
        await made.token(1, 1)
    await settle()
    assert made.held == [set(), set()]
    assert await made.token(2, 0) == 2
    await made.end()


@pytest.mark.parametrize(("tokens", "arrived"), [(60, 1), (40_000, 40_001)])
async def test_send_when_its_caller_is_cancelled_then_the_frame_goes_whole_or_not_at_all_and_the_stream_stands(
    tokens: int, arrived: int
) -> None:
    made = Round(workers=2, bounds=Bounds(sequences=4, tokens=50_000))
    await made.token(1, 0)
    end = made.wires[0].ends[0][0]
    end.stalled = True
    sending = asyncio.ensure_future(made.ring.send(1, state(1, tokens=tokens), wants_output=False))
    await settle()
    sending.cancel()
    await asyncio.wait([sending])
    assert sending.cancelled()
    end.stalled = False
    end.stream.acknowledged()
    assert await made.token(2, 0) == 2
    assert made.shards[0].at == {1: arrived, 2: 1}
    assert len(made.wires[0].ends) == 1
    await made.end()


async def test_hop_when_closed_then_nothing_opens_it_again() -> None:
    made = Round(workers=1)
    hop = HopSender(peer="w1", open_stream=made.wires[0].open)
    await hop.send(frame_of(state(0), epoch=EPOCH, sequence=1, needs_output=False))
    hop.close()
    with pytest.raises(Unavailable, match="w1"):
        await hop.send(frame_of(state(0), epoch=EPOCH, sequence=1, needs_output=False))
    assert len(made.wires[0].ends) == 1
    await made.end()


@pytest.mark.parametrize(
    "frames",
    [
        [frame_of(state(0), epoch=EPOCH, sequence=i, needs_output=False) for i in range(3)],
        [frame_of(state(0, tokens=9), epoch=EPOCH, sequence=1, needs_output=False)],
        [frame_of(state(1), epoch=EPOCH, sequence=1, needs_output=False)],
        [replace(frame_of(state(0), epoch=EPOCH, sequence=1, needs_output=False), shape=(4, 1, 1))],
        [replace(frame_of(state(0), epoch=EPOCH, sequence=1, needs_output=False), shape=(4, 4), dtype="bfloat16",
                 payload=memoryview(bytes(32)))],
    ],
    ids=["too many sequences", "too long", "unknown sequence", "a batch", "two dimensions"],
)  # fmt: skip
async def test_worker_when_the_stage_before_sends_what_was_not_planned_then_refused(frames: list[Frame]) -> None:
    made = Round(workers=1, bounds=Bounds(sequences=2, tokens=8))
    stream = await made.wires[0].open()
    for frame in frames:
        await stream.send(*encode(frame))
    await settle()
    assert [type(error) for error in made.errors if not isinstance(error, Unavailable)] in ([InvalidInput], [NotFound])
    assert made.held == [set()]
    await made.end()


async def test_worker_when_bytes_are_no_frame_then_refused() -> None:
    made = Round(workers=1)
    stream = await made.wires[0].open()
    await stream.send(b"\xff" * 40)
    await settle()
    assert isinstance(made.errors[0], InvalidInput)
    await made.end()


async def test_worker_when_a_second_stream_comes_early_then_it_waits_until_the_first_is_forgotten() -> None:
    made = Round(workers=1)
    first, second = await made.wires[0].open(), await made.wires[0].open()
    frame = frame_of(state(0), epoch=EPOCH, sequence=1, needs_output=False)
    await first.send(*encode(frame))
    await second.send(*encode(replace(frame, sequence=2)))
    await settle()
    assert made.held == [{1}]
    first.reset()
    await settle()
    assert made.held == [{2}]
    await made.end()


def test_state_when_framed_and_read_back_then_the_same_bytes() -> None:
    sent = state(7, 3, tokens=2)
    back = state_of(frame_of(sent, epoch=1, sequence=2, needs_output=True))
    assert (bytes(back.payload), back.shape, back.position) == (bytes(sent.payload), sent.shape, 7)


def test_state_when_the_frame_is_none_then_invalid() -> None:
    with pytest.raises(KafilaError):
        state_of(Frame(kind=FrameKind.RELEASE, epoch=1, sequence=1))
