"""One session on this machine: whatever ends it, its snapshot says so, and the node goes on."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafila_sidecar.errors import Denied, KafilaError
from kafila_sidecar.net.candidates import Candidate
from kafila_sidecar.participation import Participation
from kafila_sidecar.runtime.mlx_thread import MlxThread
from kafila_sidecar.session.coordination.states import State
from tests.sidecar.session.driver_world import TERMS, PlayedChannel


class EndingChannel(PlayedChannel):
    """A channel that runs until it is left, or fails."""

    def __init__(self) -> None:
        super().__init__("ada", "ada", "bob")
        self.session = b"0123456789abcdef"
        self.code = None
        self.ends_with: BaseException | None = None
        self.leaves_with: Exception | None = None
        self.left = 0
        self._ended = asyncio.Event()

    async def run(self) -> None:
        await self._ended.wait()
        if self.ends_with:
            raise self.ends_with

    async def leave(self) -> None:
        self.left += 1
        self._ended.set()
        if self.leaves_with:
            raise self.leaves_with

    def break_down(self, error: BaseException) -> None:
        self.ends_with = error
        self._ended.set()


class NoReach:
    """A network that leads nowhere."""

    def start(self, changed: object) -> None: ...
    def stop(self) -> None: ...
    def candidates(self) -> Sequence[Candidate]:
        return []

    async def nat(self) -> None:
        await asyncio.Event().wait()


def participation(channel: EndingChannel, folder: Path) -> Participation:
    async def measure() -> tuple[dict[str, Any], str]:
        await asyncio.Event().wait()
        raise AssertionError

    return Participation(
        channel=cast(Any, channel),
        checkpoint=cast(Any, SimpleNamespace()),
        reaching=cast(Any, NoReach()),
        mlx=cast(MlxThread, None),
        terms=TERMS,
        measure=measure,
        traces=folder / "traces",
        typed="",
        spoken=str,
        note="",
    )


@pytest.fixture
async def channel() -> EndingChannel:
    return EndingChannel()


async def test_session_when_left_then_it_ends_without_a_fault(channel: EndingChannel, tmp_path: Path) -> None:
    session = participation(channel, tmp_path)
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0.05)
    session.driver.leave()
    await asyncio.wait_for(running, 5)
    assert not session.is_open
    session.check_open()
    assert channel.left == 1


async def test_session_when_its_history_is_forked_then_it_closes_with_that(
    channel: EndingChannel, tmp_path: Path
) -> None:
    session = participation(channel, tmp_path)
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0.05)
    channel.break_down(Denied("the host signed two histories"))
    await asyncio.wait_for(running, 5)
    with pytest.raises(Denied, match="two histories"):
        session.check_open()


@pytest.mark.parametrize("place", ["channel", "driver", "leaving"])
async def test_session_when_there_is_a_bug_then_it_closes_in_one_sentence_and_raises_nothing(
    channel: EndingChannel, tmp_path: Path, place: str
) -> None:
    session = participation(channel, tmp_path)
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0.05)
    if place == "channel":
        channel.break_down(ExceptionGroup("unhandled errors in a TaskGroup", [ZeroDivisionError()]))
    elif place == "driver":
        session.driver._turns.soon(lambda: cast(Any, 1 // 0))
    else:
        channel.leaves_with = ZeroDivisionError()
        session.driver.leave()
    await asyncio.wait_for(running, 5)
    assert session.driver.follower.state is State.CLOSED
    if place != "leaving":
        with pytest.raises(KafilaError, match="a bug at ada ended the session") as fault:
            session.check_open()
        assert fault.value.code == "INTERNAL"


async def test_session_when_cancelled_then_everything_of_it_ends(channel: EndingChannel, tmp_path: Path) -> None:
    session = participation(channel, tmp_path)
    before = asyncio.all_tasks()
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert asyncio.all_tasks() == before
