"""What a driver does about its links by what the other ends say of them."""

import asyncio

import pytest

from kafila_sidecar.session.channel.events import Doubted, Event, MessageFrom
from kafila_sidecar.session.coordination import speech
from kafila_sidecar.session.coordination.effects import Fault
from kafila_sidecar.session.judging.majority import FRESH_S
from tests.sidecar.session.driving.test_driver_idle import LivelyLink, LivelyNetwork, ready_host
from tests.support.virtual_time import simulate

LOST = speech.fault(Fault("ada", "UNAVAILABLE", "ada was lost"), "lost")


class DyingLink(LivelyLink):
    """One that brings nothing any more from a moment on."""

    dead_since_s: float | None = None

    def silent_s(self) -> float:
        return (
            super().silent_s() if self.dead_since_s is None else asyncio.get_running_loop().time() - self.dead_since_s
        )


class DyingNetwork(LivelyNetwork):
    link_type = DyingLink


@pytest.mark.parametrize("is_dead", [False, True])
@pytest.mark.parametrize(
    "said", [MessageFrom("bob", speech.link(2, "ada", None)), MessageFrom("bob", LOST), Doubted("bob")]
)
def test_link_when_its_other_end_is_down_by_what_that_says_then_made_anew_if_nothing_comes_over_it(
    said: Event, is_dead: bool
) -> None:
    """Who stood still while the other end went for want of a word holds its own for open, and nobody could dial it."""

    async def scene() -> int:
        network = DyingNetwork()
        driven = await ready_host(network)
        (to_bob,) = (one for one in network.links if one.peer == "bob")
        assert isinstance(to_bob, DyingLink)
        to_bob.dead_since_s = asyncio.get_running_loop().time() if is_dead else None
        driven.channel.tell(said)
        await asyncio.sleep(2 * FRESH_S + 1.0)
        made = [one.peer for one in network.links].count("bob")
        await driven.end()
        return made

    assert simulate(scene) == 1 + is_dead
