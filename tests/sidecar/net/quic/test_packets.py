"""The short way for packets, beside aioquic's own for all of them: same bytes, same events, whatever happens."""

import random

import pytest

from kafila_sidecar.net.quic import neighbour as core
from kafila_sidecar.net.quic.connection import PinnedConnection
from kafila_sidecar.net.quic.outgoing import SHORT
from tests.sidecar.net.quic.long_way import LongWay
from tests.sidecar.net.quic.played import Played, is_open, played
from tests.sidecar.net.quic.test_neighbour import FRAME, QuicEnd, established, two_ends, wide
from tests.sidecar.net.wire import DatagramWire

STREAMS = (0, 4, 8, 1, 5, 9)


def busy_life(seed: int, ends: type[PinnedConnection]) -> Played:
    """Two ends that do whatever a link does, on a path that loses and reorders."""
    chance = random.Random(seed)
    loss, jitter_s = chance.choice([(0.0, 0.0), (0.02, 0.0), (0.1, 0.01), (0.0, 0.005)])
    wire = DatagramWire(delay_s=0.001 + 0.02 * chance.random(), jitter_s=jitter_s, loss=loss, seed=seed)
    with played(seed, ends) as told:
        both = established(wire)
        for _ in range(80):
            _do_something(chance, wire, both)
            told.note(*both)
            wire.run(chance.choice([0.0, 0.0005, 0.004, 0.03, 0.3]))
        wire.run(5)
        told.events = [end.events for end in both]
        told.endings = [end.core.connection.ending for end in both]
    return told


def _do_something(chance: random.Random, wire: DatagramWire, both: tuple[QuicEnd, QuicEnd]) -> None:
    here = chance.choice(both)
    connection, stream_id = here.core.connection, chance.choice(STREAMS)
    may_write = is_open(connection, stream_id)
    if stream_id not in connection._streams and not may_write:
        return
    match chance.randrange(20):
        case 0:
            connection.stop_quietly(stream_id, core.GIVEN_UP)
            here.core.credit.drop(stream_id)
        case 1:
            here.core.follow_path(is_new=chance.random() < 0.3, datagram_bytes=chance.choice([1200, 1452, 8900]))
        case 2:
            connection.send_last(stream_id)
        case 3:
            connection.request_key_update()
        case 4:
            connection.send_ping(7)
        case 5 if may_write:
            here.write(stream_id, bytes(2 << 20))
        case 6 if may_write and chance.random() < 0.3:
            here.write(stream_id, b"the last", is_last=True)
        case _ if may_write:
            here.write(stream_id, chance.randbytes(chance.choice([1, 5, 1150, 8196, 8196, 40_000])))
    for read_id in STREAMS:
        if got := len(here.got(read_id)):
            here.core.credit.consume(read_id, got)
    here.pump()


@pytest.mark.parametrize("seed", range(16))
def test_packets_when_built_and_read_the_short_way_then_all_that_is_said_and_heard_is_as_aioquic_has_it(
    seed: int,
) -> None:
    short, long = busy_life(seed, PinnedConnection), busy_life(seed, LongWay)
    assert short == long
    assert (long.short, long.read) == (0, 0)
    assert short.short > 0
    assert short.read > 0


def first_life(seed: int, ends: type[PinnedConnection]) -> Played:
    """A handshake on a path that reorders, and what no key is there for comes first: aioquic dials again at once."""
    with played(seed, ends) as told:
        wire = DatagramWire(delay_s=0.01, jitter_s=0.02, seed=seed)
        both = a, b = two_ends(wire)
        a.dial()
        a.receive(b"%c%b%b" % (SHORT, a.core.connection.host_cid, bytes(30)), b.here)
        told.note(a)
        assert wire.run(10, until=lambda: a.is_established and b.is_established)
        told.note(*both)
        told.events = [end.events for end in both]
    return told


def test_packets_when_they_overtake_the_handshake_then_all_that_is_said_and_heard_is_as_aioquic_has_it() -> None:
    for seed in range(20):
        assert first_life(seed, PinnedConnection) == first_life(seed, LongWay)


@pytest.mark.parametrize("datagram_bytes", [1200, 1452, 8900])
def test_frames_when_they_go_round_then_each_of_their_packets_goes_the_short_way(datagram_bytes: int) -> None:
    wire = DatagramWire(delay_s=0.0005)
    with played(1, PinnedConnection) as told:
        a, b = wide(wire)
        for end in (a, b):
            end.core.follow_path(is_new=False, datagram_bytes=datagram_bytes)
        a.write(0, b"the first")
        b.write(1, b"of each")
        wire.run(1)
        before, short = len(told.packets), told.short
        for end, stream_id in ((a, 0), (b, 1)) * 20:
            end.write(stream_id, FRAME)
            wire.run(0.004)
        assert told.short - short == len(told.packets) - before >= 40
