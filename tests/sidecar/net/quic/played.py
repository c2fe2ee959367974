"""Two lives of a connection that are the same but for who builds and reads its packets: what is compared of them."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aioquic.quic.connection import NetworkAddress, QuicConnection
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.events import ConnectionTerminated
from aioquic.quic.stream import QuicStream

from kafila_sidecar.net.quic.connection import PinnedConnection
from kafila_sidecar.net.quic.incoming import IncomingPackets
from kafila_sidecar.net.quic.neighbour import Event
from kafila_sidecar.net.quic.outgoing import OutgoingPackets
from tests.sidecar.net.quic.long_way import connections_of
from tests.sidecar.net.quic.test_neighbour import QuicEnd

LONG_HEADER = 0x80
Sealed = tuple[bytes, bytes, int]  # header, payload, packet number


@dataclass
class Played:
    """What two ends said, before it was encrypted, and what they heard."""

    packets: list[Sealed] = field(default_factory=list)
    events: list[list[Event]] = field(default_factory=list)
    endings: list[ConnectionTerminated | None] = field(default_factory=list)
    states: list[object] = field(default_factory=list)  # of both ends after each deed
    short: int = field(default=0, compare=False)  # packets that were built the short way
    read: int = field(default=0, compare=False)  # packets that were read to their end without aioquic
    _others: int = field(default=0, compare=False)  # packets with anything in them that aioquic read

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
            for stream in connection._streams_queue
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

    def read(connection: IncomingPackets, plain: bytes, now: float) -> bool:
        before = told._others
        try:
            return take(connection, plain, now)
        finally:
            told.read += told._others == before

    def read_long(connection: QuicConnection, *rest: object, **more: object) -> object:
        told._others += 1
        return receive(connection, *rest, **more)  # type: ignore[arg-type]

    short, take, receive = OutgoingPackets._seal, IncomingPackets._take_frames, QuicConnection._payload_received
    with connections_of(ends) as patch:
        patch.setattr(CryptoPair, "encrypt_packet", sealed)
        patch.setattr(OutgoingPackets, "_seal", counted)
        patch.setattr(IncomingPackets, "_take_frames", read)
        patch.setattr(QuicConnection, "_payload_received", read_long)
        patch.setattr(os, "urandom", random.Random(seed).randbytes)
        patch.setattr(QuicStream, "__hash__", lambda stream: stream.stream_id or 0)  # it orders sets of them
        yield told


def is_open(connection: PinnedConnection, stream_id: int) -> bool:
    """Whether it can be written to."""
    stream = connection._streams.get(stream_id)
    if stream is None:
        return connection.is_ours(stream_id) and not connection._stream_is_discarded(stream_id)
    return stream.sender._buffer_fin is None and stream.sender._reset_error_code is None
