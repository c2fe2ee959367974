"""A host that hears too few calls the others, and hears from them where they went on."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from kafila_sidecar.net.candidates import Address
from kafila_sidecar.session.calling.calling import LONGEST_PAUSE_S, Calling
from kafila_sidecar.session.keeping.keeper import Keeper
from kafila_sidecar.session.keeping.kept import KeptPlace
from kafila_sidecar.session.rendezvous.mailbox import MailboxPlace
from tests.sidecar.session.calling.test_caller import ADA_AT, NEW, OLD, Couple
from tests.support.virtual_time import simulate

HAL_AT = ("192.0.2.8", 4000)
LATER = KeptPlace(NEW.address, MailboxPlace(NEW.number, 3, host=1, secret=b"s" * 32))


class CalledPair:
    """Hal, the host, and Ada, who is in the session, at the ends of a wire."""

    def __init__(self, ada_is_in: KeptPlace, *, ada_comes_back: bool = False) -> None:
        made = Couple()
        self.is_cut = False
        self._hal = Calling(Keeper(Path("nowhere"), made.hal), self._to_ada)
        self._ada = Calling(Keeper(Path("nowhere"), replace(made.ada, places=(ada_is_in, OLD))), self._to_hal)
        self._ada_comes_back = ada_comes_back

    async def hears(self, within_s: float) -> float | None:
        """After how many seconds; None: not so soon."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        with self._ada.away() if self._ada_comes_back else nullcontext():
            try:
                await asyncio.wait_for(self._hal.until_gone_on(), within_s)
            except TimeoutError:
                return None
        return loop.time() - began

    def _to_ada(self, datagrams: Sequence[bytes], target: Address) -> None:
        assert target == ADA_AT
        self._bring(self._ada, datagrams, HAL_AT)

    def _to_hal(self, datagrams: Sequence[bytes], target: Address) -> None:
        assert target == HAL_AT
        self._bring(self._hal, datagrams, ADA_AT)

    def _bring(self, to: Calling, datagrams: Sequence[bytes], source: Address) -> None:
        for datagram in datagrams if not self.is_cut else ():
            asyncio.get_running_loop().call_later(0.01, to.receive, datagram, source)


@pytest.mark.parametrize(
    ("ada_is_in", "ada_comes_back", "hears"),
    [(LATER, False, True), (OLD, False, False), (LATER, True, False)],
    ids=["in a later room", "in the room where hal is too", "on her way back herself"],
)
def test_host_that_hears_too_few_when_it_calls_then_only_who_is_in_a_later_room_says_that_they_went_on(
    ada_is_in: KeptPlace, ada_comes_back: bool, hears: bool
) -> None:
    async def scene() -> float | None:
        return await CalledPair(ada_is_in, ada_comes_back=ada_comes_back).hears(600.0)

    heard_s = simulate(scene)
    assert (heard_s is not None and heard_s < 1.0) == hears


def test_host_that_hears_too_few_when_its_network_is_back_then_it_hears_within_half_a_minute() -> None:
    async def scene() -> float | None:
        pair = CalledPair(LATER)
        pair.is_cut = True
        asyncio.get_running_loop().call_later(60.0, setattr, pair, "is_cut", False)
        return await pair.hears(600.0)

    heard_s = simulate(scene)
    assert heard_s is not None
    assert 60.0 <= heard_s <= 60.0 + LONGEST_PAUSE_S + 1.0
