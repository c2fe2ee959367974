"""QUIC at a member's port, under attack by who is no member: floods of handshakes, resets, retries, other versions,
early data. Nothing grows, no link ends, and who is expected still gets in."""

import asyncio
import os
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aioquic._buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import (
    QuicProtocolVersion,
    encode_quic_retry,
    encode_quic_version_negotiation,
    pull_quic_header,
)
from aioquic.tls import Epoch

from kafila_sidecar.net import stun
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.quic.connection import ALPN, CID_BYTES, PSEUDO_ADDRESS
from kafila_sidecar.net.quic.neighbour import MOST_ATTEMPTS
from tests.sidecar.net.people import KEY, SESSION, dial, echo, ignore, linked, two_people
from tests.sidecar.net.quic.test_neighbour import NAME, A, B, QuicEnd, established, two_ends
from tests.sidecar.net.wire import DatagramWire

FLOOD = 3000  # datagrams
MOST_GROWTH_BYTES = 1 << 20


def initial(destination: bytes) -> bytes:
    """The first datagram of somebody who dials, with keys of his own."""
    connection = QuicConnection(configuration=QuicConfiguration(alpn_protocols=[ALPN], is_client=True))
    connection._peer_cid.cid = connection._original_destination_connection_id = destination
    connection.connect(PSEUDO_ADDRESS, 0.0)
    return connection.datagrams_to_send(0.0)[0][0]


def renamed(datagram: bytes, destination: bytes) -> bytes:
    """For another connection id of the same length."""
    return datagram[:6] + destination + datagram[6 + len(destination) :]


@contextmanager
def growth() -> Iterator[None]:
    """What is allocated meanwhile and kept is little."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < MOST_GROWTH_BYTES


async def fire(datagrams: list[bytes], endpoint: Endpoint) -> None:
    """From a socket that belongs to nobody; in portions that the receive buffer holds."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for number, datagram in enumerate(datagrams):
            stranger.sendto(datagram, ("127.0.0.1", endpoint.address[1]))
            if number % 50 == 49:
                await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)


async def test_endpoint_when_flooded_with_handshakes_by_strangers_then_no_state_and_its_link_stands() -> None:
    async with linked(on_listener=echo) as pair:
        core = pair.listener._core
        connection, endpoint = core.connection, pair.listener_endpoint
        first = initial(os.urandom(CID_BYTES))
        own = list(core.routes)
        flood = [
            renamed(first, os.urandom(CID_BYTES) if number % 2 else own[number % len(own)]) for number in range(FLOOD)
        ]
        await fire(flood[:100], endpoint)
        strangers = endpoint.strangers
        with growth():
            await fire(flood, endpoint)
        assert endpoint.strangers > strangers + FLOOD // 4
        assert core.connection is connection
        assert len(core.routes) <= 10
        stream = await pair.dialler.open(7)
        await stream.send(b"still here")
        assert await stream.receive() == b"still here"


async def test_endpoint_when_strangers_know_the_pairs_name_then_only_the_peers_addresses_begin_a_handshake() -> None:
    low, high = two_people()
    name = stun.pair_secret(SESSION, KEY, low.fingerprint, high.fingerprint).name
    one, other = Endpoint.open(host="127.0.0.1"), Endpoint.open(host="127.0.0.1")
    try:
        waiting = asyncio.create_task(dial(other, high, low, one, on_stream=ignore))
        await asyncio.sleep(0.05)
        (link,) = other._links.values()
        await fire([initial(name) for _ in range(200)], other)
        assert not link._core.is_started
        here, there = await asyncio.gather(dial(one, low, high, other, on_stream=ignore), waiting)
        assert here.ready.done()
        assert there is link
    finally:
        await one.close()
        await other.close()


def test_listener_when_first_packets_come_from_the_peers_own_address_then_few_are_tried_and_the_peer_gets_in() -> None:
    """As whoever sees the traffic can: with the name, and from a forged address."""
    wire = DatagramWire(delay_s=0.01)
    a, b = two_ends(wire)
    begun = set()
    first = [initial(NAME) for _ in range(50)]
    for number in range(500):
        b.receive(first[number % len(first)], A)
        begun.add(id(b.core._connection))
        assert len(b.core.routes) <= 10
    assert len(begun) <= MOST_ATTEMPTS
    wire.run(1.0)
    a.dial()
    assert wire.run(10, until=lambda: a.is_established and b.is_established)


@pytest.mark.parametrize("victim", ["dialler", "listener"])
def test_link_when_stateless_resets_are_forged_then_it_stands(victim: str) -> None:
    wire = DatagramWire(delay_s=0.01)
    a, b = established(wire)
    end, source = (a, B) if victim == "dialler" else (b, A)
    tokens = [one.stateless_reset_token or bytes(16) for one in end.core.connection._host_cids]
    for cid in [*end.core.routes, os.urandom(CID_BYTES)]:
        for token in [*tokens, os.urandom(16)]:
            end.receive(b"\x5f" + cid + os.urandom(24) + token, source)
    assert a.ended is b.ended is None
    a.write(0, b"still here", is_last=True)
    assert wire.run(10, until=lambda: b.got(0) == b"still here")


def on_the_first_flight(a: QuicEnd, wire: DatagramWire) -> tuple[bytes, bytes]:
    """The connection ids of a dialler's first packet, destination and source."""
    seen = wire.record(B)
    a.dial()
    wire.run(0.015)
    header = pull_quic_header(Buffer(data=seen[0]), host_cid_length=CID_BYTES)
    return header.destination_cid, header.source_cid


def test_dialler_when_version_negotiation_or_retry_is_forged_then_it_hears_neither() -> None:
    wire = DatagramWire(delay_s=0.01)
    a, b = two_ends(wire)
    theirs, own = on_the_first_flight(a, wire)
    forged = [
        encode_quic_version_negotiation(source_cid=theirs, destination_cid=own, supported_versions=[0x1A2A3A4A]),
        encode_quic_version_negotiation(
            source_cid=theirs, destination_cid=own, supported_versions=[QuicProtocolVersion.VERSION_2]
        ),
        encode_quic_retry(
            version=QuicProtocolVersion.VERSION_1,
            source_cid=b"elsewhere",
            destination_cid=own,
            original_destination_cid=theirs,
            retry_token=b"token",
        ),
    ]
    for datagram in forged * 3:
        a.receive(datagram, B)
    assert a.ended is None
    assert wire.run(10, until=lambda: a.is_established and b.is_established)
    assert b.core.routes


def test_link_when_it_stands_then_there_are_no_tickets_and_early_data_is_not_heard() -> None:
    wire = DatagramWire(delay_s=0.01)
    a, b = established(wire)
    for end in (a, b):
        connection = end.core.connection
        assert connection.tls.new_session_ticket_cb is None
        assert connection.tls.get_session_ticket_cb is None
        assert not connection.tls.session_resumed
        assert not connection._cryptos[Epoch.ZERO_RTT].recv.is_valid()
        assert not connection._cryptos[Epoch.ZERO_RTT].send.is_valid()
    heard_at = b.core.heard_at
    early = b"\xd0" + (1).to_bytes(4, "big") + bytes([CID_BYTES]) + next(iter(b.core.routes)) + bytes([0])
    early += b"\x44\x00" + os.urandom(1024)
    _, listener = two_ends(DatagramWire())
    for end in (b, listener):
        end.receive(early, A)
    assert b.core.heard_at == heard_at
    assert b.ended is None
    assert not listener.core.is_started
