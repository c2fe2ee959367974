"""Where a code's rendezvous is, a newcomer may have heard from anybody on its network: the host has the last word."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafila_sidecar.errors import Denied, KafilaError
from kafila_sidecar.session.admission.host import MOST_GUESSES
from kafila_sidecar.session.join import approach
from kafila_sidecar.session.opening import Local
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import Code
from tests.sidecar.session.channel_world import VERSIONS, Company, rendezvous
from tests.sidecar.session.rendezvous.evil_rendezvous import evil_rendezvous

TRUE_PIN, OTHER_PIN = "mcwqzspzi5esea64axpg", "aaaaaaaaaaaaaaaaaaaa"


@pytest.fixture
async def company(tmp_path: Path) -> AsyncIterator[Company]:
    company = Company(tmp_path)
    yield company
    await company.end()


async def heard(code: Code | None, address: RendezvousAddress) -> None:
    """A newcomer to whom somebody said that the rendezvous is there."""
    assert code is not None
    local = Local(Path("unused"), VERSIONS)
    offer = await approach(code=replace(code, address=address), name="anna", local=local, is_hearsay=True)
    await offer.abandon()


async def test_approach_when_the_host_has_the_rendezvous_that_was_heard_of_then_it_goes_on(company: Company) -> None:
    async with rendezvous(tls=True) as address:
        host = await company.host(address)
        await heard(host.channel.code, address)
        await company.end()


@pytest.mark.parametrize(("hosts", "said"), [(TRUE_PIN, OTHER_PIN), (None, OTHER_PIN), (TRUE_PIN, None), (None, None)])
async def test_approach_when_somebody_between_passes_the_mail_on_then_the_host_gives_it_away(
    company: Company, hosts: str | None, said: str | None
) -> None:
    """Whoever answered for the host on this network has another certificate, and can't change what the host seals."""
    async with evil_rendezvous() as (_, address):
        host = await company.host(replace(address, fingerprint=hosts))
        with pytest.raises(Denied, match="in place of the host"):
            await heard(host.channel.code, replace(address, fingerprint=said))
        assert [member.name for member in host.channel.members] == ["host"]
        await company.end()


async def test_approach_when_it_is_hearsay_then_it_costs_the_host_no_guess(company: Company) -> None:
    """The newcomer proved the words, so that nobody's joining pauses by what a third one said."""
    async with evil_rendezvous() as (_, address):
        host = await company.host(replace(address, fingerprint=TRUE_PIN))
        for _ in range(MOST_GUESSES + 1):
            with pytest.raises(KafilaError, match="in place of the host"):
                await heard(host.channel.code, replace(address, fingerprint=OTHER_PIN))
        assert host.channel.joining == "open"
        await company.end()
