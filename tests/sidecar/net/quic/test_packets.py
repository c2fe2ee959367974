"""The short way for packets, beside aioquic's own for all of them: same bytes, same events, whatever happens."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
from aioquic.quic.connection import NetworkAddress
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.events import ConnectionTerminated
from aioquic.quic.packet import QuicErrorCode
from aioquic.quic.stream import QuicStream

from kafila_sidecar.net.quic import neighbour as core
from kafila_sidecar.net.quic.connection import PinnedConnection
from kafila_sidecar.net.quic.neighbour import Event
from kafila_sidecar.net.quic.outgoing import OutgoingPackets
from tests.sidecar.net.link.test_hostile_member import FRAMES, HostileMember, frame
from tests.sidecar.net.quic.long_way import LongWay, connections_of
from tests.sidecar.net.quic.test_neighbour import FRAME, QuicEnd, established, wide
from tests.sidecar.net.wire import DatagramWire

LONG_HEADER = 0x80
STREAMS = (0, 4, 8, 1, 5, 9)
Sealed = tuple[bytes, bytes, int]  # header, payload, packet number


@dataclass
class Played:
    """What two ends said, before it was encrypted, and what they heard."""

    packets: list[Sealed] = field(default_factory=list)
    events: list[list[Event]] = field(default_factory=list)
    endings: list[ConnectionTerminated | None] = field(default_factory=list)
    states: list[object] = field(default_factory=list)  # of both ends after each deed
    short: int = 0  # packets that went the short way

    def note(self, *ends: QuicEnd) -> None:
        self.states += [state_of(end.core.connection) for end in ends]


def state_of(connection: PinnedConnection) -> object:
    """What the next packet may depend on."""
    space, loss = connection._space, connection._loss
    return {
        "closing": (connection._state, connection._close_at, connection._close_pending),
        "sent": (connection._packet_number, list(space.sent_packets), connection._network_paths[0].bytes_sent),
        "came": (space.expected_packet_number, space.largest_received_packet, space.largest_received_time),
        "to acknowledge": (space.ack_at, list(space.ack_queue), connection._ack_eliciting_sent_since_receipt),
        "limits": (connection._remote_max_data_used, connection._local_max_data.used, connection._local_max_data.value),
        "window": (loss.congestion_window, loss.bytes_in_flight, loss._pacer.bucket_time, loss._pto_count),
        "timers": (connection.get_timer(), connection._pacing_at, connection._loss_at),
        "streams": [
            (stream.stream_id, stream.sender.highest_offset, stream.sender._buffer_start, stream.receiver._buffer_start)
            for stream in connection._queue
        ],
    }


@contextmanager
def played(seed: int, ends: type[PinnedConnection]) -> Iterator[Played]:
    """All that is said meanwhile by ends of this class; what they draw by lot is the same for a seed."""
    told, seal = Played(), CryptoPair.encrypt_packet

    def sealed(pair: CryptoPair, header: bytes, payload: bytes, number: int) -> bytes:
        if not header[0] & LONG_HEADER:
            told.packets.append((header, payload, number))
        return seal(pair, header, payload, number)

    def counted(connection: OutgoingPackets, *rest: object) -> tuple[bytes, NetworkAddress]:
        told.short += 1
        return short(connection, *rest)  # type: ignore[arg-type]

    short = OutgoingPackets._seal
    with connections_of(ends) as patch:
        patch.setattr(CryptoPair, "encrypt_packet", sealed)
        patch.setattr(OutgoingPackets, "_seal", counted)
        patch.setattr(os, "urandom", random.Random(seed).randbytes)
        patch.setattr(QuicStream, "__hash__", lambda stream: stream.stream_id or 0)  # it orders sets of them
        yield told


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
    stream = connection._streams.get(stream_id)
    is_open = stream is None or (stream.sender._buffer_fin is None and stream.sender._reset_error_code is None)
    if stream is None and (connection._stream_is_discarded(stream_id) or not connection.is_ours(stream_id)):
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
        case 5 if is_open:
            here.write(stream_id, bytes(2 << 20))
        case 6 if is_open and chance.random() < 0.3:
            here.write(stream_id, b"the last", is_last=True)
        case _ if is_open:
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
    assert short.packets == long.packets
    assert (short.states, short.events, short.endings) == (long.states, long.events, long.endings)
    assert long.short == 0


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


TOLD = [
    *FRAMES.values(),
    frame(0x0A, 0, 3, b"abc"),
    frame(0x0C, 0, 3, b"to the end"),
    frame(0x0E, 0, 3, 2, b"de"),
    frame(0x0E, 0, 5 << 20, 2, b"over the limit of the stream"),
    frame(0x02, 1000, 0, 0, 1),
]


def hostile_life(seed: int, ends: type[PinnedConnection]) -> Played:
    """A member says anything, and the honest end answers it."""
    chance = random.Random(seed)
    with played(seed, ends) as told:
        hostile = HostileMember(dials=chance.random() < 0.5)
        for _ in range(30):
            payload = bytearray(b"".join(chance.choices(TOLD, k=chance.choice([1, 1, 2, 3]))))
            if chance.random() < 0.3:
                payload[chance.randrange(len(payload))] = chance.randrange(256)
            hostile.say(bytes(payload))
            told.note(hostile.honest)
        told.events = [hostile.honest.events]
        told.endings = [hostile.honest.core.connection.ending]
    return told


def test_packets_when_a_member_says_anything_then_what_is_said_and_heard_is_as_aioquic_has_it() -> None:
    endings = set()
    for seed in range(80):
        short, long = hostile_life(seed, PinnedConnection), hostile_life(seed, LongWay)
        assert short == replace(long, short=short.short)
        endings |= {ending and ending.error_code for ending in short.endings}
    assert len(endings) > 4


NEW_ID = frame(0x18, 8, 2, b"\x08", b"another1", bytes(16))  # and two that are in use are to be retired
IN_TURN = {
    "data, and padding after it": [frame(0x0A, 0, 3, b"abc"), *(frame(0x0E, 0, 3 + i, 1, b"x") for i in range(9))],
    "data behind the end": [frame(0x0F, 4, 70_100, 7, b"the end"), frame(0x0E, 4, 80_000, 9, b"beyond it")],
    "data before the end": [frame(0x0F, 4, 70_100, 7, b"the end"), frame(0x0E, 4, 60_000, 13, b"far before it")],
    "other connection ids": [NEW_ID, frame(0x19, 1), frame(0x01)],
}


def life_in_turn(payloads: list[bytes], ends: type[PinnedConnection]) -> Played:
    with played(1, ends) as told:
        hostile = HostileMember(dials=True)
        first = hostile.end.core.connection._packet_number
        for number, payload in enumerate(payloads, first):
            hostile.honest.wire.now += 0.1
            hostile.say_in(number, payload)
            told.note(hostile.honest)
        told.events = [hostile.honest.events]
        told.endings = [hostile.honest.core.connection.ending]
    return told


@pytest.mark.parametrize("name", IN_TURN)
def test_packets_when_they_belong_together_then_what_is_said_and_heard_is_as_aioquic_has_it(name: str) -> None:
    short, long = life_in_turn(IN_TURN[name], PinnedConnection), life_in_turn(IN_TURN[name], LongWay)
    assert short == replace(long, short=short.short)


def headers_life(ends: type[PinnedConnection]) -> Played:
    """Packets come twice, with gaps, with bits that must be zero."""
    with played(1, ends) as told:
        hostile = HostileMember(dials=True)
        for first in (0x41, 0x61, 0x41):
            for number in range(1000, 1400, 2):
                for _ in range(2):
                    hostile.say_in(number + first, FRAMES["ping"], first=first)
                    told.note(hostile.honest)
        hostile.say_in(2000, FRAMES["ping"], first=0x51)
        told.note(hostile.honest)
        told.endings = [hostile.honest.core.connection.ending]
    return told


def test_packets_when_they_are_odd_themselves_then_what_is_said_and_heard_is_as_aioquic_has_it() -> None:
    short, long = headers_life(PinnedConnection), headers_life(LongWay)
    assert short == replace(long, short=short.short)
    (ending,) = short.endings
    assert ending is not None
    assert ending.error_code == QuicErrorCode.PROTOCOL_VIOLATION
