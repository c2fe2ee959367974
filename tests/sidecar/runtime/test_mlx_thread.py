import asyncio
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafila_sidecar.errors import Exhausted, Unavailable
from kafila_sidecar.runtime.handed_over import HandedOver
from kafila_sidecar.runtime.mlx_thread import MlxThread

pytestmark = pytest.mark.mlx


@pytest.fixture
async def thread() -> AsyncIterator[MlxThread]:
    thread = MlxThread(queue_limit=3)
    yield thread
    thread.close()


async def test_calls_when_made_from_anywhere_then_run_on_one_thread_in_order(thread: MlxThread) -> None:
    seen: list[int] = []

    def note(number: int) -> int:
        seen.append(number)
        return threading.get_ident()

    threads = await asyncio.gather(*(thread.run(note, number) for number in range(3)))
    assert seen == [0, 1, 2]
    assert len(set(threads) | {threading.get_ident()}) == 2


async def test_call_when_it_fails_then_the_caller_gets_its_exception(thread: MlxThread) -> None:
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0)
    assert await thread.run(lambda: "goes on") == "goes on"


async def test_call_when_the_queue_is_full_then_refused_and_later_taken(thread: MlxThread) -> None:
    gate = threading.Event()
    calls = [asyncio.ensure_future(thread.run(gate.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Exhausted):
        await thread.run(gate.wait)
    gate.set()
    await asyncio.gather(*calls)
    assert await thread.run(gate.is_set)


async def test_preparation_when_calls_wait_then_it_runs_after_them_and_its_failure_is_nobodys(
    thread: MlxThread,
) -> None:
    gate, seen = threading.Event(), list[str]()
    first = asyncio.ensure_future(thread.run(gate.wait))
    await asyncio.sleep(0)
    thread.when_idle(lambda: 1 // 0)
    thread.when_idle(seen.append, "prepared")
    second = asyncio.ensure_future(thread.run(seen.append, "asked for"))
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, second)
    assert seen[0] == "asked for"
    while len(seen) < 2:
        await thread.run(lambda: None)
        await asyncio.sleep(0.001)
    assert seen == ["asked for", "prepared"]


async def test_call_when_it_hands_its_work_over_then_others_run_meanwhile_and_the_result_is_what_comes_of_it(
    thread: MlxThread,
) -> None:
    gate = threading.Event()

    def begin(number: int) -> Any:
        return HandedOver(lambda: (gate.wait(), number))

    given = [asyncio.ensure_future(thread.start(begin, number)) for number in range(2)]
    assert await thread.run(lambda: "another") == "another"
    assert not any(one.done() for one in given)
    gate.set()
    assert await asyncio.gather(*given) == [(True, 0), (True, 1)]


async def test_call_when_what_it_handed_over_fails_then_the_caller_gets_its_exception(thread: MlxThread) -> None:
    with pytest.raises(ZeroDivisionError):
        await thread.start(lambda: HandedOver(lambda: 1 // 0))


async def test_thread_when_closed_then_what_was_handed_over_has_ended(thread: MlxThread) -> None:
    ended = threading.Event()
    given = thread.start(lambda: HandedOver(ended.set))
    await thread.run(lambda: None)
    thread.close()
    assert ended.is_set()
    await given


async def test_call_when_cancelled_before_it_begins_then_never_run(thread: MlxThread) -> None:
    gate, ran = threading.Event(), threading.Event()
    first = asyncio.ensure_future(thread.run(gate.wait))
    second = asyncio.ensure_future(thread.run(ran.set))
    await asyncio.sleep(0)
    second.cancel()
    gate.set()
    await asyncio.gather(first, second, return_exceptions=True)
    await thread.run(gate.is_set)
    assert not ran.is_set()


async def test_close_when_called_then_the_thread_is_gone_and_calls_are_refused() -> None:
    thread = MlxThread()
    worker = await thread.run(threading.current_thread)
    thread.close()
    assert not worker.is_alive()
    with pytest.raises(Unavailable):
        await thread.run(lambda: None)


def test_runtime_when_imported_by_the_event_loop_then_without_mlx() -> None:
    runtime = ["mlx_thread", "shard.shard", "shard.state", "probe.probe"]
    text = ["tokenizer", "options", "sample", "stop"]
    names = [*(f"runtime.{name}" for name in runtime), *(f"runtime.text.{name}" for name in text), "models.reading"]
    imports = ", ".join(f"kafila_sidecar.{name}" for name in names)
    code = f"import sys, {imports}; assert not {{'mlx', 'mlx_lm', 'transformers'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_close_when_calls_wait_then_the_one_that_runs_ends_and_the_others_are_refused() -> None:
    thread = MlxThread()
    gate, ran = threading.Event(), threading.Event()
    running = asyncio.ensure_future(thread.run(gate.wait))
    waiting = asyncio.ensure_future(thread.run(ran.set))
    await asyncio.sleep(0.05)
    threading.Timer(0.05, gate.set).start()
    thread.close()
    assert await running is True
    with pytest.raises(Unavailable):
        await waiting
    assert not ran.is_set()


async def test_call_when_its_caller_is_gone_before_it_ends_then_the_next_one_runs(thread: MlxThread) -> None:
    gate = threading.Event()
    running = asyncio.ensure_future(thread.run(gate.wait))
    await asyncio.sleep(0.01)
    running.cancel()
    gate.set()
    assert await thread.run(lambda: 7) == 7


async def test_call_when_done_then_the_thread_keeps_neither_its_arguments_nor_its_result(thread: MlxThread) -> None:
    class Large:
        pass

    argument, results = Large(), [Large()]
    kept = [weakref.ref(argument), weakref.ref(results[0])]
    await thread.run(lambda _: results.pop(), argument)
    del argument
    await thread.run(lambda: None)
    assert [ref() for ref in kept] == [None, None]


@pytest.mark.parametrize(("said", "then"), [(None, "0"), ("1", "1"), ("", "")])
async def test_mlx_when_it_is_imported_then_one_gpu_is_in_sight_unless_somebody_said_which(
    said: str | None, then: str
) -> None:
    code = (
        "import asyncio, os\n"
        "from kafila_sidecar.runtime.mlx_thread import MlxThread\n"
        "thread = MlxThread()\n"
        "asyncio.run(thread.run(print, 'ready'))\n"
        "print(os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "thread.close()\n"
    )
    told = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    told |= {} if said is None else {"CUDA_VISIBLE_DEVICES": said}
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], env=told, capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.split("\n") == ["ready", then, ""]
