"""Stages from one epoch to the next: load, serve, stop, serve another plan; and what links may bring meanwhile."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import KafilaError, TimedOut, Unavailable
from kafila_sidecar.net.errors import PeerReset
from kafila_sidecar.net.link.stream import StreamKind
from kafila_sidecar.serving.engine import EngineLimits
from kafila_sidecar.serving.frames.hop import frame_of
from kafila_sidecar.serving.frames.wire import encode
from kafila_sidecar.session.coordination.effects import Fault
from tests.sidecar.serving.rings import state
from tests.sidecar.serving.stages import LIMITS, NAMES, StageParty, answer, ask, party, plan, refusal, spoil

pytestmark = pytest.mark.mlx

LOST = Fault("bob", "UNAVAILABLE", "bob was lost: its machine no longer answers")
ENDLESS = ask(num_predict=-1)
VARIED: dict[str, Any] = {"repeat_penalty": 1.5}  # or a random model soon repeats itself


@pytest.fixture
async def linked(tiny: Path, tmp_path: Path) -> AsyncIterator[StageParty]:
    async with party(tiny, tmp_path, *NAMES) as made:
        yield made


@pytest.fixture
async def chunky(tiny: Path, tmp_path: Path) -> AsyncIterator[StageParty]:
    """Members that send prompts in many small chunks."""
    limits = replace(LIMITS, engine=EngineLimits(prefill_chunk_tokens=4))
    async with party(tiny, tmp_path, *NAMES, limits=limits) as made:
        yield made


async def begun(made: StageParty, *names: str) -> list["asyncio.Task[KafilaError]"]:
    """Endless answers at these members, with the first text out; each ends with what it is refused with."""
    tasks = [asyncio.create_task(refusal(made[name], ENDLESS)) for name in names]
    async with asyncio.timeout(5):
        while made["ada"].stage.active_sequences < min(len(names), 2):  # noqa: ASYNC110  # the stages tell nobody
            await asyncio.sleep(0.01)
    return tasks


async def test_stage_when_not_ready_then_it_says_so(linked: StageParty) -> None:
    assert "not ready" in str(await refusal(linked["ada"], ask()))


async def test_stage_when_planned_again_then_the_same_text_from_another_ring(linked: StageParty) -> None:
    await linked.serve((0, 2, 4, 6), ("ada", "bob", "cyd"))
    expected, _ = await answer(linked["ada"], ask())
    for cuts, order in (((0, 3, 6), ("bob", "dan")), ((0, 6), ("cyd",)), ((0, 1, 5, 6), ("dan", "ada", "bob"))):
        await linked.stop()
        await linked.serve(cuts, order)
        for name in NAMES:
            assert (await answer(linked[name], ask()))[0] == expected
        await linked.until_free()


@pytest.mark.parametrize("bits", [0, 4])
async def test_blocks_when_a_member_keeps_them_then_they_are_not_read_again(
    tiny: Path, tmp_path: Path, bits: int
) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / "model"))
    async with party(folder, tmp_path, *NAMES, bits=bits) as made:
        await made.serve((0, 2, 4, 6), ("ada", "bob", "cyd"))
        expected, _ = await answer(made["ada"], ask())
        await made.stop()
        spoil(folder, keep=("model.layers.4.", "model.layers.5."))
        await made.serve((0, 2, 6), ("ada", "bob"))  # two of its four blocks are new to bob
        assert (await answer(made["dan"], ask()))[0] == expected
        await made.until_free()
        await made.stop()
        await made.serve((0, 1, 4, 6), ("ada", "bob", "cyd"))  # bob gives two back, and block 1 is new to it
        assert "NaN" in str(await refusal(made["dan"], ask()))


async def test_blocks_when_another_stage_has_them_now_then_a_member_that_stands_by_frees_them(
    linked: StageParty,
) -> None:
    await linked.serve((0, 3, 6), ("ada", "bob"))
    held = linked["bob"].stage.weight_bytes
    await linked.stop()
    assert linked["bob"].stage.weight_bytes == held > 0
    await linked.serve((0, 6), ("ada",))
    assert (await answer(linked["bob"], ask()))[1].done
    assert linked["bob"].stage.weight_bytes == 0


async def test_close_when_answers_run_then_all_end_with_the_fault_and_nothing_is_left(
    tiny: Path, tmp_path: Path
) -> None:
    for fault in (LOST, replace(LOST, member="cyd", sentence="cyd left the session")):
        async with party(tiny, tmp_path, *NAMES) as linked:
            await linked.serve((0, 2, 4, 6), ("ada", "bob", "cyd"))
            tasks = await begun(linked, *NAMES)
            async with asyncio.timeout(3):
                await linked.stop(fault)
                assert not any(linked.held.values())
                assert not any(task.done() for task in tasks)
                await linked.close(fault)
                errors = await asyncio.gather(*tasks)
            assert [(type(error), str(error)) for error in errors] == [(Unavailable, fault.sentence)] * 4
            assert str(await refusal(linked["cyd"], ask())) == fault.sentence
            assert [member.broken for member in linked.members] == [[], [], [], []]
            assert all(member.stage.weight_bytes == 0 for member in linked.members)


async def test_stop_when_only_the_asker_stops_then_the_head_frees_the_sequence_and_the_answer_waits(
    linked: StageParty,
) -> None:
    await linked.serve((0, 3, 6), ("ada", "bob"))
    (task,) = await begun(linked, "dan")
    await linked["dan"].stage.stop(LOST)
    await linked.until_free()
    assert not task.done()
    await linked["dan"].stage.close(LOST)
    assert str(await task) == LOST.sentence


async def test_stop_when_no_next_epoch_comes_in_time_then_the_answer_ends_and_says_who_was_lost(
    tiny: Path, tmp_path: Path
) -> None:
    limits = replace(LIMITS, patience=replace(LIMITS.patience, epoch_s=0.2))
    async with party(tiny, tmp_path, *NAMES, limits=limits) as linked:
        await linked.serve((0, 3, 6), ("ada", "bob"))
        tasks = await begun(linked, "ada", "dan")
        await linked.stop(LOST)
        for task in tasks:
            error = await task
            assert isinstance(error, TimedOut)
            assert LOST.sentence in str(error)


async def test_stop_when_a_long_prompt_is_on_its_way_then_nobody_is_to_blame(chunky: StageParty) -> None:
    await chunky.serve((0, 2, 4, 6), ("ada", "bob", "cyd"))
    task = asyncio.create_task(answer(chunky["ada"], ask("x" * 220)))
    for pause in (0.0, 0.002, 0.01, 0.03):
        await asyncio.sleep(pause)
        await chunky.stop(LOST)
        await chunky.serve((0, 2, 4, 6), ("ada", "bob", "cyd"))
    assert (await task)[1].done
    assert [member.broken for member in chunky.members] == [[], [], [], []]


async def test_close_when_a_load_is_under_way_then_its_shard_is_freed_before_close_returns(linked: StageParty) -> None:
    proposal = plan(1, (0, 6), ("ada",), 2)
    stage = linked["ada"].stage
    for turns in (1, 5, 20, 100):
        loading = asyncio.create_task(stage.load(proposal, lambda *_: None))
        for _ in range(turns):
            await asyncio.sleep(0)
        loading.cancel()
        await asyncio.wait([loading])
        await stage.close(LOST)
        assert stage.weight_bytes == 0
    await stage.load(proposal, lambda *_: None)
    assert stage.weight_bytes > 0
    await stage.stop(LOST)


@pytest.mark.parametrize("asker", ["ada", "cyd", "dan"])
async def test_link_when_it_breaks_in_mid_answer_then_the_answer_goes_on_once_it_is_back(
    linked: StageParty, asker: str
) -> None:
    await linked.serve((0, 2, 4, 6), ("ada", "bob", "cyd"))
    whole = ask(num_predict=60, **VARIED)
    expected, _ = await answer(linked[asker], whole)
    for here, there in (("ada", "bob"), ("bob", "cyd"), ("cyd", "ada"), ("ada", "dan")):
        pieces = linked[asker].stage.generate(whole)
        text = "".join([(await anext(pieces)).text for _ in range(4)])
        await linked.link_anew(here, there)
        async with asyncio.timeout(10):
            async for reply in pieces:
                text += reply.text
        assert text == expected
        await linked.until_free()
    assert [member.broken for member in linked.members] == [[], [], [], []]


async def test_link_when_it_does_not_come_back_then_the_answer_ends_in_words(tiny: Path, tmp_path: Path) -> None:
    limits = replace(LIMITS, patience=replace(LIMITS.patience, ring_s=0.3))
    async with party(tiny, tmp_path, *NAMES, limits=limits) as linked:
        await linked.serve((0, 2, 4, 6), ("ada", "bob", "cyd"))
        tasks = await begun(linked, "ada", "dan")
        await linked["bob"].links.up.pop("cyd").close()
        errors = await asyncio.gather(*tasks)
        assert all(isinstance(error, Unavailable) and "can't go on" in str(error) for error in errors)


async def test_stage_when_it_gets_more_than_was_agreed_on_then_the_sender_is_named_and_the_end_is_told(
    linked: StageParty,
) -> None:
    await linked.serve((0, 2, 4, 6), ("ada", "bob", "cyd"))
    await answer(linked["ada"], ask())
    await linked.stop()
    proposal = plan(2, (0, 2, 4, 6), ("ada", "bob", "cyd"), 2)
    short = replace(proposal, problem=replace(proposal.problem, context_tokens=20))
    for member in linked.members:
        await member.stage.load(proposal, lambda *_: None)
        member.stage.serve(short if member.name == "cyd" else proposal)
    await ended_once(linked, lambda: linked["cyd"].misled)
    assert {by for by, _ in linked["cyd"].misled} == {"bob"}
    assert "20 tokens" in linked["cyd"].misled[0][1]
    assert [(member.broken, member.name if member.misled else "") for member in linked.members] == [
        ([], ""),
        ([], ""),
        ([], "cyd"),
        ([], ""),
    ]


async def ended_once(linked: StageParty, told: Callable[[], Sequence[object]]) -> None:
    """A client at bob waits until the session has heard and is closed; then it hears of that."""
    asking = asyncio.create_task(refusal(linked["bob"], ask()))
    async with asyncio.timeout(3):
        while not told():  # noqa: ASYNC110  # the stages tell nobody
            await asyncio.sleep(0.01)
        await linked.close(LOST)
        assert str(await asking) == LOST.sentence


async def test_stage_when_its_model_fails_then_the_session_hears_and_its_end_is_told(linked: StageParty) -> None:
    await linked.serve((0, 2, 4, 6), ("ada", "bob", "cyd"))
    cyd = linked["cyd"].stage
    assert cyd._holding.shard is not None
    await linked.mlx.run(cyd._holding.shard.close)  # as if its memory were gone
    await ended_once(linked, lambda: linked["cyd"].broken)
    assert "cyd" in linked["cyd"].broken[0][1]
    assert linked["bob"].broken == []
    assert [member.misled for member in linked.members] == [[], [], [], []]


async def test_frames_when_from_anybody_but_the_stage_before_then_denied(linked: StageParty) -> None:
    await linked.serve((0, 2, 4, 6), ("ada", "bob", "cyd"))
    frame = frame_of(state(0), epoch=1, sequence=5, needs_output=False)
    for here, there in (("dan", "bob"), ("cyd", "bob"), ("bob", "ada"), ("ada", "dan")):
        stream = await linked[here].links.to(there).open(StreamKind.ACTIVATIONS)
        await stream.send(*encode(frame))
        with pytest.raises(PeerReset):
            await stream.receive(2)
    assert not any(linked.held.values())
    assert [member.broken for member in linked.members] == [[], [], [], []]


async def test_frames_when_they_come_before_the_stage_serves_then_they_wait_for_it(linked: StageParty) -> None:
    proposal = plan(1, (0, 3, 6), ("ada", "bob"), 2)
    for member in linked.members:
        await member.stage.load(proposal, lambda *_: None)
    linked["ada"].stage.serve(proposal)
    asking = asyncio.create_task(answer(linked["ada"], ask()))
    await asyncio.sleep(0.1)
    assert not asking.done()
    linked["bob"].stage.serve(proposal)
    assert (await asking)[1].done


async def test_frames_when_the_stage_does_not_serve_in_time_then_they_are_refused(tiny: Path, tmp_path: Path) -> None:
    async with party(tiny, tmp_path, "ada", "bob", limits=replace(LIMITS, serve_deadline_s=0.05)) as made:
        stream = await made["ada"].links.to("bob").open(StreamKind.ACTIVATIONS)
        with pytest.raises(PeerReset):
            await stream.receive(2)


async def test_request_when_the_member_is_not_the_head_or_plans_again_then_it_may_be_asked_again(
    tiny: Path, tmp_path: Path
) -> None:
    async with party(tiny, tmp_path, *NAMES, limits=replace(LIMITS, serve_deadline_s=0.1)) as linked:
        await linked.serve((0, 3, 6), ("ada", "bob"))
        for peer, epoch in (("bob", 1), ("ada", 7)):
            stream = await linked["cyd"].links.to(peer).open(StreamKind.REQUEST)
            request = ring_pb2.Request(epoch=epoch, generate=ask().SerializeToString(), id=bytes(16))
            await stream.send(request.SerializeToString())
            message = await stream.receive(2)
            assert message is not None
            assert "is not the head" in ring_pb2.Answer.FromString(message).interrupted
