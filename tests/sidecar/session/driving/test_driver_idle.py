"""A session in which nothing happens costs nothing: its drivers wake up for real deadlines only."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, cast

from kafila_proto import ring_pb2
from kafila_sidecar.net import candidates as reach
from kafila_sidecar.net.candidates import HOST, Candidate
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.session.coordination import speech
from kafila_sidecar.session.coordination.liveness import LINK_SILENT_S
from kafila_sidecar.session.coordination.states import State
from tests.sidecar.session.driver_world import NoNetwork, RunningDriver
from tests.sidecar.session.driving.test_driver import capability, link
from tests.sidecar.session.party import formed
from tests.support.virtual_time import simulate

MINUTES = 10
BYTES_PER_S = 1e6


class InlineExecutor(ThreadPoolExecutor):
    """Runs what is given to a thread at once, so that virtual time need not wait for threads."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class LivelyLink:
    """A link whose peer shows twice a second that it is there."""

    path, punch_s, handshake_s = "direct", 0.1, 0.1

    def __init__(self, peer: str, rtt_s: float) -> None:
        self.peer = peer
        self.rtt_s = rtt_s
        self.bytes_per_s = 0.0
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.looked_at: list[float] = []

    def silent_s(self) -> float:
        now = asyncio.get_running_loop().time()
        self.looked_at.append(now)
        return now % 0.5

    async def measure(self) -> None:
        await asyncio.sleep(self.rtt_s)
        self.bytes_per_s = BYTES_PER_S

    async def moved(self) -> None:
        await asyncio.shield(self.closed)

    async def close(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


class LivelyNetwork(NoNetwork):
    """Every link is made at once."""

    link_type = LivelyLink

    def __init__(self, rtt_s: float = 0.01) -> None:
        super().__init__()
        self.links: list[LivelyLink] = []
        self._rtt_s = rtt_s

    async def dial(self, peer: str, candidates: Sequence[Candidate]) -> Link:
        self.links.append(self.link_type(peer, self._rtt_s))
        return cast(Link, self.links[-1])


async def ready_host(network: NoNetwork) -> RunningDriver:
    """A host whose session of three serves."""
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    driven = RunningDriver("ada", "ada", network=network)
    for name in ("bob", "cyd"):
        driven.channel.joins(name)
        driven.channel.says(name, capability(name))
        driven.channel.says(name, ring_pb2.Control(candidates=reach.to_proto([Candidate(HOST, "192.0.2.2", 4711, 1)])))
    await driven.settled()
    driven.driver.start()
    await driven.settled()
    driven.channel.says("bob", link("ada"))
    driven.channel.says("cyd", link("bob"))
    driven.channel.says("ada", link("cyd"))
    await driven.settled()
    for name in ("bob", "cyd"):
        driven.channel.says(name, speech.progress(driven.epoch, "ready"))
    await driven.settled()
    assert driven.state is State.READY
    return driven


def test_session_when_it_is_ready_and_idle_then_its_driver_wakes_only_when_a_link_could_have_died() -> None:
    async def scene() -> float:
        network = LivelyNetwork()
        driven = await ready_host(network)
        assert {one.peer for one in network.links} == {"bob", "cyd"}
        (watched, *_) = network.links
        watched.looked_at.clear()
        await asyncio.sleep(60.0 * MINUTES)
        wakings = len(set(watched.looked_at)) / MINUTES
        await driven.end()
        return wakings

    assert simulate(scene) <= 60.0 / (LINK_SILENT_S - 0.5)


def test_session_when_it_is_ready_then_links_with_another_round_trip_than_planned_are_told_of_again() -> None:
    """For each plan they are told once, though they stand since the first, and for the one that is ready once more. A
    host that has heard otherwise meanwhile, as by a vote that came late, would wait for them to no avail."""

    async def scene(rtt_s: float) -> list[ring_pb2.Control]:
        driven = await ready_host(LivelyNetwork(rtt_s))  # the others say 0.01
        await asyncio.sleep(1.0)
        told = [said for said in driven.channel.sent if said.HasField("link") and said.link.peer == "bob"]
        await driven.end()
        return told

    for rtt_s, again in ((0.01, False), (0.003, True)):
        told = simulate(partial(scene, rtt_s))
        assert {(one.link.rtt_s, one.link.bytes_per_s) for one in told} == {(rtt_s, BYTES_PER_S)}
        ready = max(one.epoch for one in told)
        assert ready > 1
        assert [one.epoch for one in told] == [*range(1, ready + 1), *([ready] if again else [])]


def test_cores_when_the_session_is_ready_and_has_no_link_then_nothing_is_ever_due() -> None:
    party = formed()
    assert party.coordinator.next_timer() is None
    assert [follower.next_timer(party.now, {}) for follower in party.machines.values()] == [None] * 3
