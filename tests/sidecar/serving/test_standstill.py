"""A model that stands still is told of; one that is slow, waits for its turn, or was paused with its process is not."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafila_sidecar.errors import Exhausted, Refused, TimedOut
from kafila_sidecar.runtime.handed_over import HandedOver
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.shard.shard import Shard
from kafila_sidecar.runtime.still import LOOKS
from kafila_sidecar.serving.engine import EngineLimits
from kafila_sidecar.serving.standstill import WatchedThread
from kafila_sidecar.session.coordination.effects import Fault
from tests.sidecar.serving.stages import LIMITS, NAMES, STOP, StageMember, answer, ask, party
from tests.support.hanging import Hang

pytestmark = pytest.mark.mlx


@pytest.fixture
async def mlx() -> AsyncIterator[MlxThread]:
    made = MlxThread()
    await made.run(lambda: None)
    yield made
    made.close()


async def test_step_when_it_stands_still_then_told_once_and_others_go_on_after_it(mlx: MlxThread) -> None:
    told, hang = list[float](), Hang()
    watched = WatchedThread(mlx, stalled=told.append, floor_s=0.05)
    stuck, behind = asyncio.create_task(watched.run(hang)), asyncio.create_task(watched.run(lambda: "here"))
    async with asyncio.timeout(10):
        while not told:  # noqa: ASYNC110  # it is told to nobody else
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        hang.may_end.set()
        await stuck
        assert await behind == "here"
    assert len(told) == 1
    assert told[0] >= 0.05


async def test_step_when_what_it_handed_over_stands_still_then_told_though_others_go_on(mlx: MlxThread) -> None:
    told, hang = list[float](), Hang()
    watched = WatchedThread(mlx, stalled=told.append, floor_s=0.05)
    stuck = asyncio.ensure_future(watched.run(lambda: HandedOver(hang)))
    async with asyncio.timeout(10):
        while not told:
            assert await watched.run(lambda: "here") == "here"
            await asyncio.sleep(0.01)
        hang.may_end.set()
        await stuck
    assert told[0] >= 0.05


async def test_step_when_another_sessions_step_is_in_its_way_then_only_the_other_is_told(mlx: MlxThread) -> None:
    ours, theirs, hang = list[float](), list[float](), Hang()
    other = WatchedThread(mlx, stalled=theirs.append, floor_s=0.05)
    waiting = WatchedThread(mlx, stalled=ours.append, floor_s=0.05)
    tasks = [asyncio.create_task(other.run(hang)), asyncio.create_task(waiting.run(lambda: None))]
    async with asyncio.timeout(10):
        while not theirs:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        hang.may_end.set()
        await asyncio.gather(*tasks)
    assert ours == []


async def test_step_when_it_never_gets_its_turn_then_told_in_the_end(mlx: MlxThread) -> None:
    ours, hang = list[float](), Hang()
    waiting = WatchedThread(mlx, stalled=ours.append, floor_s=0.02, queue_s=0.1)
    tasks = [asyncio.create_task(mlx.run(hang)), asyncio.create_task(waiting.run(lambda: None))]
    async with asyncio.timeout(10):
        while not ours:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        hang.may_end.set()
        await asyncio.gather(*tasks)
    assert ours[0] >= 0.1


async def test_step_when_steps_take_long_here_then_the_deadline_grows_with_them(mlx: MlxThread) -> None:
    told = list[float]()
    watched = WatchedThread(mlx, stalled=told.append, floor_s=0.0)
    assert watched._deadline_s == 0.0
    watched._longest_s = 30.0
    await watched.run(lambda: None)
    assert watched._deadline_s == 120.0
    assert told == []


async def test_step_when_this_process_was_stopped_meanwhile_then_it_is_not_blamed(mlx: MlxThread) -> None:
    told, hang = list[float](), Hang()
    watched = WatchedThread(mlx, stalled=told.append, floor_s=0.01)
    stuck = asyncio.create_task(watched.run(hang))
    await asyncio.to_thread(hang.runs.wait, 10)
    watched.close()
    watched._has_told = False
    await asyncio.sleep(0.05)
    watched._look(asyncio.get_running_loop().time() - 3)  # what a timer finds that comes three seconds late
    assert told == []
    watched._look(asyncio.get_running_loop().time())
    assert len(told) == 1
    hang.may_end.set()
    await stuck


async def test_step_when_closed_then_nothing_is_told(mlx: MlxThread) -> None:
    told, hang = list[float](), Hang()
    watched = WatchedThread(mlx, stalled=told.append, floor_s=0.05)
    stuck = asyncio.create_task(watched.run(hang))
    await asyncio.to_thread(hang.runs.wait, 10)
    watched.close()
    await asyncio.sleep(0.2)
    hang.may_end.set()
    await stuck
    assert told == []


async def test_stage_when_its_model_hangs_then_it_says_so_and_stops_all_the_same(tiny: Path, tmp_path: Path) -> None:
    limits = replace(LIMITS, step_floor_s=0.3, clear_deadline_s=0.1)
    async with party(tiny, tmp_path, *NAMES, limits=limits) as made:
        await made.serve((0, 3, 6), ("ada", "bob"))
        expected, _ = await answer(made["dan"], ask())
        hang = hung(made["bob"])
        asking = asyncio.create_task(answer(made["dan"], ask()))
        async with asyncio.timeout(10):
            while not made["bob"].broken:  # noqa: ASYNC110  # the stages tell nobody
                await asyncio.sleep(0.01)
            await made["bob"].stage.close(STOP)
            await made.stop(members=("ada", "cyd", "dan"))
        (code, sentence), *_ = made["bob"].broken
        assert code == "DEADLINE_EXCEEDED"
        assert sentence.startswith("bob's model has not moved for ")
        hang.may_end.set()  # all members of this test share the thread
        await made.serve((0, 2, 6), ("ada", "cyd"), members=("ada", "cyd", "dan"))
        assert (await asking)[0] == expected


async def test_head_when_its_model_hangs_then_who_asked_there_is_told_and_others_go_on(
    tiny: Path, tmp_path: Path
) -> None:
    limits = replace(LIMITS, step_floor_s=0.3, clear_deadline_s=0.1)
    async with party(tiny, tmp_path, *NAMES, limits=limits, apart=("ada",)) as made:
        await made.serve((0, 3, 6), ("ada", "bob"))
        expected, _ = await answer(made["dan"], ask())
        hang = hung(made["ada"], "embed_and_blocks")
        here, there = [asyncio.create_task(answer(made[name], ask())) for name in ("ada", "dan")]
        async with asyncio.timeout(20):
            while not made["ada"].broken:  # noqa: ASYNC110  # the stages tell nobody
                await asyncio.sleep(0.01)
            code, sentence = made["ada"].broken[0]
            await made["ada"].stage.close(Fault("ada", code, sentence))
            with pytest.raises(TimedOut, match=r"^ada's model has not moved for "):
                await here
            await made.stop(members=("bob", "cyd", "dan"))
            await made.serve((0, 2, 6), ("cyd", "bob"), members=("bob", "cyd", "dan"))
            assert (await there)[0] == expected
        hang.may_end.set()


async def test_head_when_its_model_hangs_after_another_answer_failed_then_who_asked_for_either_is_told_at_once(
    tiny: Path, tmp_path: Path
) -> None:
    """What the failed one has on the stages is cleared away by the thread that hangs."""
    limits = replace(LIMITS, clear_deadline_s=0.1)
    async with party(tiny, tmp_path, "ada", limits=limits) as made:
        await made.serve((0, 6), ("ada",))
        fails, hang = Hang(), Hang()
        shard: Any = made["ada"].stage._holding.shard

        def embed_and_blocks(*given: Any, **named: Any) -> Any:
            fails()
            raise Refused("not this one")

        shard.embed_and_blocks = embed_and_blocks
        asking = [asyncio.create_task(answer(made["ada"], ask())) for _ in range(2)]
        async with asyncio.timeout(20):
            assert await asyncio.to_thread(fails.runs.wait, 20)
            epoch: Any = made["ada"].stage._epochs.epoch
            while len(epoch.engine._runs) < 2:  # noqa: ASYNC110  # the engine tells nobody
                await asyncio.sleep(0.001)
            stuck = made.mlx.start(hang)
            fails.may_end.set()
            assert await asyncio.to_thread(hang.runs.wait, 20)
            while len(epoch.engine._runs) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await made["ada"].stage.close(Fault("ada", TimedOut.code, "ada hangs"))
            told = await asyncio.gather(*asking, return_exceptions=True)
        hang.may_end.set()
        await stuck
    assert {str(one) for one in told} == {"not this one", "ada hangs"}


async def test_requests_of_all_members_when_a_stage_hangs_then_bounded_there_and_each_told_or_answered(
    tiny: Path, tmp_path: Path
) -> None:
    running, most_waiting = 2, 4
    limits = replace(LIMITS, step_floor_s=0.3, clear_deadline_s=0.1, engine=EngineLimits(most_waiting=most_waiting))
    async with party(tiny, tmp_path, *NAMES, limits=limits, apart=("bob",)) as made:
        await made.serve((0, 3, 6), ("ada", "bob"), concurrency=running)
        expected, _ = await answer(made["dan"], ask())
        hang = hung(made["bob"])
        asking = [asyncio.create_task(answer(made[name], ask())) for name in ("ada", "cyd", "dan") for _ in range(6)]
        async with asyncio.timeout(20):
            while not made["bob"].broken or sum(one.done() for one in asking) < len(asking) - running - most_waiting:
                assert made["bob"].stage._mlx._waiting <= 2 * running
                await asyncio.sleep(0.01)
            await made["bob"].stage.close(STOP)
            await made.stop(members=("ada", "cyd", "dan"))
            await made.serve((0, 2, 6), ("ada", "cyd"), members=("ada", "cyd", "dan"), concurrency=running)
            told = await asyncio.gather(*asking, return_exceptions=True)
        hang.may_end.set()
    assert sum(isinstance(one, Exhausted) for one in told) == len(asking) - running - most_waiting
    assert {one[0] for one in told if not isinstance(one, BaseException)} == {expected}


async def test_stage_when_the_disk_does_not_answer_while_it_loads_then_told_and_what_comes_late_is_freed(
    tiny: Path, tmp_path: Path
) -> None:
    """The file is a pipe into which nobody writes: whoever opens it stands still, as with a disk that does not."""
    import mlx.core as mx

    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    file, *_ = folder.glob("*.safetensors")
    limits, loaded = replace(LIMITS, load_look_s=0.02, clear_deadline_s=0.1), list[Shard]()

    def load_shard(**given: Any) -> Shard:
        loaded.append(Shard.load(**given))
        return loaded[-1]

    async with party(folder, tmp_path, "ada", limits=limits, load_shard=load_shard) as made:
        before = await made.mlx.run(mx.get_active_memory)
        file.rename(tmp_path / "whole")
        os.mkfifo(file)
        with pytest.raises(TimedOut, match=r"loading blocks 0 to 5 has not moved for 0 s: this machine's disk"):
            await made.serve((0, 6), ("ada",))
        file.rename(tmp_path / "pipe")
        (tmp_path / "whole").rename(file)  # which is opened once more, and loaded
        await made["ada"].stage.close(STOP)
        assert not loaded
        (tmp_path / "pipe").open("wb").close()  # the disk answers
        await made.mlx.run(lambda: None)
        assert loaded
        assert made["ada"].stage.weight_bytes == 0
        assert await made.mlx.run(mx.get_active_memory) - before < 1024


async def test_stage_when_a_load_that_nobody_wants_goes_on_then_the_next_plan_waits_as_long_as_parts_come(
    tiny: Path, tmp_path: Path
) -> None:
    limits, slow = replace(LIMITS, load_look_s=0.05, clear_deadline_s=0.1), Hang()

    def load_shard(*, came: Callable[[], None], **given: Any) -> Shard:
        slow.runs.set()
        while not slow.may_end.wait(0.002):
            came()
        return Shard.load(came=came, **given)

    async with party(tiny, tmp_path, "ada", "bob", limits=limits, load_shard=load_shard) as made:
        loading = asyncio.create_task(made.serve((0, 6), ("ada",), members=("ada",)))
        assert await asyncio.to_thread(slow.runs.wait, 20)
        loading.cancel()
        await asyncio.wait((loading,))
        await made.serve((0, 6), ("bob",), members=("ada",))
        await made.stop(members=("ada",))
        again = asyncio.create_task(made.serve((0, 6), ("ada",), members=("ada",)))
        await asyncio.wait((again,), timeout=3 * LOOKS * limits.load_look_s)
        assert not again.done()
        slow.may_end.set()
        await again
        assert (await answer(made["ada"], ask()))[1].done


async def test_stage_when_what_another_holds_now_could_not_be_freed_then_the_next_plan_loads_all_the_same(
    tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with party(tiny, tmp_path, "ada", "bob") as made:
        await made.serve((0, 6), ("ada",), members=("ada",))
        shard: Any = made["ada"].stage._holding.shard
        real = shard.close

        def broken() -> None:
            real()
            raise RuntimeError("the device says no")

        shard.close = broken
        await made.stop(members=("ada",))
        await made.serve((0, 6), ("bob",), members=("ada",))
        await made.stop(members=("ada",))
        for _ in range(2):
            await made.serve((0, 6), ("ada",), members=("ada",))
            assert (await answer(made["ada"], ask()))[1].done
            await made.stop(members=("ada",))
    assert "the device says no" in caplog.text


async def test_stop_when_a_long_prompt_is_read_then_at_most_one_more_chunk_runs_before_the_next_load(
    tiny: Path, tmp_path: Path
) -> None:
    limits = replace(LIMITS, engine=EngineLimits(prefill_chunk_tokens=2))
    async with party(tiny, tmp_path, *NAMES, limits=limits) as made:
        await made.serve((0, 3, 6), ("ada", "bob"))
        chunks = list[str]()
        for name, call in (("ada", "embed_and_blocks"), ("bob", "run_blocks")):
            shard = made[name].stage._holding.shard
            counted(shard, call, chunks)
        asking = asyncio.create_task(answer(made["dan"], ask("x" * 200)))
        async with asyncio.timeout(10):
            while len(chunks) < 6:  # noqa: ASYNC110
                await asyncio.sleep(0)
        before = len(chunks)
        stopping = asyncio.create_task(made.stop())
        await made.mlx.run(lambda: None)  # what a load would wait for
        assert len(chunks) - before <= 2  # one that runs, and one on the other stage of this shared thread
        await stopping
        await made.serve((0, 3, 6), ("ada", "bob"))
        assert (await asking)[1].done


def hung(member: StageMember, step: str = "run_rows") -> Hang:
    """This stage's next step stands still."""
    hang = Hang()
    shard: Any = member.stage._holding.shard
    real = getattr(shard, step)

    def hanging(*given: Any, **named: Any) -> Any:
        hang()
        return real(*given, **named)

    setattr(shard, step, hanging)
    return hang


def counted(shard: Any, call: str, runs: list[str]) -> None:
    real = getattr(shard, call)

    def run(*given: Any) -> Any:
        runs.append(call)
        return real(*given)

    setattr(shard, call, run)
