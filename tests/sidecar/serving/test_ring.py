"""Ring, workers and hops joined in memory: frames go round, breaks go round, nothing stays behind."""

import asyncio
import math
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from kafila_sidecar.errors import InvalidInput, KafilaError, NotFound, TimedOut, Unavailable
from kafila_sidecar.net.errors import LinkLost
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.runtime.shard.finite import NotFinite
from kafila_sidecar.runtime.shard.limits import StepLimits
from kafila_sidecar.runtime.shard.state import HiddenState
from kafila_sidecar.serving.frames.hop import HopSender, frame_of, limits_frame, state_of
from kafila_sidecar.serving.frames.wire import Frame, FrameKind, RulesBroken, Timing, decode, encode, most_bytes
from kafila_sidecar.serving.ring import Ring
from kafila_sidecar.serving.worker import CHUNKS_IN_LINE, Bounds
from tests.sidecar.serving.rings import EPOCH, HEAD, LAYOUT, WIDTH, Round, settle, state
from tests.sidecar.serving.streams import StreamWire


def frame(of: HiddenState | None = None, sequence: int = 1) -> Frame:
    """A frame that wants no output."""
    return frame_of(of or state(0), epoch=EPOCH, sequence=sequence, needs_output=False)


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


async def test_rest_when_nobody_waits_for_what_is_under_way_then_it_overtakes_nothing_and_the_next_is_its_own(
    two: Round,
) -> None:
    await two.token(1, 0, tokens=4)
    going = asyncio.ensure_future(two.ring.go_round(1, state(4, value=50), is_prompt=False))
    await asyncio.sleep(0)
    await two.ring.send(2, state(0, tokens=3), wants_output=False)
    going.cancel()
    await asyncio.wait([going])
    assert two.ring.sent(1) == 5
    await two.ring.rest(1)
    await settle()
    assert [one.resting for one in two.workers] == [1, 1]
    await two.ring.settled(1)
    two.ring.goes_on(1, 3)
    assert (two.ring.sent(1), await two.token(1, 3, value=10)) == (3, 12)
    assert [shard.at[1] for shard in two.shards] == [4, 4]


async def test_ring_when_a_chunk_wants_no_output_then_the_last_stage_absorbs_it(two: Round) -> None:
    await two.ring.send(1, state(0, tokens=3), wants_output=False)
    assert await two.token(1, 3) == 2
    assert two.shards[0].absorbed == []
    assert two.shards[1].absorbed == [1]


async def test_stage_when_a_run_had_several_rows_then_all_that_came_of_it_goes_on_at_once(two: Round) -> None:
    four = (1, 2, 3, 4)
    await asyncio.gather(*(two.token(number, 0) for number in four))
    before = [
        (shard.runs_of_rows, wire.ends[0][0].writes) for shard, wire in zip(two.shards, two.wires[1:], strict=True)
    ]
    assert await asyncio.gather(*(two.token(number, 1, value=number) for number in four)) == [3, 4, 5, 6]
    for shard, wire, (runs, writes) in zip(two.shards, two.wires[1:], before, strict=True):
        assert shard.runs_of_rows - runs < len(four)
        assert wire.ends[0][0].writes - writes == shard.runs_of_rows - runs
    assert two.shards[1].most_rows == 3


@pytest.mark.parametrize("last", [frame(state(0), 2), Frame(kind=FrameKind.RELEASE, epoch=EPOCH, sequence=7)])
async def test_stage_when_frames_left_together_then_it_runs_none_before_the_last_is_there(last: Frame) -> None:
    made = Round(workers=1)
    stream = await made.wires[0].open()
    await stream.send(*encode(replace(frame(state(0), 1), with_next=True)))
    await settle()
    assert made.held == [set()]
    await stream.send(*encode(last))
    await settle()
    assert made.held == [{1, 2} if last.kind is FrameKind.ACTIVATION else {1}]
    await made.end()


async def test_stage_when_more_are_said_to_come_than_may_wait_then_it_runs_those_that_are_there() -> None:
    made = Round(workers=1, bounds=Bounds(sequences=2, tokens=64, chunk_tokens=2))
    stream = await made.wires[0].open()
    frames = CHUNKS_IN_LINE + 2
    for position in range(0, 2 * frames, 2):
        await stream.send(*encode(replace(frame(state(position, tokens=2)), with_next=True)))
    await settle()
    assert made.shards[0].at[1] == 2 * frames
    await made.end()


async def test_hop_when_it_sends_then_a_frame_says_what_leaves_with_it_here_whatever_it_said_on_the_way_before() -> (
    None
):
    came: list[Frame] = []

    async def take(stream: Stream) -> None:
        while (message := await stream.receive()) is not None:
            came.append(decode(message))

    wire = StreamWire("here", "there", take)
    hop = HopSender(peer="there", open_stream=wire.open)
    rest = Frame(kind=FrameKind.REST, epoch=EPOCH, sequence=1, with_next=True)
    await hop.send(rest)  # which opens the stream
    await hop.send(rest)
    await hop.send(replace(rest, sequence=2))
    await settle()
    await hop.send(replace(rest, sequence=3))
    await settle()
    assert [(one.sequence, one.with_next) for one in came] == [(1, False), (1, True), (2, False), (3, False)]
    hop.close()
    await wire.end()


async def test_head_when_frames_left_together_then_it_takes_none_before_the_last_is_there() -> None:
    made = Round(workers=1)
    await asyncio.gather(made.token(1, 0), made.token(2, 0))
    made.wires[1].ends[0][0].stalled = True  # what the stage makes waits there
    waiting = [asyncio.ensure_future(made.token(number, 1)) for number in (1, 2)]
    await settle()
    back = made.wires[1].ends[0][0].stream
    one, other = (replace(frame(state(1), number), timings=(Timing(0, 0),)) for number in (1, 2))
    back.send_at_once([encode(replace(one, with_next=True))])
    await settle()
    assert not any(each.done() for each in waiting)
    back.send_at_once([encode(other)])
    assert await asyncio.gather(*waiting) == [0, 0]
    await made.end()


async def test_ring_when_a_step_has_guesses_then_all_its_tokens_come_back_and_of_a_prompt_the_last(two: Round) -> None:
    prompt = await two.ring.go_round(1, state(0, tokens=5), is_prompt=True)
    assert (prompt.state.position, prompt.state.tokens) == (4, 1)
    step = await two.ring.go_round(1, state(5, tokens=4), is_prompt=False, has_guesses=True)
    assert (step.state.position, step.state.tokens) == (5, 4)


async def test_frame_when_its_position_is_lower_then_every_stage_forgets_what_came_after_it(two: Round) -> None:
    await two.token(1, 0, tokens=5)
    await two.ring.go_round(1, state(5, tokens=4), is_prompt=False, has_guesses=True)
    assert await two.token(1, 6) == 2
    assert [shard.at for shard in two.shards] == [{1: 7}, {1: 7}]


@pytest.mark.parametrize("position", [0, 6, 9])
async def test_frame_when_a_stage_cant_go_there_then_its_sender_broke_the_rules(two: Round, position: int) -> None:
    """Back to nothing, back at all where the caches can't forget, and past what is there."""
    for shard in two.shards:
        shard.can_rewind = position != 6
    await two.token(1, 0, tokens=8)
    with pytest.raises(Unavailable):
        await two.token(1, position)
    assert [type(error) for error in two.errors if isinstance(error, RulesBroken)] == [RulesBroken]


async def test_ring_when_the_head_is_alone_then_the_state_comes_straight_back() -> None:
    ring = Ring(epoch=EPOCH, hop=None, order=[HEAD], last=LAYOUT, chunk_tokens=8)
    sent = state(0, 7)
    assert (await ring.go_round(1, sent, is_prompt=True)).state is sent
    await ring.release(1)
    ring.fail(Unavailable("bob was lost"))
    with pytest.raises(Unavailable, match="bob"):
        await ring.go_round(1, sent, is_prompt=False)


async def test_limits_of_steps_when_asked_for_then_the_least_of_all_stages(two: Round) -> None:
    two.shards[1].step_limits = StepLimits(exact=3, bounded=8, rows=2)
    assert two.ring.step_limits == StepLimits()
    await two.ring.learn_step_limits()
    await settle()
    assert two.ring.step_limits == StepLimits(exact=3, bounded=8, rows=2)


async def test_limits_of_steps_when_a_stage_raises_them_then_it_broke_the_rules(two: Round) -> None:
    await two.token(1, 0)
    back = two.wires[2].ends[0][0].stream
    await back.send(*encode(limits_frame(StepLimits(exact=9, bounded=9, rows=9), epoch=EPOCH)))
    await settle()
    assert any(isinstance(error, RulesBroken) for error in two.errors)
    assert two.ring.step_limits == StepLimits()


async def test_release_when_said_then_it_goes_round_and_others_stay(two: Round) -> None:
    await two.token(1, 0)
    await two.token(2, 0)
    await two.ring.release(1)
    assert await two.token(2, 1) == 2
    assert two.held == [{2}, {2}]
    await two.ring.release(2)
    await settle()
    assert two.held == [set(), set()]


async def test_rest_when_said_then_every_stage_keeps_the_sequence_until_more_of_it_comes_or_its_release(
    two: Round,
) -> None:
    await two.token(1, 0)
    await two.token(1, 1)
    await two.ring.rest(1)
    await two.ring.rest(9)  # of which no stage knows
    await settle()
    assert (two.held, [one.resting for one in two.workers]) == ([{1}, {1}], [1, 1])
    assert await two.token(1, 1) == 2  # it goes on from there
    assert [one.resting for one in two.workers] == [0, 0]
    await two.ring.rest(1)
    await two.ring.release(1)
    await settle()
    assert (two.held, [one.resting for one in two.workers]) == ([set(), set()], [0, 0])


async def test_ring_when_it_breaks_then_whoever_kept_sequences_hears_of_it(two: Round) -> None:
    heard = []
    two.ring.broke = lambda: heard.append(two.ring.has(1))
    await two.token(1, 0)
    assert two.ring.has(1)
    two.wires[1].ends[0][0].stream.reset()
    await settle()
    assert heard
    assert not any(heard)
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
    made = Round(workers=2, bounds=Bounds(sequences=4, tokens=50_000, chunk_tokens=50_000))
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
        [frame(sequence=i) for i in range(3)],
        [frame(state(0, tokens=5)), frame(state(5, tokens=5))],
        [frame(state(0, tokens=7))],
        [frame(state(1))],
        [frame(state(0)), frame(state(0))],
        [replace(frame(), shape=(4, 1, 1))],
        [replace(frame(), shape=(4, 4), dtype="bfloat16", payload=memoryview(bytes(32)))],
        [replace(frame(), shape=(1, 1, 2), payload=memoryview(bytes(8)))],
        [frame(HiddenState(struct.pack("<4f", 1, math.nan, 1, 1), "float32", (1, 1, WIDTH), 0))],
        [frame(HiddenState(struct.pack("<4f", 1, 1, 1, -math.inf), "float32", (1, 1, WIDTH), 0))],
        [replace(frame(), timings=(Timing(0, 0),))],
        [Frame(kind=FrameKind.NOT_FINITE, epoch=EPOCH, sequence=1, position=1)],
    ],
    ids=["too many sequences", "too long", "too large a chunk", "unknown sequence", "twice", "a batch",
         "two dimensions", "another width", "nan", "infinity", "another's times", "told of nobody before"],
)  # fmt: skip
async def test_worker_when_the_stage_before_sends_what_was_not_planned_then_it_is_named(frames: list[Frame]) -> None:
    made = Round(workers=1, bounds=Bounds(sequences=2, tokens=8, chunk_tokens=6))
    stream = await made.wires[0].open()
    for one in frames:
        await stream.send(*encode(one))
    await settle()
    assert [error.by for error in made.errors if isinstance(error, RulesBroken)] == [HEAD]
    assert made.held == [set()]
    await made.end()


@pytest.mark.parametrize("to", [0, 1], ids=["worker", "head"])
async def test_frame_when_longer_than_a_chunk_then_refused_by_its_length_alone(to: int) -> None:
    made = Round(workers=1, bounds=Bounds(sequences=2, tokens=1 << 20, chunk_tokens=6))
    await made.token(1, 0)
    end = made.wires[to].ends[0][0]
    end.write(0, struct.pack("!I", most_bytes(6, WIDTH) + 1), is_last=False, flush=True)
    await settle()
    assert [error.by for error in made.errors if isinstance(error, RulesBroken)] == [[HEAD, "w1"][to]]
    await made.end()


@pytest.mark.parametrize(
    "change",
    [
        {"position": 2},
        {"tokens": 2, "shape": (1, 2, WIDTH), "payload": memoryview(bytes(8 * WIDTH))},
        {"shape": (1, 1, 2), "payload": memoryview(bytes(8))},
        {"payload": memoryview(struct.pack("<4f", 0, 0, math.inf, 0))},
        {"timings": ()},
        {"timings": (Timing(0, 0), Timing(0, 0))},
    ],
    ids=["another position", "more tokens", "another width", "infinity", "no times", "too many times"],
)
async def test_head_when_what_comes_back_is_no_answer_to_what_it_sent_then_the_last_stage_is_named(
    change: dict[str, Any],
) -> None:
    made = Round(workers=1)
    await made.token(1, 0)
    made.wires[0].ends[0][0].stalled = True
    waiting = asyncio.ensure_future(made.token(1, 1))
    await settle()
    answer = replace(frame(state(1)), timings=(Timing(0, 0),))
    await made.wires[1].ends[0][0].stream.send(*encode(replace(answer, **change)))
    with pytest.raises(Unavailable):
        await waiting
    assert [error.by for error in made.errors if isinstance(error, RulesBroken)] == ["w1"]
    await made.end()


async def test_head_when_the_last_stage_opens_further_streams_then_no_more_than_one_is_read(two: Round) -> None:
    await two.token(1, 0)
    for _ in range(5):
        await two.wires[2].open()
    await settle()
    assert sum(not task.done() for task in two.wires[2].served) <= 1


@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("is_prompt", [True, False])
async def test_stage_when_its_blocks_make_no_numbers_then_that_answer_ends_and_nobody_is_named_a_rule_breaker(
    two: Round, place: int, is_prompt: bool
) -> None:
    await two.token(2, 0)
    if not is_prompt:
        await two.token(1, 0)
    two.shards[place - 1].fails = NotFinite("infinity")
    with pytest.raises(NotFinite, match=f"w{place}'s blocks"):
        await two.token(1, 0 if is_prompt else 1)
    two.shards[place - 1].fails = None
    with pytest.raises(NotFinite, match=f"w{place}'s blocks"):
        await two.ring.send(1, state(2), wants_output=False)
    assert await two.token(2, 1) == 2
    await two.ring.release(1)
    assert await two.token(2, 2) == 2
    assert two.held == [{2}, {2}]
    assert two.errors == []


async def test_stage_when_a_chunk_has_no_numbers_then_it_drops_the_next_ones_and_the_answer_ends(two: Round) -> None:
    two.shards[0].fails = NotFinite("NaN")
    await two.ring.send(1, state(0), wants_output=False)
    await settle()
    two.shards[0].fails = None
    out = two.wires[0].ends[0][0].stream
    await out.send(*encode(frame(state(1))))  # which was on its way before the head heard of it
    await settle()
    with pytest.raises(NotFinite, match="w1's blocks"):
        await two.ring.go_round(1, state(2), is_prompt=True)
    await two.ring.release(1)
    assert await two.token(1, 0) == 2
    assert two.errors == []


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
