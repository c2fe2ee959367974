"""Who stands back knows when somebody is at work, and when nobody was for a while."""

import asyncio

from kafila_sidecar.runtime.activity import Activity, NotedThread

SOON_S = 5.0


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_quiet_when_nothing_was_ever_done_then_it_is_now() -> None:
    await asyncio.wait_for(Activity().until_quiet(1000.0), SOON_S)


async def test_quiet_when_several_are_at_work_then_it_waits_for_the_last() -> None:
    activity = Activity()
    waiting = asyncio.create_task(activity.until_quiet(0.0))
    with activity.at_work():
        with activity.at_work():
            await turns()
        await turns()
        assert not waiting.done()
    await asyncio.wait_for(waiting, SOON_S)


async def test_quiet_when_work_has_just_ended_then_it_takes_a_while() -> None:
    activity = Activity()
    with activity.at_work():
        pass
    waiting = asyncio.create_task(activity.until_quiet(1000.0))
    await turns()
    assert not waiting.done()
    waiting.cancel()


async def test_quiet_when_work_went_on_or_ended_since_then_it_was_not() -> None:
    activity, clock = Activity(), asyncio.get_running_loop().time
    assert activity.was_quiet_since(clock())
    with activity.at_work():
        began = clock()
        assert not activity.was_quiet_since(began)
        await asyncio.sleep(0.001)
    assert not activity.was_quiet_since(began)
    assert activity.was_quiet_since(clock())


async def test_work_when_a_call_runs_on_the_models_thread_then_it_is_heard_at_once() -> None:
    class Thread:
        def start(self, fn: object, *args: object, **kwargs: object) -> object:
            async def run() -> object:
                await turns()
                return fn(*args)  # type: ignore[operator]

            return asyncio.ensure_future(run())

    activity = Activity()
    heard = asyncio.create_task(activity.until_work())
    await turns()
    assert not heard.done()
    assert await NotedThread(Thread(), activity).start(abs, -3) == 3  # type: ignore[arg-type]
    await asyncio.wait_for(heard, SOON_S)
    await asyncio.wait_for(activity.until_quiet(0.0), SOON_S)
