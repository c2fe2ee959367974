"""Hostile datagrams at a member's one port, while links stand there: nothing raises, nothing grows, nothing breaks."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from aioice.stun import Class, Message, Method, parse_message

from kafila_planner.model.types import Mapping
from kafila_sidecar.net.candidates import Address, is_usable
from kafila_sidecar.net.nat.mapped import MappedAddress
from kafila_sidecar.net.udp import Received
from tests.sidecar.net.people import echo
from tests.sidecar.net.simworld import NODE_PORT, PEOPLE, NetMember, SimRendezvous, linked
from tests.support import fuzz
from tests.support.simnet import Box, Host, Network, SimSocket
from tests.support.virtual_time import simulate

STRANGER: Address = ("203.0.113.66", 666)


class Tapped(Host):
    """A host that keeps a copy of what comes to its node."""

    came: list[Received]

    def open(self, port: int, deliver: Callable[[list[Received]], None]) -> SimSocket:
        if port != NODE_PORT:
            return super().open(port, deliver)
        self.came = []

        def tap(batch: list[Received]) -> None:
            self.came += batch
            deliver(batch)

        return super().open(port, tap)


@pytest.mark.fuzz
@pytest.mark.parametrize("mapping", [Mapping.ENDPOINT_INDEPENDENT, Mapping.ADDRESS_AND_PORT_DEPENDENT])
def test_endpoint_when_hostile_datagrams_come_from_everywhere_then_its_link_stands(mapping: Mapping) -> None:
    async def scene() -> None:
        network = Network()
        rendezvous = SimRendezvous.simulated(network, "192.0.2.1", "192.0.2.2")
        hosts = [
            Tapped(f"m{i}", (Box(network.public, f"198.51.100.{i}", mapping=mapping).inner, "192.168.1.2"))
            for i in range(2)
        ]
        a, b = (NetMember(rendezvous, host, PEOPLE[i], mailbox=i, on_stream=echo) for i, host in enumerate(hosts))
        _, (link, _) = await linked(a, b)
        stream = await link.open(7)
        await stream.send(bytes(5000))
        assert await stream.receive(5) == bytes(5000)
        await asyncio.sleep(3)

        chance = Random(fuzz.SEED)
        sources = [*{source for _, source in hosts[1].came}, STRANGER]
        samples = list({data for data, _ in hosts[1].came})
        taken = fuzz.fuzz(lambda data: b.endpoint.deliver([(data, chance.choice(sources))]), samples)
        assert taken > fuzz.INPUTS  # deliver never raises
        assert b.endpoint.strangers > fuzz.INPUTS // 2

        await stream.send(b"still here")
        assert await stream.receive(5) == b"still here"
        for member in (a, b):
            await member.close()

    simulate(scene)


@pytest.mark.fuzz
def test_mapped_address_when_hostile_answers_come_then_typed_errors_only() -> None:
    kept = MappedAddress(("192.0.2.1", 3478), blocked=False, entropy=lambda: bytes(12), now=0.0)
    ((asked, server),) = kept.handle_timer(0.0)
    told = {"XOR-MAPPED-ADDRESS": ("203.0.113.9", 7)}
    answer = bytes(Message(Method.BINDING, Class.RESPONSE, parse_message(asked).transaction_id, told))

    def read(data: bytes) -> None:
        kept.doubt(0.0)
        kept.handle_timer(0.0)  # there is always a question open, and it is always the same one
        kept.receive(data, server)
        assert kept._mapped is None or is_usable(kept._mapped)
        assert len(kept._open) <= 3

    assert fuzz.fuzz(read, [asked, answer]) > fuzz.INPUTS // 100
