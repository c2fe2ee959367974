"""What a host decides, and how another one follows it, over a real rendezvous on loopback."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafila_sidecar.errors import Denied, InvalidInput, NotFound, Refused, Unavailable
from kafila_sidecar.session.admission.host import MOST_GUESSES
from kafila_sidecar.session.channel.channel import GOODBYE_DEADLINE_S
from kafila_sidecar.session.channel.events import (
    HostChanged,
    KnowsItIsOut,
    MemberJoined,
    MemberRemoved,
    MessageFrom,
    Spoke,
)
from kafila_sidecar.session.membership.members import Replanning
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import Code
from tests.sidecar.session.channel_world import ChannelPerson, Company, knock, rendezvous
from tests.sidecar.session.trust_world import go


@pytest.fixture
async def company(tmp_path: Path) -> AsyncIterator[Company]:
    company = Company(tmp_path)
    yield company
    await company.end()


async def village(company: Company, address: RendezvousAddress, *names: str) -> dict[str, ChannelPerson]:
    people = {"host": await company.host(address)}
    for name in names:
        people[name] = await company.join(people["host"].channel.code, name)
        for other in [*people.values()][1:-1]:
            await other.hear(MemberJoined)
    return people


def code_of(person: ChannelPerson) -> Code:
    assert person.channel.code is not None
    return person.channel.code


def wrong(code: Code) -> Code:
    return Code(code.room, (*code.words[:2], "zoo" if code.words[2] != "zoo" else "zone"), code.address)


async def test_kick_when_done_then_old_code_and_old_member_are_out_and_the_others_go_on(company: Company) -> None:
    async with rendezvous(tls=True) as address:
        people = await village(company, address, "anna", "eve")
        host, anna, eve = people.values()
        old = code_of(host)
        with pytest.raises(Refused, match="only the host, host,"):
            anna.channel.remove("eve", "removed")
        with pytest.raises(InvalidInput):
            host.channel.remove("host", "removed")
        host.channel.remove("eve", "removed")
        for person in (host, anna, eve):
            assert await person.hear(MemberRemoved) == MemberRemoved("eve", "removed")
        with pytest.raises(Denied, match="words do not match"):
            await knock(old, "eve")
        await eve.channel.send(go(666))
        await anna.channel.send(go(1))
        assert await host.hear(MessageFrom) == MessageFrom("anna", go(1))
        await company.join(host.channel.code, "ben")
        await anna.hear(MemberJoined)
        assert [one for one in eve.heard if not isinstance(one, Spoke)] == []
        await company.end()


async def test_kicked_member_when_its_mail_stands_still_then_it_says_all_the_same_that_it_knows(
    company: Company,
) -> None:
    async with rendezvous(tls=True) as address:
        people = await village(company, address, "anna", "eve")
        host, _, eve = people.values()
        host.channel.remove("eve", "removed")
        await eve.hear(MemberRemoved)
        eve.channel._delivery.outbox.hold()
        leaving = asyncio.create_task(eve.channel.leave())
        await asyncio.sleep(GOODBYE_DEADLINE_S + 0.3)
        eve.channel._delivery.outbox.go_on()
        assert await host.hear(KnowsItIsOut) == KnowsItIsOut("eve")
        await leaving
        await company.end()


async def test_host_when_it_stands_still_then_nobody_comes_in_or_is_put_out_until_it_goes_on(company: Company) -> None:
    async with rendezvous(tls=True) as address:
        people = await village(company, address, "anna", "eve")
        host, _, eve = people.values()
        host.channel.stand_still(True)
        with pytest.raises(Unavailable, match="host, the host, hears too few of the members now"):
            await company.join(host.channel.code, "ben")
        host.channel.remove("eve", "removed")
        assert [member.name for member in host.channel.members] == ["host", "anna", "eve"]
        host.channel.stand_still(False)
        assert await eve.hear(MemberRemoved) == MemberRemoved("eve", "removed")
        await company.join(host.channel.code, "ben")
        await company.end()


async def test_code_when_renewed_then_members_stay_and_only_the_new_words_open(
    company: Company, tmp_path: Path
) -> None:
    async with rendezvous(tls=False) as address:
        people = await village(company, address, "anna")
        host, anna = people.values()
        old = code_of(host)
        late = await knock(old, "ben")
        new = host.channel.new_code()
        assert (new.room, new.address) == (old.room, old.address)
        assert new.words != old.words
        assert anna.channel.is_at(new)
        with pytest.raises(Denied):
            await knock(old, "ben")
        with pytest.raises(Denied, match="has a new code"):
            await late.enrol()
        with pytest.raises(Refused, match="only the host"):
            anna.channel.new_code()
        await company.join(new, "ben")
        await anna.hear(MemberJoined)
        await company.end()


async def test_joining_when_guessed_at_then_paused_until_there_is_a_new_code(company: Company, tmp_path: Path) -> None:
    async with rendezvous(tls=False) as address:
        people = await village(company, address, "anna")
        host = people["host"]
        for _ in range(MOST_GUESSES):
            assert host.channel.joining == "open"
            with pytest.raises(Denied):
                await knock(wrong(code_of(host)), "eve")
        assert host.channel.joining == "paused"
        assert (tmp_path / "host" / "guesses").read_text() == f"{MOST_GUESSES}\n"
        for code in (code_of(host), wrong(code_of(host))):
            with pytest.raises(Refused, match="ask its host for a new code"):
                await knock(code, "ben")
        await company.join(host.channel.new_code(), "ben")
        await people["anna"].hear(MemberJoined)
        assert host.channel.joining == "open"
        await company.end()


async def test_joining_when_many_come_at_once_then_all_get_in(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host = await company.host(address)
        await asyncio.gather(*(company.join(host.channel.code, f"guest{number}") for number in range(2 * MOST_GUESSES)))
        assert len(host.channel.members) == 2 * MOST_GUESSES + 1
        assert host.channel.joining == "open"
        await company.end()


async def test_host_when_it_leaves_then_the_next_one_admits_by_a_code_of_its_own(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        people = await village(company, address, "anna", "ben")
        host, anna, ben = people.values()
        old = code_of(host)
        await host.channel.leave()
        for person in (anna, ben):
            assert await person.hear(HostChanged) == HostChanged("anna")
            assert person.channel.host == "anna"
        assert ben.channel.code is None
        with pytest.raises(Denied):
            await knock(old, "carl")
        offer = await knock(code_of(anna), "carl")
        assert (offer.host, offer.members_present) == ("anna", 2)
        await offer.abandon()
        carl = await company.join(code_of(anna), "carl")
        await ben.hear(MemberJoined)
        await carl.channel.send(go(1))
        assert await ben.hear(MessageFrom, lambda event: event.sender == "carl") == MessageFrom("carl", go(1))
        await company.end()


async def test_host_when_it_dies_then_the_others_vote_and_it_is_no_member_when_it_returns(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        people = await village(company, address, "anna", "ben")
        host, anna, ben = people.values()
        old = code_of(host)
        await host.channel.aclose()
        await asyncio.wait([host.run])
        anna.channel.vote("anna")
        assert anna.channel.host == "host"
        ben.channel.vote("anna")
        for person in (anna, ben):
            assert await person.hear(HostChanged) == HostChanged("anna")
        assert [member.name for member in ben.channel.members] == ["anna", "ben"]
        with pytest.raises((Denied, Unavailable)):
            await knock(old, "host")
        back = await company.join(code_of(anna), "host")
        assert [member.name for member in back.channel.members] == ["anna", "ben", "host"]
        await company.end()


async def test_approach_when_all_members_are_gone_then_no_host(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        people = await village(company, address, "anna")
        code = code_of(people["host"])
        for person in people.values():
            await person.channel.leave()
        with pytest.raises(NotFound):
            await knock(code, "ben")
        await company.end()


async def test_rule_when_the_host_leaves_then_it_holds_under_the_successor_and_no_other_member_makes_it(
    company: Company,
) -> None:
    async with rendezvous(tls=False) as address:
        people = await village(company, address, "anna", "ben")
        host, anna, ben = people.values()
        assert host.channel.replanning is Replanning.AUTO
        with pytest.raises(Refused, match="only the host"):
            ben.channel.rule(Replanning.NEVER)
        host.channel.rule(Replanning.ASK)
        host.channel.rule(Replanning.ASK)
        await host.channel.leave()
        await ben.hear(HostChanged)
        assert anna.channel.replanning is ben.channel.replanning is Replanning.ASK
        await company.end()


async def test_lock_when_the_host_leaves_then_it_holds_under_the_successor(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        people = await village(company, address, "anna", "ben")
        host, anna, ben = people.values()
        host.channel.lock(True)
        await host.channel.leave()
        await ben.hear(HostChanged)
        assert anna.channel.joining == ben.channel.joining == "locked"
        with pytest.raises(Refused, match="is locked: ask its host, anna,"):
            await knock(code_of(anna), "carl")
        await company.end()
