"""Offers wait for their owner, lapse, and are given up properly."""

import asyncio
from typing import cast

import pytest

from kafila_sidecar.errors import NotFound
from kafila_sidecar.machine.joining import PendingJoin, PendingJoins
from kafila_sidecar.session.join import Approach
from kafila_sidecar.weights.checkpoint import Checkpoint


class PlayedApproach:
    def __init__(self, session: bytes = b"s") -> None:
        self.session = session
        self.abandoned = 0

    async def abandon(self) -> None:
        self.abandoned += 1


def offer(approach: PlayedApproach) -> PendingJoin:
    return PendingJoin(cast(Approach, approach), cast(Checkpoint, None), 0, "7-a-b-c")


async def test_take_when_it_waits_then_it_is_the_owners_alone() -> None:
    offers, approach = PendingJoins(), PlayedApproach()
    await offers.keep(offer(approach))
    assert offers.take(b"s".hex()).approach is approach  # type: ignore[comparison-overlap]
    with pytest.raises(NotFound):
        offers.take(b"s".hex())
    await offers.close()
    assert approach.abandoned == 0


async def test_keep_when_a_newer_one_comes_then_the_older_is_given_up() -> None:
    offers, older, newer = PendingJoins(), PlayedApproach(), PlayedApproach()
    await offers.keep(offer(older))
    await offers.keep(offer(newer))
    assert (older.abandoned, newer.abandoned) == (1, 0)
    await offers.close()
    assert newer.abandoned == 1


async def test_offer_when_nobody_takes_it_then_it_lapses() -> None:
    offers, approach = PendingJoins(ttl_s=0.01), PlayedApproach()
    await offers.keep(offer(approach))
    await asyncio.sleep(0.05)
    assert approach.abandoned == 1
    with pytest.raises(NotFound, match="lapsed"):
        offers.take(b"s".hex())
