"""A member's driver from plan to plan: what it does and in which order, and that what is over stays over."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Refused
from kafila_sidecar.session.coordination import speech
from kafila_sidecar.session.coordination.effects import Fault, Proposal
from kafila_sidecar.session.coordination.planning import propose
from kafila_sidecar.session.coordination.states import State
from kafila_sidecar.session.driving.jobs import Progress
from tests.sidecar.session.driver_world import ENTRY, TERMS, RunningDriver

NAMES = ("ada", "bob", "cyd")


class Diary:
    """A stage that writes down what is asked of it; loading lasts until it is let go, or fails."""

    active_sequences = answers_here = weight_bytes = 0

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.may_load = asyncio.Event()
        self.may_stop = asyncio.Event()
        self.may_stop.set()
        self.fails: Refused | None = None

    async def answered(self) -> None: ...

    async def load(self, proposal: Proposal, progress: Progress) -> None:
        self.lines.append(f"load {proposal.epoch}")
        try:
            await self.may_load.wait()
        except asyncio.CancelledError:
            self.lines.append(f"unload {proposal.epoch}")
            if self.fails:
                raise self.fails from None
            raise
        if self.fails:
            raise self.fails
        self.lines.append(f"loaded {proposal.epoch}")

    def serve(self, proposal: Proposal) -> None:
        self.lines.append(f"serve {proposal.epoch}")

    async def stop(self, fault: Fault) -> None:
        self.lines.append("stop")
        await self.may_stop.wait()
        self.lines.append("stopped")

    async def close(self, fault: Fault) -> None:
        await self.stop(fault)


class CountingExecutor(ThreadPoolExecutor):
    """Counts what is given to threads: nothing but plans."""

    count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        self.count += 1
        return super().submit(fn, *args, **kwargs)


class BobsDriver(RunningDriver):
    """bob's driver; ada is the host."""

    def __init__(self) -> None:
        self.diary = Diary()
        super().__init__("bob", *NAMES, stage=self.diary)

    async def hears(self, *controls: ring_pb2.Control) -> None:
        for control in controls:
            self.channel.says("ada", control)
            await self.settled()
        await asyncio.sleep(0.1)  # the plan is checked on another thread
        await self.settled()


@pytest.fixture
async def bob() -> AsyncIterator[BobsDriver]:
    driven = BobsDriver()
    await driven.settled()
    yield driven
    driven.diary.may_stop.set()
    await driven.end()


async def proposed(
    epoch: int, names: tuple[str, ...] = NAMES, *, rests_s: float = 0.0, **changes: Any
) -> ring_pb2.Control:
    problem: dict[str, Any] = {
        **TERMS.fields(names),
        "anchor": "ada",
        "members": [{**ENTRY, "name": name} for name in names],
        **changes,
    }
    made = await propose(epoch, problem)
    assert isinstance(made, Proposal)
    return speech.plan(made, problem, rests_s)


async def ready(bob: BobsDriver, epoch: int) -> None:
    bob.diary.may_load.set()
    await bob.hears(await proposed(epoch), speech.may_fetch(epoch), speech.may_serve(epoch))
    assert bob.state is State.READY


async def test_member_when_all_goes_well_then_load_and_serve_once_each_when_told(bob: BobsDriver) -> None:
    await bob.hears(await proposed(1))
    assert bob.diary.lines == []
    await bob.hears(speech.may_fetch(1))
    assert bob.diary.lines == ["load 1"]
    bob.diary.may_load.set()
    await bob.settled()
    assert [c.progress.doing for c in bob.channel.sent if c.HasField("progress")][-1] == "ready"
    await bob.hears(speech.may_serve(1))
    await bob.hears(await proposed(1), speech.may_fetch(1), speech.may_serve(1))
    assert bob.diary.lines == ["load 1", "loaded 1", "serve 1"]


async def test_member_when_decisions_come_before_the_plan_then_they_wait_for_it(bob: BobsDriver) -> None:
    bob.diary.may_load.set()
    await bob.hears(speech.may_serve(1), speech.may_fetch(1))
    assert bob.diary.lines == []
    await bob.hears(await proposed(1))
    assert bob.diary.lines == ["load 1", "loaded 1", "serve 1"]


async def test_member_when_planned_again_then_the_teardown_ends_before_the_next_set_up(bob: BobsDriver) -> None:
    await ready(bob, 1)
    bob.diary.may_stop.clear()
    await bob.hears(await proposed(2), speech.may_fetch(2))
    assert bob.diary.lines[3:] == ["stop"]
    bob.diary.may_stop.set()
    await bob.settled()
    assert bob.diary.lines[3:] == ["stop", "stopped", "load 2", "loaded 2"]


async def test_member_when_planned_again_while_loading_then_that_load_ends_first(bob: BobsDriver) -> None:
    await bob.hears(await proposed(1), speech.may_fetch(1))
    await bob.hears(await proposed(2), speech.may_fetch(2))
    assert bob.diary.lines == ["load 1", "unload 1", "stop", "stopped", "load 2"]


async def test_member_when_a_stage_is_lost_then_it_stops_and_takes_the_next_plan(bob: BobsDriver) -> None:
    await ready(bob, 1)
    bob.channel.says("cyd", ring_pb2.Control(goodbye=ring_pb2.Goodbye()))
    await bob.settled()
    assert bob.state is State.REPLANNING
    assert bob.diary.lines[3:] == ["stop", "stopped"]
    bob.channel.remove("cyd", "left")
    await bob.hears(await proposed(2, ("ada", "bob")), speech.may_fetch(2), speech.may_serve(2))
    assert bob.diary.lines[5:] == ["load 2", "loaded 2", "serve 2"]


@pytest.mark.parametrize("slept_s", [0.0, 150.0])
async def test_member_when_it_is_the_host_then_it_rests_for_what_is_left_of_what_hosts_before_it_said(
    bob: BobsDriver, slept_s: float
) -> None:
    """A sleep of its machine is part of the rest, and a host that knows of no better plan ends none."""
    await bob.hears(await proposed(1, rests_s=200.0), await proposed(2))
    bob.slept_s += slept_s
    bob.channel.succeeds("bob")
    await bob.settled()
    assert bob.driver.coordinator is not None
    bob.driver.coordinator.adoption.found(0.9)
    due_in_s = (bob.driver.coordinator.adoption.due() or 0.0) - asyncio.get_running_loop().time()
    assert due_in_s == pytest.approx(200.0 - slept_s, abs=5.0)
    told = ring_pb2.Capability(member_json=json.dumps({**ENTRY, "name": "cyd"}))
    bob.channel.says("cyd", ring_pb2.Control(capability=told))
    await bob.hears()
    said = [control.plan for control in bob.channel.sent if control.HasField("plan")]
    assert [one.rests_s for one in said] == [pytest.approx(due_in_s, abs=5.0)]


async def test_member_when_loading_fails_then_everybody_hears_why_and_it_goes(bob: BobsDriver) -> None:
    bob.diary.fails = Refused("the disk of bob is full")
    bob.diary.may_load.set()
    await bob.hears(await proposed(1), speech.may_fetch(1))
    assert bob.state is State.CLOSED
    told = [control.fault for control in bob.channel.sent if control.HasField("fault")]
    assert [(fault.member, fault.kind, fault.sentence) for fault in told] == [
        ("bob", "failed", "the disk of bob is full")
    ]
    assert bob.diary.lines == ["load 1", "stop", "stopped", "stop", "stopped"]


async def test_member_when_a_load_fails_whose_epoch_is_over_then_the_session_goes_on(bob: BobsDriver) -> None:
    bob.diary.fails = Refused("the host of the weights went away")
    await bob.hears(await proposed(1), speech.may_fetch(1))
    bob.channel.says("cyd", ring_pb2.Control(goodbye=ring_pb2.Goodbye()))
    await bob.settled()
    assert bob.state is State.REPLANNING
    assert not any(control.HasField("fault") for control in bob.channel.sent)


@pytest.mark.parametrize("serves", [True, False])
async def test_member_when_its_stage_breaks_then_it_goes_if_that_was_while_serving(
    bob: BobsDriver, serves: bool
) -> None:
    await ready(bob, 1)
    if not serves:
        bob.channel.says("cyd", ring_pb2.Control(goodbye=ring_pb2.Goodbye()))
        await bob.settled()
    bob.turns.stage_broke("INTERNAL", "bob can't serve what ada sent")
    await bob.settled()
    assert (bob.state is State.CLOSED) is serves


async def test_member_when_a_plan_is_told_again_for_a_latecomer_then_it_is_not_planned_again(
    bob: BobsDriver,
) -> None:
    latest, older = await proposed(3), await proposed(2)
    planning = CountingExecutor()
    asyncio.get_running_loop().set_default_executor(planning)
    bob.diary.may_load.set()
    await bob.hears(latest, speech.may_fetch(3), speech.may_serve(3))
    await bob.hears(latest, older)
    assert planning.count == 1
    assert bob.state is State.READY


async def test_member_when_it_comes_late_then_the_plan_without_it_makes_it_an_entry_point(bob: BobsDriver) -> None:
    await bob.hears(await proposed(5, ("ada", "cyd")), speech.may_fetch(5), speech.may_serve(5))
    assert bob.state is State.READY
    assert bob.diary.lines == ["serve 5"]


async def test_member_when_the_plan_is_of_another_measurement_of_it_then_it_goes_in_words(bob: BobsDriver) -> None:
    members = [{**ENTRY, "name": name, **({"memory_bytes": 5e8} if name == "bob" else {})} for name in NAMES]
    await bob.hears(await proposed(1, members=members))
    assert bob.state is State.CLOSED
    fault = next(control.fault for control in bob.channel.sent if control.HasField("fault"))
    assert "another measurement" in fault.sentence


@pytest.mark.parametrize("turns", [0, 1, 5, 50])
async def test_driver_when_cancelled_at_any_moment_then_its_stage_is_stopped(turns: int) -> None:
    driven = BobsDriver()
    for _ in range(turns):
        await asyncio.sleep(0)
    began = turns > 0
    driven.running.cancel()
    await asyncio.wait([driven.running])
    assert driven.diary.lines == (["stop", "stopped"] if began else [])
