"""Sessions over a real rendezvous on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from kafila_proto import ring_pb2
from kafila_rendezvous.certificate import make_key_pair
from kafila_rendezvous.config import RendezvousConfig
from kafila_rendezvous.server import serve
from kafila_sidecar.errors import Denied, InvalidInput, NotFound, Refused, Unavailable
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.events import (
    HostChanged,
    MemberDeparted,
    MemberJoined,
    MemberRemoved,
    MemberReturned,
    MessageFrom,
)
from kafila_sidecar.session.opening import JoinDeadlines
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.attendance import RendezvousBack, RendezvousLost, RoomGone
from kafila_sidecar.session.rendezvous.code import Code, parse_code
from tests.sidecar.session.channel_world import (
    PATIENT,
    TERMS,
    VERSIONS,
    ChannelPerson,
    Company,
    CuttableWire,
    knock,
    rendezvous,
)
from tests.sidecar.session.trust_world import go


@pytest.fixture
async def company(tmp_path: Path) -> AsyncIterator[Company]:
    company = Company(tmp_path)
    yield company
    await company.end()


async def trio(company: Company, address: RendezvousAddress) -> tuple[ChannelPerson, ChannelPerson, ChannelPerson]:
    host = await company.host(address)
    anna = await company.join(host.channel.code, "anna")
    ben = await company.join(host.channel.code, "ben")
    await anna.hear(MemberJoined)
    return host, anna, ben


def names(person: ChannelPerson) -> list[str]:
    return [member.name for member in person.channel.members]


@pytest.mark.parametrize("tls", [True, False])
async def test_session_when_three_members_form_it_then_all_hear_all(company: Company, tls: bool) -> None:
    async with rendezvous(tls=tls) as address:
        host, anna, ben = await trio(company, address)
        people = {"host": host, "anna": anna, "ben": ben}
        for person in people.values():
            assert names(person) == ["host", "anna", "ben"]
            assert person.channel.members == host.channel.members
            assert person.channel.session == host.channel.session
            assert person.channel.terms == TERMS
            assert person.channel.is_host == (person is host)
        fingerprints = {member.name: member.fingerprint for member in host.channel.members}
        for name, person in people.items():
            assert person.channel.identity.fingerprint == fingerprints[name]
            await person.channel.send(go(len(name)))
        for name, person in people.items():
            for other in people:
                if other != name:
                    assert await person.hear(MessageFrom, _from(other)) == MessageFrom(other, go(len(other)))
        await company.end()


async def test_code_when_passed_on_as_text_then_it_opens_the_session(company: Company) -> None:
    async with rendezvous(tls=True) as address:
        host = await company.host(address)
        offer = await knock(parse_code(str(host.channel.code)), "anna")
        assert (offer.session, offer.host, offer.members_present) == (host.channel.session, "host", 1)
        assert offer.terms == TERMS
        await offer.abandon()
        assert names(host) == ["host"]
        await company.end()


async def test_message_when_a_member_joins_later_then_it_is_not_told_what_was_before(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host = await company.host(address)
        anna = await company.join(host.channel.code, "anna")
        await host.channel.send(go(1))
        await anna.hear(MessageFrom)
        ben = await company.join(host.channel.code, "anna")
        await host.hear(MemberJoined, lambda event: event.member.name == "anna-2")
        await host.channel.send(go(2))
        assert (await ben.hear(MessageFrom)).control == go(2)
        assert ben.channel.self_name == "anna-2"
        await company.end()


async def test_member_when_it_leaves_then_goodbye_and_removal_reach_all(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, ben = await trio(company, address)
        await ben.channel.leave()
        for person in (host, anna):
            assert (await person.hear(MessageFrom)).control.HasField("goodbye")
            assert await person.hear(MemberRemoved) == MemberRemoved("ben", "left")
            assert names(person) == ["host", "anna"]
        assert not any(isinstance(event, RoomGone) for event in ben.heard)
        await company.end()


async def test_channel_when_it_has_ended_then_leaving_and_closing_again_do_nothing(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host = await company.host(address)
        await host.channel.leave()
        await asyncio.wait([host.run])
        await host.channel.leave()
        await host.channel.aclose()
        await host.channel.send(go(1))
        cancelled = await company.host(address)
        cancelled.run.cancel()
        await asyncio.wait([cancelled.run])
        await cancelled.channel.leave()


async def test_member_when_its_connection_dies_then_departed_for_all_and_it_stays_a_member(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, ben = await trio(company, address)
        await ben.channel.aclose()
        for person in (host, anna):
            assert await person.hear(MemberDeparted) == MemberDeparted("ben")
            assert names(person) == ["host", "anna", "ben"]
        await company.end()


async def test_member_when_it_is_removed_then_all_and_itself_are_told_and_it_is_not_heard(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, ben = await trio(company, address)
        with pytest.raises(Refused):
            anna.channel.remove("ben", "removed")
        host.channel.remove("ben", "removed")
        for person in (host, anna, ben):
            assert await person.hear(MemberRemoved) == MemberRemoved("ben", "removed")
        await ben.channel.send(go(666))
        await anna.channel.send(go(1))
        assert (await host.hear(MessageFrom)).sender == "anna"
        await company.end()


async def test_approach_when_words_are_wrong_then_denied_and_counted_on_disk(company: Company, tmp_path: Path) -> None:
    async with rendezvous(tls=True) as address:
        host = await company.host(address)
        code = host.channel.code
        assert code is not None
        wrong = Code(code.room, (*code.words[:2], "zoo" if code.words[2] != "zoo" else "zone"), address)
        with pytest.raises(Denied, match="words do not match"):
            await knock(wrong, "eve")
        assert (tmp_path / "host" / "guesses").read_text() == "1\n"
        assert names(host) == ["host"]
        await company.end()


async def test_enrolment_when_the_log_was_founded_on_other_terms_than_were_offered_then_denied(
    company: Company,
) -> None:
    async with rendezvous(tls=False) as address:
        host = await company.host(address)
        assert host.channel.code is not None
        offer = await knock(host.channel.code, "anna")
        offer.terms.quantize_bits = 4
        with pytest.raises(Denied, match="other terms than its host offered"):
            await offer.enrol()


async def test_approach_when_there_is_no_such_room_then_not_found(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        with pytest.raises(NotFound, match="no session has the number 9"):
            await knock(Code(9, ("ocean", "velvet", "lamp"), address), "anna")


async def test_approach_when_code_has_no_address_then_invalid() -> None:
    with pytest.raises(InvalidInput, match="KAFILA_RENDEZVOUS"):
        await knock(Code(9, ("ocean", "velvet", "lamp")), "anna")


async def test_approach_when_session_is_full_then_refused_with_the_hosts_words(
    company: Company, tmp_path: Path
) -> None:
    async with rendezvous(tls=False) as address:
        host = await company.host(address, ring_pb2.SessionTerms(model="m", members_wanted=2))
        early = await knock(_code(host), "ben")
        await company.join(host.channel.code, "anna")
        with pytest.raises(Refused, match="full: all 2 members are in"):
            await knock(_code(host), "carl")
        with pytest.raises(Refused, match="full: all 2 members are in"):
            await early.enrol()
        assert names(host) == ["host", "anna"]
        await company.end()


async def test_approach_when_session_is_locked_then_refused_until_it_is_unlocked(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host = await company.host(address)
        anna = await company.join(host.channel.code, "anna")
        with pytest.raises(Refused, match="only the host, host,"):
            anna.channel.lock(True)
        host.channel.lock(True)
        host.channel.lock(True)
        assert host.channel.joining == "locked"
        with pytest.raises(Refused, match="is locked: ask its host, host,"):
            await knock(_code(host), "ben")
        host.channel.lock(False)
        await company.join(host.channel.code, "ben")
        await anna.hear(MemberJoined)
        assert anna.channel.joining == "open"
        await company.end()


async def test_enrol_when_versions_differ_then_refused_in_words(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host = await company.host(address)
        with pytest.raises(Refused, match="planner 1, your machine planner 2: update Kafila on the session's machines"):
            await company.join(host.channel.code, "anna", Versions("2.0", planner=2, mlx_lm="2.0"))
        await company.join(host.channel.code, "ben", replace(VERSIONS, kafila="1.1"))
        assert names(host) == ["host", "ben"]
        await company.end()


async def test_approach_when_host_is_not_connected_then_unavailable(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host = await company.host(address)
        await host.channel.aclose()
        await asyncio.wait([host.run])
        with pytest.raises(Unavailable, match="host is not connected"):
            await knock(_code(host), "anna")


@pytest.mark.parametrize("pinned", [True, False])
async def test_found_when_nobody_listens_then_unavailable_at_once(company: Company, pinned: bool) -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        port = serving.port
    address = RendezvousAddress("127.0.0.1", port, "a" * 20 if pinned else None, insecure=not pinned)
    async with asyncio.timeout(5):
        with pytest.raises(Unavailable, match=f"rendezvous at 127.0.0.1:{port} does not answer"):
            await company.host(address)


async def test_found_when_certificate_is_not_the_pinned_one_then_denied(company: Company) -> None:
    async with rendezvous(tls=True) as address:
        with pytest.raises(Denied, match="another certificate"):
            await company.host(RendezvousAddress(address.host, address.port, "a" * 20))


async def test_found_when_self_signed_and_not_pinned_then_unavailable_with_advice(company: Company) -> None:
    async with rendezvous(tls=True) as address:
        with pytest.raises(Unavailable, match="#fingerprint"):
            await company.host(RendezvousAddress(address.host, address.port))


@pytest.mark.parametrize("tls", [True, False])
async def test_channel_when_its_wire_breaks_then_lost_back_and_nothing_is_missed(company: Company, tls: bool) -> None:
    async with rendezvous(tls=tls) as address:
        wire = CuttableWire(address)
        async with wire.listening() as cuttable:
            host = await company.host(address)
            anna = await company.join(host.channel.code, "anna")
            ben = await company.join(Code(_code(host).room, _code(host).words, cuttable), "ben")
            wire.cut()
            await ben.hear(RendezvousLost)
            for person in (host, anna):
                assert await person.hear(MemberDeparted) == MemberDeparted("ben")
            await host.channel.send(go(1))
            await ben.channel.send(go(2))
            carl = await company.join(host.channel.code, "carl")
            wire.intact = True
            await ben.hear(RendezvousBack)
            for person in (host, anna, carl):
                assert await person.hear(MemberReturned) == MemberReturned("ben")
            assert (await ben.hear(MessageFrom)).control == go(1)
            assert (await ben.hear(MemberJoined)).member.name == "carl"
            for person in (host, anna):
                assert (await person.hear(MessageFrom, _from("ben"))).control == go(2)
            await host.channel.send(go(3))
            assert (await ben.hear(MessageFrom)).control == go(3)
            await company.end()


@pytest.mark.parametrize("says", [0, 4])
async def test_host_when_its_cable_was_pulled_and_the_others_went_on_then_it_hears_that_once_it_is_back(
    company: Company, says: int
) -> None:
    async with rendezvous(tls=False) as address:
        wire = CuttableWire(address)
        async with wire.listening() as through_wire:
            host = await company.host(through_wire)
            code = host.channel.code
            assert code is not None
            others = [await company.join(replace(code, address=address), name) for name in ("anna", "bert", "cleo")]
            for other in others[:-1]:
                await other.hear(MemberJoined, lambda event: event.member.name == "cleo")
            wire.go_dead()
            await host.hear(RendezvousLost)
            for other in others:
                other.channel.vote("anna")
            for other in others:
                await other.hear(HostChanged)
            for number in range(says):
                await host.channel.send(go(number))
            wire.intact = True
            await host.hear(MemberRemoved, lambda event: event == MemberRemoved("host", "lost"))


async def test_channel_when_the_rendezvous_forgets_the_room_then_it_says_so_and_links_carry_on(
    company: Company,
) -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        port = serving.port
        address = RendezvousAddress("127.0.0.1", port, insecure=True)
        host = await company.host(address)
        anna = await company.join(host.channel.code, "anna")
        host.channel.attach(anna.channel.receive)
        anna.channel.attach(host.channel.receive)
    await host.hear(RendezvousLost)
    assert host.channel.joining == "unreachable"
    await anna.channel.send(go(1))
    assert (await host.hear(MessageFrom)).control == go(1)
    async with serve(RendezvousConfig(port=port)):
        for person in (host, anna):
            await person.hear(RoomGone)
    assert host.channel.joining == "unreachable"
    assert host.channel.code is None
    await host.channel.send(go(2))
    assert (await anna.hear(MessageFrom)).control == go(2)
    await company.end()


async def left_alone(
    company: Company, notes: Path, deadlines: JoinDeadlines = PATIENT
) -> tuple[RendezvousConfig, ChannelPerson, ChannelPerson]:
    """Two members whose rendezvous has stopped, and how it is started again."""
    config = RendezvousConfig(port=0, key_pair=make_key_pair(), notes=notes)
    async with serve(config) as serving:
        host = await company.host(RendezvousAddress("127.0.0.1", serving.port, serving.fingerprint))
        anna = await company.join(host.channel.code, "anna")
        await host.hear(MemberJoined)
    return replace(config, port=serving.port), host, anna


async def test_rendezvous_when_it_is_started_again_then_the_same_code_and_mailboxes_go_on(
    company: Company, tmp_path: Path
) -> None:
    again, host, anna = await left_alone(company, tmp_path / "mailboxes")
    code = host.channel.code
    for person in (host, anna):
        await person.hear(RendezvousLost)
    async with serve(again):
        for person in (host, anna):
            await person.hear(RendezvousBack)
        await host.channel.send(go(1))
        assert (await anna.hear(MessageFrom, _tells)).control == go(1)
        assert (host.channel.joining, host.channel.code) == ("open", code)
        ben = await company.join(code, "ben")
        assert (await anna.hear(MemberJoined)).member.name == "ben"
        await ben.channel.send(go(2))
        for person in (host, anna):
            assert (await person.hear(MessageFrom, _from("ben"))).control == go(2)
            assert not any(isinstance(event, MemberDeparted) for event in person.heard)
        await company.end()


async def test_rendezvous_when_a_member_does_not_come_back_to_it_then_it_is_missed_after_a_while(
    company: Company, tmp_path: Path
) -> None:
    again, host, anna = await left_alone(company, tmp_path / "mailboxes", JoinDeadlines(absence_s=0.5))
    await anna.hear(RendezvousLost)
    await anna.channel.aclose()
    async with serve(again):
        await host.hear(RendezvousBack)
        assert not any(isinstance(event, MemberDeparted) for event in host.heard)
        assert await host.hear(MemberDeparted) == MemberDeparted("anna")
        await company.end()


async def test_message_when_passed_on_over_a_chain_of_links_then_each_is_told_once(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, ben = await trio(company, address)
        for one, other in ((host, anna), (anna, ben)):
            one.channel.attach(other.channel.receive)
            other.channel.attach(one.channel.receive)
        for epoch in range(20):
            await host.channel.send(go(epoch))
        told = [(await ben.hear(MessageFrom)).control.epoch for _ in range(20)]
        assert sorted(told) == list(range(20))
        await anna.channel.send(go(99))
        assert (await ben.hear(MessageFrom)).control == go(99)
        await company.end()


async def test_message_when_a_link_stalls_or_fails_then_others_are_not_held_up(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, _ = await trio(company, address)

        async def stall(_: bytes) -> None:
            await asyncio.sleep(3600)

        async def fail(_: bytes) -> None:
            raise Unavailable("gone")

        host.channel.attach(stall)
        host.channel.attach(fail)
        for epoch in range(5):
            await host.channel.send(go(epoch))
        assert [(await anna.hear(MessageFrom)).control.epoch for _ in range(5)] == list(range(5))
        host.channel.detach(stall)
        await company.end()


@pytest.mark.parametrize("is_missed", [True, False])
async def test_link_when_it_comes_up_with_who_the_rendezvous_misses_then_the_latest_messages_go_over_it(
    company: Company, is_missed: bool
) -> None:
    """The host's own stream goes on: what it mailed to the other one waits in a mailbox that nobody attends."""
    came: list[bytes] = []

    async def forward(sealed: bytes) -> None:
        came.append(sealed)

    async with rendezvous(tls=False) as address:
        host, anna, _ = await trio(company, address)
        await host.channel.send(go(1))
        if is_missed:
            await anna.channel.aclose()
            await host.hear(MemberDeparted)
        host.channel.attach(forward, "anna")
        for _ in range(20):
            await asyncio.sleep(0)
        assert bool(came) == is_missed
        await company.end()


async def test_message_when_the_rendezvous_misses_its_writer_then_who_is_linked_with_nobody_hears_it_by_the_hosts_mail(
    company: Company,
) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, ben = await trio(company, address)
        await anna.channel.aclose()
        await host.hear(MemberDeparted)
        await host.channel.receive(anna.channel._replica.write(go(9)), "anna")
        assert (await ben.hear(MessageFrom, lambda event: event.sender == "anna")).control == go(9)
        await company.end()


@pytest.mark.parametrize(("peer", "comes"), [("anna", True), ("host", False)])
async def test_message_when_the_rendezvous_misses_its_writer_then_the_host_hears_it_by_the_mail_of_who_is_linked(
    company: Company, peer: str, comes: bool
) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, ben = await trio(company, address)
        await anna.channel.aclose()
        await ben.hear(MemberDeparted)
        await ben.channel.receive(anna.channel._replica.write(go(9)), peer)  # each message is mailed on by one of many
        await ben.channel.send(go(10))
        heard = await host.hear(MessageFrom, lambda event: event.control in (go(9), go(10)))
        assert (heard.sender == "anna") is comes
        await company.end()


async def test_send_when_message_is_too_large_then_invalid_and_the_channel_lives(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, _ = await trio(company, address)
        plan = ring_pb2.PlanProposal(plan_json="x" * 200_000)
        with pytest.raises(InvalidInput):
            await host.channel.send(ring_pb2.Control(plan=ring_pb2.PlanProposal(plan_json="x" * 300_000)))
        await host.channel.send(ring_pb2.Control(plan=plan))
        assert (await anna.hear(MessageFrom)).control.plan == plan
        await company.end()


async def test_receive_when_bytes_are_hostile_then_dropped(company: Company) -> None:
    async with rendezvous(tls=False) as address:
        host = await company.host(address)
        for data in (b"", b"\xff" * 100, ring_pb2.Sealed(nonce=bytes(12), ciphertext=bytes(50)).SerializeToString()):
            await host.channel.receive(data)
        anna = await company.join(host.channel.code, "anna")
        assert names(anna) == ["host", "anna"]
        await company.end()


def _code(person: ChannelPerson) -> Code:
    assert person.channel.code is not None
    return person.channel.code


def _tells(event: MessageFrom) -> bool:
    """Not only that its sender is there."""
    return event.control != ring_pb2.Control()


def _from(sender: str) -> Callable[[MessageFrom], bool]:
    return lambda event: event.sender == sender


@pytest.mark.parametrize("way", ["leave", "aclose"])
async def test_connections_when_sessions_are_over_then_none_to_the_rendezvous_stays_open(
    way: str, company: Company
) -> None:
    async with rendezvous(tls=True) as address:

        def is_ours(connection: Any) -> bool:
            return bool(connection.raddr) and connection.raddr.port == address.port and connection.status != "TIME_WAIT"

        async def connections() -> int:
            await asyncio.sleep(0.2)
            return sum(map(is_ours, psutil.Process().net_connections("tcp")))

        people = [await company.host(address)]
        people += [await company.join(people[0].channel.code, name) for name in ("anna", "bert")]
        assert await connections() == 3
        for person in people:
            await (person.channel.leave() if way == "leave" else person.channel.aclose())
            await asyncio.wait([person.run])
        assert await connections() == 0


async def test_full_session_when_a_member_is_just_away_then_a_newcomer_waits_for_its_place(company: Company) -> None:
    terms = ring_pb2.SessionTerms(model="m", members_wanted=2)
    async with rendezvous(tls=True) as address:
        host = await company.host(address, terms)
        anna = await company.join(host.channel.code, "anna")
        await host.hear(MemberJoined)
        await anna.channel.aclose()
        await host.hear(MemberDeparted)
        coming = asyncio.create_task(company.join(host.channel.code, "bert"))
        await asyncio.sleep(1.0)
        assert not coming.done()
        host.channel.remove("anna", "lost")
        await coming
        await host.hear(MemberJoined, lambda event: event.member.name == "bert")


async def test_full_session_when_everybody_is_there_then_a_newcomer_hears_it_at_once(company: Company) -> None:
    terms = ring_pb2.SessionTerms(model="m", members_wanted=2)
    async with rendezvous(tls=True) as address:
        host = await company.host(address, terms)
        await company.join(host.channel.code, "anna")
        with pytest.raises(Refused, match="is full"):
            await company.join(host.channel.code, "bert")
