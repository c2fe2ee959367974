"""A running driver, when another member fails or lies: what it does, and what people see."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Unavailable
from kafila_sidecar.session.channel.events import HostConvicted
from kafila_sidecar.session.coordination import speech
from kafila_sidecar.session.coordination.effects import Fault
from kafila_sidecar.session.coordination.states import State
from tests.sidecar.session.driver_world import RunningDriver

StartDriver = Callable[..., Awaitable[RunningDriver]]


@dataclass
class StandingLink:
    """As much of a link as is told of it."""

    path: str = "relay"
    rtt_s: float = 0.01
    punch_s: float = 0.1
    handshake_s: float = 0.1
    bytes_per_s: float = 1e6


@pytest.fixture
async def start_driver() -> AsyncIterator[StartDriver]:
    running: list[RunningDriver] = []

    async def start(me: str, *names: str) -> RunningDriver:
        running.append(RunningDriver(me, *names))
        await running[-1].settled()
        return running[-1]

    yield start
    for driven in running:
        await driven.end()


async def test_member_when_the_host_is_convicted_then_it_votes_and_the_hosts_words_change_nothing(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    driven.channel.tell(HostConvicted("ada", "ada, the host, signed two of them", ()))
    driven.channel.says("ada", speech.here())
    await driven.settled()
    assert driven.channel.votes == ["bob"]
    assert driven.driver.follower.liveness.is_gone("ada")
    assert driven.state is State.FORMING


async def test_member_when_a_link_cant_be_made_then_it_says_so_and_stays(start_driver: StartDriver) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    driven.turns.link_changed("bob", None, Unavailable("no link to bob within 20 s"))
    await driven.settled()
    assert driven.state is State.FORMING
    down = ring_pb2.LinkReport(peer="bob", up=False)
    assert down in [control.link for control in driven.channel.sent if control.HasField("link")]


async def test_member_when_the_host_sets_one_aside_or_lacks_memory_then_people_see_why(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    aside = speech.fault(Fault("bob", "UNAVAILABLE", "bob did not measure itself in time"), "aside")
    short = speech.fault(Fault("cyd", "FAILED_PRECONDITION", "the model needs 9 GB"), "short")
    for speaker in ("bob", "ada"):
        for control in (aside, short):
            driven.channel.says(speaker, control)
        await driven.settled()
        is_told = speaker == "ada"  # who only may say it
        assert (driven.driver.roster.seen["bob"].aside != "") is is_told
        assert (driven.driver.follower.shortage == "the model needs 9 GB") is is_told
    assert driven.state is State.FORMING


async def test_member_when_its_neighbour_breaks_the_rings_rules_then_the_epoch_ends_and_it_stays_and_says_so(
    start_driver: StartDriver,
) -> None:
    driven = await start_driver("cyd", "ada", "bob", "cyd")
    driven.turns.stage_misled("bob", "bob broke the rules of the ring: a hidden state holds NaN")
    await driven.settled()
    assert driven.stage.faults == []  # there is no epoch that could end
    driven.driver.follower.state = State.READY
    driven.turns.stage_misled("bob", "bob broke the rules of the ring: a hidden state holds NaN")
    await driven.settled()
    assert driven.state is State.REPLANNING
    assert driven.stage.faults[-1].member == "bob"
    assert "NaN" in driven.stage.faults[-1].sentence
    down = ring_pb2.LinkReport(peer="bob", up=False)
    assert down in [control.link for control in driven.channel.sent if control.HasField("link")]
    assert [control.fault.kind for control in driven.channel.sent if control.HasField("fault")] == ["misbehaves"]
    driven.turns.link_changed("bob", StandingLink(), None)  # type: ignore[arg-type]
    await driven.settled()
    assert down == [control.link for control in driven.channel.sent if control.HasField("link")][-1]
    driven.turns.link_changed("ada", StandingLink(), None)  # type: ignore[arg-type]
    await driven.settled()
    assert [control.link for control in driven.channel.sent if control.HasField("link")][-1].up
