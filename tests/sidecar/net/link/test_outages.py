"""UDP that stops under a link that stands, in one direction or both, while TCP lives; and networks that are away."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila_planner.model.types import Mapping
from kafila_sidecar.net.link.link import Link
from tests.sidecar.net.link.test_nat_scenes import Talk, talking, until, world
from tests.support.simnet import Box
from tests.support.virtual_time import simulate

EI, APD = Mapping.ENDPOINT_INDEPENDENT, Mapping.ADDRESS_AND_PORT_DEPENDENT
DELAY_S = 0.02
RTT_S = 4 * DELAY_S  # from member to member by way of the rendezvous
LONGEST_PAUSE_S = 3.0
DIRECTIONS = ("out", "in", "both")


@dataclass(frozen=True)
class Outage:
    """Of UDP alone, at one member's router. after_s: from the end of the one before, which is over for the talk then;
    two in a row are one to it, of twice the length."""

    side: int  # 0 dials
    direction: str
    after_s: float
    lasts_s: float


OUTAGES = st.lists(
    st.builds(
        Outage,
        side=st.integers(0, 1),
        direction=st.sampled_from(DIRECTIONS),
        after_s=st.floats(2, 15),
        lasts_s=st.floats(0.2, 40),
    ),
    min_size=1,
    max_size=3,
)


@contextmanager
def without_udp(router: Box, direction: str) -> Iterator[None]:
    router.blocks_udp, router.lets_nothing_in = direction != "in", direction != "out"
    try:
        yield
    finally:
        router.blocks_udp = router.lets_nothing_in = False


class PathTurns:
    """How often a link's path turned."""

    def __init__(self, link: Link) -> None:
        self.count = 0
        self._link = link
        self._task = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            await self._link.moved()
            self.count += 1

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@settings(max_examples=12, deadline=None)
@given(mappings=st.tuples(st.sampled_from((EI, APD)), st.sampled_from((EI, APD))), outages=OUTAGES)
def test_udp_when_it_stops_and_comes_back_at_any_time_then_frames_pause_three_seconds_at_most_and_the_stream_is_left(
    mappings: Sequence[Mapping], outages: Sequence[Outage]
) -> None:
    async def scene() -> None:
        w = world(delay_s=DELAY_S)
        homes = [w.home(i, mapping=mappings[i]) for i in range(2)]

        async def cut(link: Link, talk: Talk) -> None:
            await asyncio.sleep(5)
            before, turns = link.path, PathTurns(link)
            for outage in outages:
                await asyncio.sleep(outage.after_s)
                with without_udp(homes[outage.side][0], outage.direction):
                    await asyncio.sleep(outage.lasts_s)
            await asyncio.sleep(75)
            assert link.path == before
            assert talk.longest_s <= LONGEST_PAUSE_S + RTT_S
            assert turns.count <= 2 * len(outages)
            streamed = w.rendezvous.streamed
            await asyncio.sleep(5)
            assert w.rendezvous.streamed == streamed
            await turns.stop()

        await talking(homes[0][1], homes[1][1], cut)

    simulate(scene)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("side", [0, 1], ids=["dialler", "listener"])
@pytest.mark.parametrize("mapping", [EI, APD], ids=["direct", "relay"])
def test_udp_when_it_is_gone_for_long_then_the_talk_goes_on_in_the_stream_and_leaves_it_soon_after(
    mapping: Mapping, side: int, direction: str
) -> None:
    async def scene() -> None:
        w = world(delay_s=DELAY_S)
        homes = [w.home(i, mapping=mapping) for i in range(2)]

        async def cut(link: Link, talk: Talk) -> None:
            await asyncio.sleep(5)
            path = link.path
            with without_udp(homes[side][0], direction):
                before = talk.answered
                await until(lambda: talk.answered > before + 3, within_s=LONGEST_PAUSE_S + 1)
                await asyncio.sleep(45)
                assert link.path == "relay"
            before, streamed = talk.answered, w.rendezvous.streamed
            await asyncio.sleep(20)
            assert talk.answered > before + 150
            assert w.rendezvous.streamed > streamed
            await until(lambda: link.path == path, within_s=65)
            streamed = w.rendezvous.streamed
            await asyncio.sleep(5)
            assert w.rendezvous.streamed == streamed
            assert talk.longest_s <= LONGEST_PAUSE_S + RTT_S

        await talking(homes[0][1], homes[1][1], cut)

    simulate(scene)


def test_udp_when_it_comes_and_goes_all_the_time_then_the_path_does_not_follow_each_time() -> None:
    async def scene() -> tuple[int, float]:
        w = world(delay_s=DELAY_S)
        homes = [w.home(i) for i in range(2)]
        result = (0, 0.0)

        async def cut(link: Link, talk: Talk) -> None:
            nonlocal result
            turns = PathTurns(link)
            for _ in range(20):
                with without_udp(homes[0][0], "both"):
                    await asyncio.sleep(5)
                await asyncio.sleep(5)
            result = turns.count, talk.longest_s
            await turns.stop()

        await talking(homes[0][1], homes[1][1], cut)
        return result

    turns, longest_s = simulate(scene)
    assert turns <= 14
    assert longest_s <= LONGEST_PAUSE_S + RTT_S


@pytest.mark.parametrize("forgets", [False, True], ids=["pause", "restart"])
@pytest.mark.parametrize("side", [0, 1], ids=["dialler", "listener"])
@pytest.mark.parametrize("mapping", [EI, APD], ids=["direct", "relay"])
@pytest.mark.parametrize("away_s", [2.0, 7.0, 12.0])
def test_network_when_it_is_away_for_some_seconds_then_the_same_link_goes_on_within_two_seconds_of_its_return(
    away_s: float, mapping: Mapping, side: int, forgets: bool
) -> None:
    async def scene() -> float:
        w = world(delay_s=DELAY_S)
        homes = [w.home(i, mapping=mapping) for i in range(2)]
        took_s = 0.0

        async def cut(link: Link, talk: Talk) -> None:
            nonlocal took_s
            await asyncio.sleep(5)
            router = homes[side][0]
            w.rendezvous.cut_off(f"m{side}")
            with without_udp(router, "both"):
                await asyncio.sleep(away_s)
            if forgets:
                router.rebind()
            w.rendezvous.reconnect(f"m{side}")
            before = talk.answered
            took_s = await until(lambda: talk.answered > before + 1, within_s=4)
            await until(lambda: link.path == ("relay" if mapping is APD else "direct"), within_s=30)

        await talking(homes[0][1], homes[1][1], cut)
        return took_s

    assert simulate(scene) <= 2.0
