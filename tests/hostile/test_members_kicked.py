"""A kicked member that goes on as if nothing had happened, over its old links and by mail: it is cut at once, nobody
hears it, it hears nothing, and the others go on."""

import asyncio
import itertools
import os

from aioquic.buffer import encode_uint_var
from aioquic.tls import Epoch

from kafila_sidecar.errors import Denied
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.session.channel.events import KnowsItIsOut, MemberRemoved, MessageFrom
from tests.sidecar.session.driving.test_links import LinkedMember, linked_members
from tests.sidecar.session.trust_world import go
from tests.sidecar.session.village import Village, told

PACKETS = 300


class StubbornEnd:
    """Writes QUIC packets with the keys of a link that stood, whatever the link says."""

    def __init__(self, owner: LinkedMember, link: Link) -> None:
        connection = link._core.connection
        self._endpoint, self._address = owner.endpoint, link.remote_address
        self._crypto, self._cid = connection._cryptos[Epoch.ONE_RTT], connection._peer_cid.cid
        self._numbers = itertools.count(1000)

    def say(self, data: bytes) -> None:
        """As stream data."""
        number = next(self._numbers)
        frame = b"".join(map(encode_uint_var, (0x0F, 4 * number, 0, len(data)))) + data
        header = b"\x41" + self._cid + number.to_bytes(2, "big")
        assert self._address is not None
        self._endpoint.send([self._crypto.encrypt_packet(header, frame, number)], self._address)


async def test_member_when_kicked_and_it_talks_on_over_old_links_then_cut_at_once_and_the_others_go_on() -> None:
    village = Village("anna", "eve")
    async with linked_members(village) as world:
        host, anna, eve = world.values()
        for name, member in world.items():
            await member.reached(*(set(world) - {name}))
        between = anna.standing.to("host")
        ends = {name: StubbornEnd(eve, eve.standing.to(name)) for name in ("host", "anna")}
        village.do("host", village["host"].upkeep.remove("eve", "removed"))
        for member in (host, anna):
            member.links.forget([one.name for one in member.replica.members])
        await host.reached("anna")
        await anna.reached("host")
        strangers = {name: world[name].endpoint.strangers for name in ends}
        for number in range(PACKETS):
            for end in ends.values():
                end.say(os.urandom(100))
            if number % 25 == 24:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        for name, before in strangers.items():
            assert world[name].endpoint.strangers >= before + PACKETS // 2
            assert set(world[name].standing.up) == {"host", "anna"} - {name}
        assert anna.standing.to("host") is between
        assert not between.closed.done()


def test_member_when_kicked_and_it_says_in_turn_that_it_knows_and_that_it_does_not_then_heard_once() -> None:
    village = Village("anna", "eve")
    eve = village["eve"].replica
    village.do("host", village["host"].upkeep.remove("eve", "removed"))
    digests = eve.log._digests
    knows, true_head = eve.write(go(1)), digests[-1]
    digests[-1] = bytes(len(true_head))
    other = eve.write(go(2))
    digests[-1] = true_head
    count = len(village["host"].told)
    for sealed in (knows, other) * 20:
        village.send(sealed, ["host"])
    host = village["host"].replica
    former = host.log.former("eve")
    assert village["host"].told[count:] == [KnowsItIsOut("eve")]
    assert former is not None
    assert host.log.is_past(former.member, former.removed_at)


def test_member_when_kicked_and_it_mails_on_then_nobody_hears_it_and_it_hears_nothing() -> None:
    village = Village("anna", "ben", "eve")
    eve = village["eve"].replica
    before = [eve.write(go(665)), eve.repeat_for(eve.others[0])[0]]
    village.do("host", village["host"].upkeep.remove("eve", "removed"))
    assert told(village["eve"], MemberRemoved) == [MemberRemoved("eve", "removed")]
    after = [eve.write(go(666)), eve.write_goodbye(), *eve.repeat_for(eve.others[0])]
    heard = {name: len(village[name].told) for name in ("host", "anna", "ben")}
    for sealed in (*before, *after):
        village.send(sealed, ["host", "anna", "ben"])
    for name, count in heard.items():  # that it knows, the host may have to hear; nothing else, and that once
        assert village[name].told[count:] == ([KnowsItIsOut("eve")] if name == "host" else [])
        assert {type(error) for error in village[name].refused} == {Denied}
    keeps = len(village["eve"].told)
    for name in ("host", "anna", "ben"):
        sealed = village[name].replica.write(go(7))
        village.send(sealed, ["eve", *(other for other in ("host", "anna", "ben") if other != name)])
    assert len(village["eve"].told) == keeps
    for name in ("anna", "ben"):
        assert MessageFrom("host", go(7)) in village[name].told
