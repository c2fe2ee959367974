"""Sessions over a real rendezvous on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafila_proto import ring_pb2
from kafila_rendezvous.certificate import make_key_pair
from kafila_rendezvous.config import RendezvousConfig
from kafila_rendezvous.server import serve
from kafila_sidecar.errors import Denied, InvalidInput, KafilaError, NotFound, Refused, Unavailable
from kafila_sidecar.session.channel import channel as channel_module
from kafila_sidecar.session.channel.events import (
    MemberDeparted,
    MemberJoined,
    MemberRemoved,
    MemberReturned,
    MessageFrom,
    RendezvousBack,
    RendezvousLost,
    RoomGone,
)
from kafila_sidecar.session.join import Local, approach
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import Code, parse_code
from tests.sidecar.session.channel_world import TERMS, Person, Stage, Wire, rendezvous
from tests.sidecar.session.trust_world import go


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    await stage.end()


async def trio(stage: Stage, address: RendezvousAddress) -> tuple[Person, Person, Person]:
    host = await stage.host(address)
    anna = await stage.join(host.channel.code, "anna")
    ben = await stage.join(host.channel.code, "ben")
    await anna.hear(MemberJoined)
    return host, anna, ben


def names(person: Person) -> list[str]:
    return [member.name for member in person.channel.members]


@pytest.mark.parametrize("tls", [True, False])
async def test_session_when_three_members_form_it_then_all_hear_all(stage: Stage, tls: bool) -> None:
    async with rendezvous(tls=tls) as address:
        host, anna, ben = await trio(stage, address)
        people = {"host": host, "anna": anna, "ben": ben}
        for person in people.values():
            assert names(person) == ["host", "anna", "ben"]
            assert person.channel.members == host.channel.members
            assert person.channel.session == host.channel.session
            assert person.channel.terms == TERMS
            assert person.channel.is_admitter == (person is host)
        fingerprints = {member.name: member.fingerprint for member in host.channel.members}
        for name, person in people.items():
            assert person.channel.identity.fingerprint == fingerprints[name]
            await person.channel.send(go(len(name)))
        for name, person in people.items():
            for other in people:
                if other != name:
                    assert await person.hear(MessageFrom, _from(other)) == MessageFrom(other, go(len(other)))
        await stage.end()


async def test_code_when_passed_on_as_text_then_it_opens_the_session(stage: Stage) -> None:
    async with rendezvous(tls=True) as address:
        host = await stage.host(address)
        offer = await approach(code=parse_code(str(host.channel.code)), name="anna")
        assert (offer.session, offer.host, offer.members_present) == (host.channel.session, "host", 1)
        assert offer.terms == TERMS
        await offer.abandon()
        assert names(host) == ["host"]
        await stage.end()


async def test_message_when_a_member_joins_later_then_it_is_not_told_what_was_before(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        host = await stage.host(address)
        anna = await stage.join(host.channel.code, "anna")
        await host.channel.send(go(1))
        await anna.hear(MessageFrom)
        ben = await stage.join(host.channel.code, "anna")
        await host.hear(MemberJoined, lambda news: news.member.name == "anna-2")
        await host.channel.send(go(2))
        assert (await ben.hear(MessageFrom)).control == go(2)
        assert ben.channel.self_name == "anna-2"
        await stage.end()


async def test_member_when_it_leaves_then_goodbye_and_removal_reach_all(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, ben = await trio(stage, address)
        await ben.channel.leave()
        for person in (host, anna):
            assert (await person.hear(MessageFrom)).control.HasField("goodbye")
            assert await person.hear(MemberRemoved) == MemberRemoved("ben", "left")
            assert names(person) == ["host", "anna"]
        assert not any(isinstance(news, RoomGone) for news in ben.heard)
        await stage.end()


async def test_channel_when_it_has_ended_then_leaving_and_closing_again_do_nothing(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        host = await stage.host(address)
        await host.channel.leave()
        await asyncio.wait([host.run])
        await host.channel.leave()
        await host.channel.aclose()
        await host.channel.send(go(1))
        cancelled = await stage.host(address)
        cancelled.run.cancel()
        await asyncio.wait([cancelled.run])
        await cancelled.channel.leave()


async def test_member_when_its_connection_dies_then_departed_for_all_and_it_stays_a_member(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, ben = await trio(stage, address)
        await ben.channel.aclose()
        for person in (host, anna):
            assert await person.hear(MemberDeparted) == MemberDeparted("ben")
            assert names(person) == ["host", "anna", "ben"]
        await stage.end()


async def test_member_when_it_is_removed_then_all_and_itself_are_told_and_it_is_not_heard(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, ben = await trio(stage, address)
        with pytest.raises(Refused):
            anna.channel.remove("ben", "removed")
        host.channel.remove("ben", "removed")
        for person in (host, anna, ben):
            assert await person.hear(MemberRemoved) == MemberRemoved("ben", "removed")
        await ben.channel.send(go(666))
        await anna.channel.send(go(1))
        assert (await host.hear(MessageFrom)).sender == "anna"
        await stage.end()


async def test_approach_when_words_are_wrong_then_denied_and_counted_on_disk(stage: Stage, tmp_path: Path) -> None:
    async with rendezvous(tls=True) as address:
        host = await stage.host(address)
        code = host.channel.code
        assert code is not None
        wrong = Code(code.room, (*code.words[:2], "zoo" if code.words[2] != "zoo" else "zone"), address)
        with pytest.raises(Denied, match="words do not match"):
            await approach(code=wrong, name="eve")
        assert (tmp_path / "host" / "guesses").read_text() == "1"
        assert names(host) == ["host"]
        await stage.end()


async def test_approach_when_there_is_no_such_room_then_not_found(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        with pytest.raises(NotFound, match="no session has the number 9"):
            await approach(code=Code(9, ("ocean", "velvet", "lamp"), address), name="anna")


async def test_approach_when_code_has_no_address_then_invalid() -> None:
    with pytest.raises(InvalidInput, match="KAFILA_RENDEZVOUS"):
        await approach(code=Code(9, ("ocean", "velvet", "lamp")), name="anna")


async def test_approach_when_session_is_full_then_refused_with_the_hosts_words(stage: Stage, tmp_path: Path) -> None:
    async with rendezvous(tls=False) as address:
        joined: list[KafilaError] = []
        host = await stage.host(address, may_admit=lambda: joined[0] if joined else None)
        early = await approach(code=_code(host), name="ben")
        await stage.join(host.channel.code, "anna")
        joined.append(Refused("the session has its 2 members"))
        with pytest.raises(Refused, match="has its 2 members"):
            await approach(code=_code(host), name="carl")
        with pytest.raises(Refused, match="has its 2 members"):
            await early.enrol(Local(tmp_path / "carl", "1.0", "2.0", lambda: None))
        assert names(host) == ["host", "anna"]
        await stage.end()


async def test_approach_when_session_is_locked_then_refused_until_it_is_unlocked(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        host = await stage.host(address)
        anna = await stage.join(host.channel.code, "anna")
        with pytest.raises(Refused, match="only the host, host,"):
            anna.channel.lock(True)
        host.channel.lock(True)
        host.channel.lock(True)
        assert host.channel.joining == "locked"
        with pytest.raises(Refused, match="is locked: ask its host, host,"):
            await approach(code=_code(host), name="ben")
        host.channel.lock(False)
        await stage.join(host.channel.code, "ben")
        await anna.hear(MemberJoined)
        assert anna.channel.joining == "open"
        await stage.end()


async def test_enrol_when_versions_differ_then_refused_in_words(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        host = await stage.host(address)
        with pytest.raises(Refused, match=r"kafila 1\.0, your machine 0\.9"):
            await stage.join(host.channel.code, "anna", version="0.9")
        await stage.end()


async def test_approach_when_host_is_not_connected_then_unavailable(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        host = await stage.host(address)
        await host.channel.aclose()
        await asyncio.wait([host.run])
        with pytest.raises(Unavailable, match="host is not connected"):
            await approach(code=_code(host), name="anna")


@pytest.mark.parametrize("pinned", [True, False])
async def test_found_when_nobody_listens_then_unavailable_at_once(stage: Stage, pinned: bool) -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        port = serving.port
    address = RendezvousAddress("127.0.0.1", port, "a" * 20 if pinned else None, insecure=not pinned)
    async with asyncio.timeout(5):
        with pytest.raises(Unavailable, match=f"rendezvous at 127.0.0.1:{port} does not answer"):
            await stage.host(address)


async def test_found_when_certificate_is_not_the_pinned_one_then_denied(stage: Stage) -> None:
    async with rendezvous(tls=True) as address:
        with pytest.raises(Denied, match="another certificate"):
            await stage.host(RendezvousAddress(address.host, address.port, "a" * 20))


async def test_found_when_self_signed_and_not_pinned_then_unavailable_with_advice(stage: Stage) -> None:
    async with rendezvous(tls=True) as address:
        with pytest.raises(Unavailable, match="#fingerprint"):
            await stage.host(RendezvousAddress(address.host, address.port))


@pytest.mark.parametrize("tls", [True, False])
async def test_channel_when_its_wire_breaks_then_lost_back_and_nothing_is_missed(stage: Stage, tls: bool) -> None:
    async with rendezvous(tls=tls) as address:
        wire = Wire(address)
        async with wire.listening() as cuttable:
            host = await stage.host(address)
            anna = await stage.join(host.channel.code, "anna")
            ben = await stage.join(Code(_code(host).room, _code(host).words, cuttable), "ben")
            wire.cut()
            await ben.hear(RendezvousLost)
            for person in (host, anna):
                assert await person.hear(MemberDeparted) == MemberDeparted("ben")
            await host.channel.send(go(1))
            await ben.channel.send(go(2))
            carl = await stage.join(host.channel.code, "carl")
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
            await stage.end()


async def test_channel_when_the_rendezvous_forgets_the_room_then_it_says_so_and_links_carry_on(stage: Stage) -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        port = serving.port
        address = RendezvousAddress("127.0.0.1", port, insecure=True)
        host = await stage.host(address)
        anna = await stage.join(host.channel.code, "anna")
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
    await stage.end()


async def left_alone(stage: Stage, notes: Path) -> tuple[RendezvousConfig, Person, Person]:
    """Two members whose rendezvous has stopped, and how it is started again."""
    config = RendezvousConfig(port=0, key_pair=make_key_pair(), notes=notes)
    async with serve(config) as serving:
        host = await stage.host(RendezvousAddress("127.0.0.1", serving.port, serving.fingerprint))
        anna = await stage.join(host.channel.code, "anna")
        await host.hear(MemberJoined)
    return replace(config, port=serving.port), host, anna


async def test_rendezvous_when_it_is_started_again_then_the_same_code_and_mailboxes_go_on(
    stage: Stage, tmp_path: Path
) -> None:
    again, host, anna = await left_alone(stage, tmp_path / "mailboxes")
    code = host.channel.code
    for person in (host, anna):
        await person.hear(RendezvousLost)
    async with serve(again):
        for person in (host, anna):
            await person.hear(RendezvousBack)
        await host.channel.send(go(1))
        assert (await anna.hear(MessageFrom)).control == go(1)
        assert (host.channel.joining, host.channel.code) == ("open", code)
        ben = await stage.join(code, "ben")
        assert (await anna.hear(MemberJoined)).member.name == "ben"
        await ben.channel.send(go(2))
        for person in (host, anna):
            assert (await person.hear(MessageFrom, _from("ben"))).control == go(2)
            assert not any(isinstance(news, MemberDeparted) for news in person.heard)
        await stage.end()


async def test_rendezvous_when_a_member_does_not_come_back_to_it_then_it_is_missed_after_a_while(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "LONGEST_ABSENCE_S", 0.5)
    again, host, anna = await left_alone(stage, tmp_path / "mailboxes")
    await anna.hear(RendezvousLost)
    await anna.channel.aclose()
    async with serve(again):
        await host.hear(RendezvousBack)
        assert not any(isinstance(news, MemberDeparted) for news in host.heard)
        assert await host.hear(MemberDeparted) == MemberDeparted("anna")
        await stage.end()


async def test_message_when_passed_on_over_a_chain_of_links_then_each_is_told_once(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, ben = await trio(stage, address)
        for one, other in ((host, anna), (anna, ben)):
            one.channel.attach(other.channel.receive)
            other.channel.attach(one.channel.receive)
        for epoch in range(20):
            await host.channel.send(go(epoch))
        told = [(await ben.hear(MessageFrom)).control.epoch for _ in range(20)]
        assert sorted(told) == list(range(20))
        await anna.channel.send(go(99))
        assert (await ben.hear(MessageFrom)).control == go(99)
        await stage.end()


async def test_message_when_a_link_stalls_or_fails_then_others_are_not_held_up(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, _ = await trio(stage, address)

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
        await stage.end()


async def test_send_when_message_is_too_large_then_invalid_and_the_channel_lives(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        host, anna, _ = await trio(stage, address)
        plan = ring_pb2.PlanProposal(plan_json="x" * 200_000)
        with pytest.raises(InvalidInput):
            await host.channel.send(ring_pb2.Control(plan=ring_pb2.PlanProposal(plan_json="x" * 300_000)))
        await host.channel.send(ring_pb2.Control(plan=plan))
        assert (await anna.hear(MessageFrom)).control.plan == plan
        await stage.end()


async def test_receive_when_bytes_are_hostile_then_dropped(stage: Stage) -> None:
    async with rendezvous(tls=False) as address:
        host = await stage.host(address)
        for data in (b"", b"\xff" * 100, ring_pb2.Sealed(nonce=bytes(12), ciphertext=bytes(50)).SerializeToString()):
            await host.channel.receive(data)
        anna = await stage.join(host.channel.code, "anna")
        assert names(anna) == ["host", "anna"]
        await stage.end()


def _code(person: Person) -> Code:
    assert person.channel.code is not None
    return person.channel.code


def _from(sender: str) -> Callable[[MessageFrom], bool]:
    return lambda news: news.sender == sender
