"""Threads are lent one by one; those that stand still are left alone, told of, and taken again once they move."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kafila_sidecar.errors import TimedOut, Unavailable
from kafila_sidecar.runtime import model_threads
from kafila_sidecar.runtime.handed_over import HandedOver
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.runtime.model_threads import MOST_STILL, ModelThreads, PassingCalls
from kafila_sidecar.runtime.still import LOOKS, unless_still
from tests.support.hanging import Hang

pytestmark = pytest.mark.mlx


@pytest.fixture
def threads() -> Iterator[ModelThreads]:
    made = ModelThreads()
    yield made
    made.close()


async def stuck(threads: ModelThreads) -> tuple[MlxThread, Hang, "asyncio.Future[None]"]:
    """A thread that was given back and stands still, until its hang may end."""
    hang, thread = Hang(), threads.lend()
    outcome = thread.start(hang)
    assert await asyncio.to_thread(hang.runs.wait, 20)
    threads.give_back(thread, rest_s=0.0)
    return thread, hang, outcome


async def until_idle(thread: MlxThread) -> None:
    while not thread.is_idle:  # noqa: ASYNC110  # it tells nobody
        await asyncio.sleep(0.001)


async def test_threads_when_lent_then_one_that_stands_still_holds_up_no_other(threads: ModelThreads) -> None:
    import mlx.core as mx

    one, other = threads.lend(), threads.lend()
    hang = Hang()
    outcome = one.start(hang)
    assert await other.run(lambda: (mx.ones(3) * 2).tolist()) == [2.0, 2.0, 2.0]
    assert not outcome.done()
    hang.may_end.set()
    await outcome


async def test_threads_when_they_compute_at_once_then_each_gets_what_it_gets_alone(threads: ModelThreads) -> None:
    import mlx.core as mx

    kept = [threads.lend() for _ in range(4)]
    weights = await kept[0].run(lambda: _evaluated(mx.arange(256 * 256).reshape(256, 256) / 65536))
    gate = mx.compile(lambda x: mx.sigmoid(x) * x)

    def compute(seed: int) -> list[float]:
        x = mx.full((8, 256), seed / 8)
        for _ in range(20):
            x = gate(x @ weights) / 64
        return [float(one) for one in x.sum(axis=1).tolist()]  # type: ignore[union-attr, arg-type]

    alone = [await thread.run(compute, seed) for seed, thread in enumerate(kept)]
    for _ in range(10):
        assert await asyncio.gather(*(thread.run(compute, seed) for seed, thread in enumerate(kept))) == alone


def _evaluated(array: Any) -> Any:
    import mlx.core as mx

    mx.eval(array)
    return array


async def test_thread_when_given_back_then_lent_again_unless_it_still_works(threads: ModelThreads) -> None:
    thread, hang, outcome = await stuck(threads)
    with threads.lent() as another:
        assert another is not thread
        assert await another.run(lambda: "goes on") == "goes on"
    with threads.lent() as again:
        assert again is another
        hang.may_end.set()
        await outcome
        await until_idle(thread)
        assert threads.lend() is thread


async def test_preparation_when_it_stands_still_then_its_thread_is_not_lent(threads: ModelThreads) -> None:
    hang = Hang()
    with threads.lent() as thread:
        await thread.run(lambda: None)
        thread.when_idle(hang)
        assert await asyncio.to_thread(hang.runs.wait, 20)
    assert threads.lend() is not thread
    hang.may_end.set()


async def test_threads_when_too_many_stand_still_then_refused_in_words_until_one_moves(threads: ModelThreads) -> None:
    still = [await stuck(threads) for _ in range(MOST_STILL)]
    with pytest.raises(Unavailable, match=r"^4 models stand still on this machine, .*: start Kafila here again$"):
        threads.lend()
    thread, hang, outcome = still[0]
    hang.may_end.set()
    await outcome
    await until_idle(thread)
    assert threads.lend() is thread
    for _, hang, _ in still:
        hang.may_end.set()


async def test_passing_call_when_it_stands_still_then_told_and_the_next_runs_on_another_thread(
    threads: ModelThreads,
) -> None:
    passing, hang, ran = PassingCalls(threads, look_s=0.01), Hang(), list[str]()
    first = asyncio.create_task(passing.run(hang))
    behind = asyncio.create_task(passing.run(ran.append, "behind"))
    with pytest.raises(TimedOut, match=r"^the model runtime of this machine has not moved for "):
        await first
    await behind
    assert ran == ["behind"]
    hang.may_end.set()


async def test_passing_calls_when_asked_for_at_once_then_one_runs_at_a_time_and_on_one_thread(
    threads: ModelThreads,
) -> None:
    import threading

    passing = PassingCalls(threads)
    assert len(set(await asyncio.gather(*(passing.run(threading.get_ident) for _ in range(8))))) == 1


async def test_threads_when_many_come_back_that_are_still_at_something_then_another_one_is_lent(
    threads: ModelThreads,
) -> None:
    hangs = [Hang() for _ in range(MOST_STILL + 1)]
    for hang in hangs:
        with threads.lent() as thread:
            thread.start(hang)
    with threads.lent() as another:
        assert await another.run(lambda: "goes on") == "goes on"
    for hang in hangs:
        hang.may_end.set()


async def test_passing_calls_when_cancelled_one_after_another_then_one_runs_at_a_time_and_none_is_refused(
    threads: ModelThreads,
) -> None:
    passing, hangs, at_once = PassingCalls(threads), [Hang() for _ in range(MOST_STILL + 1)], list[int]()

    def call(hang: Hang) -> None:
        at_once.append(sum(one.runs.is_set() and not one.may_end.is_set() for one in hangs))
        hang()

    for hang in hangs:
        calling = asyncio.create_task(passing.run(call, hang))
        assert await asyncio.to_thread(hang.runs.wait, 20)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        behind = asyncio.create_task(passing.run(lambda: "behind"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not behind.done()
        hang.may_end.set()
        assert await behind == "behind"
    assert at_once == [0] * len(hangs)


async def test_passing_calls_when_cancelled_and_they_stand_still_then_the_next_runs_and_too_many_are_refused(
    threads: ModelThreads,
) -> None:
    passing, hangs = PassingCalls(threads, look_s=0.1), [Hang() for _ in range(MOST_STILL)]
    warm = [threads.lend() for _ in hangs]
    for thread in warm:
        await thread.run(lambda: None)
        threads.give_back(thread)
    for hang in hangs:
        calling = asyncio.create_task(passing.run(hang))
        assert await asyncio.to_thread(hang.runs.wait, 20)
        calling.cancel()
        await asyncio.wait((calling,))
        assert calling.cancelled()
    with pytest.raises(Unavailable, match=r"^4 models stand still on this machine, "):
        await passing.run(lambda: None)
    for hang in hangs:
        hang.may_end.set()


async def test_threads_when_closed_and_one_stands_still_then_only_that_one_is_left_behind(
    threads: ModelThreads, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_threads, "CLOSE_S", 0.0)
    _, hang, _ = await stuck(threads)
    healthy = threads.lend()
    assert await healthy.run(lambda: HandedOver(lambda: "finished")) == "finished"  # type: ignore[comparison-overlap]
    threads.close()
    hang.may_end.set()
    assert caplog.text.count("thread_left_behind") == 1


async def test_outcome_when_something_moves_between_looks_then_waited_for_however_long() -> None:
    outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    looks = iter(range(5 * LOOKS))

    def sign() -> int:
        look = next(looks)
        if look == 5 * LOOKS - 1:
            outcome.set_result("here")
        return look // (LOOKS - 1)  # moves just before it would be too late

    assert await unless_still(outcome, what="it", sign=sign, look_s=0.001) == "here"


async def test_outcome_when_nobody_waits_any_more_then_cancelled() -> None:
    outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with pytest.raises(TimedOut, match=r"^it has not moved for 0 s"):
        await unless_still(outcome, what="it", look_s=0.001)
    assert outcome.cancelled()


ENDING = """
import asyncio, os, sys
from pathlib import Path
from kafila_sidecar.runtime import model_threads
from kafila_sidecar.runtime.model_threads import ModelThreads

model_threads.CLOSE_S = 0.2

async def run():
    threads = ModelThreads()
    thread = threads.lend()
    import threading
    runs = threading.Event()
    def hang():
        import mlx.core as mx
        mx.eval(mx.ones(3) + 1)
        runs.set()
        threading.Event().wait()
    thread.start(hang)
    await asyncio.to_thread(runs.wait, 60)
    threads.close()

asyncio.run(run())
print("ended")
"""


def test_process_when_a_thread_stands_still_then_it_ends_all_the_same() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDING], check=True, timeout=60, capture_output=True, text=True)
    assert ended.stdout == "ended\n"
