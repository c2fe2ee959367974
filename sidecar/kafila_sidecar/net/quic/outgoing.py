"""What a connection sends all day goes a short way: data of one stream, and acknowledgements. Without I/O.

aioquic builds each packet by one machinery for everything that QUIC has, which costs a frame of a ring more than all
else on its way. Once the handshake is confirmed, packets that have nothing but data of one stream, and an
acknowledgement of one range, are built here: with the same bytes, and the same state after them. Whatever else is to be
sent, aioquic sees to it as ever. All it knows is one path (`connection.PSEUDO_ADDRESS`).
"""

from collections.abc import Callable
from typing import Any

from aioquic import tls
from aioquic._buffer import Buffer
from aioquic.buffer import size_uint_var
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import NetworkAddress, QuicConnection, QuicConnectionState, QuicNetworkPath
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicFrameType, QuicPacketType, push_ack_frame
from aioquic.quic.packet_builder import QuicPacketBuilder, QuicSentPacket
from aioquic.quic.recovery import QuicPacketSpace
from aioquic.quic.stream import QuicStream

from kafila_sidecar.net.quic.acks import AckPace
from kafila_sidecar.net.quic.private import refuse_without

Datagrams = list[tuple[bytes, NetworkAddress]]
Handlers = list[tuple[Callable[..., None], Any]]  # of what becomes of a packet, with arguments of theirs

SHORT, SPIN = 0x40, 0x20  # in the first byte of a packet with a short header: RFC 9000 section 17.3.1
ACK = int(QuicFrameType.ACK)
DATA, FIN, LENGTH, OFFSET = int(QuicFrameType.STREAM_BASE), 1, 2, 4  # a STREAM frame's: RFC 9000 section 19.8
_NUMBER_BYTES = 2  # of the packet number, as aioquic sends it
_TAG_BYTES = 16
_HEADS_BYTES = 64  # more than an ACK frame of one range and the head of a STREAM frame have
_DATA_HEAD_BYTES = 3  # type and length, as aioquic sends them
_TWO_BYTES = 0x4000  # of a variable-length integer


class OutgoingPackets(QuicConnection):
    """aioquic's connection. Nothing goes the short way until it is known when there are limits to tell."""

    def datagrams_to_send(self, now: float) -> Datagrams:
        sending = self._sending()
        if sending or (sending is None and self._has_data()):
            self._acknowledge_along(now)
        if sending is None or len(sending) > 1 or len(self._space.ack_queue) > 1:
            return super().datagrams_to_send(now)
        return self._build(sending[0] if sending else None, now)

    def has_to_send(self, now: float) -> bool:
        """False where nothing but what came of a peer's datagram has changed and there is nothing to be sent for that:
        looking costs a tenth of `datagrams_to_send`. What it overlooked would go with the next timer."""
        sending = self._sending()
        return sending is None or bool(sending) or _is_ack_due(self._space, now)

    def _sending(self) -> list[QuicStream] | None:
        """The streams that have data, where there may be nothing else to be sent but acknowledgements."""
        if not self._is_calm() or self._has_limits_to_tell():
            return None
        sending = []
        for stream in self._streams_queue:
            sender, receiver = stream.sender, stream.receiver
            if stream.is_blocked or receiver.stop_pending or sender.reset_pending or self._has_limit_to_tell(stream):
                return None
            if receiver.is_finished and sender.is_finished:
                return None
            if not sender.buffer_is_empty:
                sending.append(stream)
        return sending

    def _has_data(self) -> bool:
        return self._handshake_confirmed and any(not stream.sender.buffer_is_empty for stream in self._streams_queue)

    def _is_calm(self) -> bool:
        """Whether nothing is going on between the ends that is no stream's."""
        if not self._handshake_confirmed or self._state is not QuicConnectionState.CONNECTED:
            return False
        if self._network_paths[0].remote_challenges:
            return False
        if self._close_pending or self._probe_pending or self._ping_pending or self._retire_connection_ids:
            return False
        if self._handshake_done_pending or self._streams_blocked_pending or self._datagrams_pending:
            return False
        for cid in self._host_cids:
            if not cid.was_sent:
                return False
        return self._crypto.sender.buffer_is_empty

    def _has_limits_to_tell(self) -> bool:
        """Whether the peer may send more than it knows on all streams together, or open more of them: who has limits
        of its own says when. aioquic's may move whenever it looks at them."""
        return True

    def _has_limit_to_tell(self, stream: QuicStream) -> bool:
        """Whether it may send more on this one than it knows."""
        return True

    def _build(self, stream: QuicStream | None, now: float) -> Datagrams:
        """Packets with a stream's data, the first one with what is to be acknowledged by now."""
        loss, space, datagrams = self._loss, self._space, Datagrams()
        while True:
            self._pacing_at = None
            if space.ack_at is None or space.ack_at >= now:
                self._pacing_at = loss._pacer.next_send_time(now)
                if self._pacing_at is not None:
                    break
            if stream is None and not _is_ack_due(space, now):
                break
            if loss.congestion_window - loss.bytes_in_flight < self._max_datagram_size:
                return datagrams + super().datagrams_to_send(now)  # it fills what is left of the window
            handlers: Handlers = []
            self._heads.seek(0)
            if _is_ack_due(space, now):
                self._add_ack(handlers, now)
            data = self._add_data(handlers, stream) if stream is not None else None
            if not handlers:
                break
            datagrams.append(self._seal(handlers, data, now))
            loss._pacer.update_after_send(now)
            stream = stream if data is not None else None
        return datagrams

    def _add_ack(self, handlers: Handlers, now: float) -> None:
        space = self._space
        delay = int((now - (space.largest_received_time or now)) * 1_000_000) >> self._local_ack_delay_exponent
        self._heads.push_uint_var(ACK)
        push_ack_frame(self._heads, space.ack_queue, delay, _HEADS_BYTES)
        space.ack_at = None
        handlers.append((self._on_ack_delivery, (space, space.largest_received_packet)))
        self._acks.told()

    def _add_data(self, handlers: Handlers, stream: QuicStream) -> bytes | None:
        """What follows the heads; None where the stream has nothing that may go."""
        heads, sender, before = self._heads, stream.sender, stream.sender.highest_offset
        stream_id, next_offset = stream.stream_id or 0, sender.next_offset
        head_bytes = _DATA_HEAD_BYTES + size_uint_var(stream_id) + (size_uint_var(next_offset) if next_offset else 0)
        around_bytes = 1 + len(self._peer_cid.cid) + _NUMBER_BYTES + heads.tell() + head_bytes + _TAG_BYTES
        credit = self._remote_max_data - self._remote_max_data_used
        frame = sender.get_frame(
            self._max_datagram_size - around_bytes, min(before + credit, stream.max_stream_data_remote)
        )
        if frame is None:
            return None
        start, stop = frame.offset, frame.offset + len(frame.data)
        heads.push_uint_var(DATA | LENGTH | (OFFSET if start else 0) | (FIN if frame.fin else 0))
        heads.push_uint_var(stream_id)
        if start:
            heads.push_uint_var(start)
        heads.push_uint16(len(frame.data) | _TWO_BYTES)
        handlers.append((sender.on_data_delivery, (start, stop, frame.fin)))
        if sender.highest_offset > before:
            self._remote_max_data_used += sender.highest_offset - before
            self._streams_queue.remove(stream)  # it goes behind those that have waited
            self._streams_queue.append(stream)
        data: bytes = frame.data
        return data

    def _seal(self, handlers: Handlers, data: bytes | None, now: float) -> tuple[bytes, NetworkAddress]:
        """The datagram that is one packet, counted as sent. `handlers` hear whether it arrived."""
        number, path, has_data = self._packet_number, self._network_paths[0], data is not None
        first = SHORT | (SPIN if self._spin_bit else 0) | self._keys.key_phase << 2 | _NUMBER_BYTES - 1
        header = b"%c%b%c%c" % (first, self._peer_cid.cid, number >> 8 & 0xFF, number & 0xFF)
        datagram: bytes = self._keys.encrypt_packet(header, self._heads.data + (data or b""), number)
        self._packet_number += 1
        packet = QuicSentPacket(
            epoch=tls.Epoch.ONE_RTT,
            in_flight=has_data,
            is_ack_eliciting=has_data,
            is_crypto_packet=False,
            packet_number=number,
            packet_type=QuicPacketType.ONE_RTT,
            sent_time=now,
            sent_bytes=len(datagram),
            delivery_handlers=handlers,
        )
        self._loss.on_packet_sent(packet=packet, space=self._space)
        if has_data and not self._ack_eliciting_sent_since_receipt:
            self._close_at = now + self._idle_timeout()
            self._ack_eliciting_sent_since_receipt = True
        path.bytes_sent += len(datagram)
        return datagram, path.addr

    def _acknowledge_along(self, now: float) -> None:
        """Something is to be sent: what may still wait to be acknowledged goes with it."""
        if self._space.ack_at is not None:
            self._space.ack_at = min(self._space.ack_at, now)

    def _write_ack_frame(self, builder: QuicPacketBuilder, space: QuicPacketSpace, now: float) -> None:
        super()._write_ack_frame(builder, space, now)
        if space.is_application_data:
            self._acks.told()

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        self._space = self._spaces[tls.Epoch.ONE_RTT]
        self._keys = self._cryptos[tls.Epoch.ONE_RTT]
        self._crypto = self._crypto_streams[tls.Epoch.ONE_RTT]
        self._acks = AckPace()
        self._heads = Buffer(capacity=_HEADS_BYTES)

    def _confirm_handshake(self) -> None:
        super()._confirm_handshake()
        self._loss.spaces = [space for space in self._loss.spaces if not space.discarded]  # its timers look at each


def _is_ack_due(space: QuicPacketSpace, now: float) -> bool:
    return space.ack_at is not None and space.ack_at <= now


_CONNECTION: Any = QuicConnection(configuration=QuicConfiguration())
_STREAM: Any = QuicStream(stream_id=0)
refuse_without(
    {
        "_ack_eliciting_sent_since_receipt _close_at _close_pending _confirm_handshake _cryptos _crypto_streams "
        "_datagrams_pending _handshake_confirmed _handshake_done_pending _host_cids _idle_timeout _initialize "
        "_local_ack_delay_exponent _loss _max_datagram_size _network_paths _on_ack_delivery _pacing_at _packet_number "
        "_peer_cid _ping_pending _probe_pending _remote_max_data _remote_max_data_used _retire_connection_ids _spaces "
        "_spin_bit _state _streams_blocked_pending _streams_queue _write_ack_frame": _CONNECTION,
        "_pacer bytes_in_flight congestion_window on_packet_sent spaces": _CONNECTION._loss,
        "next_send_time update_after_send": _CONNECTION._loss._pacer,
        "was_sent": _CONNECTION._host_cids[0],
        "ack_at ack_queue discarded is_application_data largest_received_packet largest_received_time": (
            QuicPacketSpace()
        ),
        "is_blocked max_stream_data_remote": _STREAM,
        "buffer_is_empty get_frame highest_offset is_finished next_offset on_data_delivery "
        "reset_pending": _STREAM.sender,
        "is_finished stop_pending": _STREAM.receiver,
        "encrypt_packet key_phase": CryptoPair(),
        "addr bytes_sent remote_challenges": QuicNetworkPath(None),
    }
)
