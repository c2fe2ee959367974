"""What a connection gets all day is read in a short way: data of streams, and acknowledgements. Without I/O.

As with what is sent (`outgoing`): the state after a packet is the one that aioquic's own reading leaves, and what is
unusual is left to that.
"""

from typing import Any

from aioquic import tls
from aioquic._buffer import Buffer, BufferReadError
from aioquic._crypto import CryptoError
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import (
    NetworkAddress,
    QuicConnection,
    QuicConnectionError,
    QuicConnectionState,
    QuicReceiveContext,
)
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.events import StreamDataReceived
from aioquic.quic.packet import QuicStreamFrame
from aioquic.quic.recovery import MAX_ACK_RANGES, QuicPacketSpace
from aioquic.quic.stream import FinalSizeError, QuicStream

from kafila_sidecar.net.quic.outgoing import ACK, DATA, FIN, LENGTH, OFFSET, SHORT, SPIN, OutgoingPackets
from kafila_sidecar.net.quic.private import refuse_without

_FORM, _RESERVED = 0xC0, 0x18  # in the first byte of a packet: RFC 9000 section 17.3.1
_LAST_DATA = DATA | FIN | LENGTH | OFFSET


class IncomingPackets(OutgoingPackets):
    """Knows when a packet of the peer last decrypted (`heard_at`), and which are to be acknowledged."""

    heard_at: float | None = None

    def receive_datagram(self, data: bytes, addr: NetworkAddress, now: float) -> None:
        if not self._take(data, now):
            super().receive_datagram(data, addr, now)

    def next_data(self, stream_id: int) -> bytes | None:
        """Takes the next event, where it is nothing but more of this stream's bytes."""
        event = self._events[0] if self._events else None
        if not isinstance(event, StreamDataReceived) or event.stream_id != stream_id or event.end_stream:
            return None
        self._events.popleft()
        return event.data

    def _take(self, data: bytes, now: float) -> bool:
        """Whether it was a packet that is read here; else nothing is changed by it yet, but that the keys are the
        peer's new ones where it decrypted with those: aioquic, which then reads it, has use for no others."""
        is_ours = data[1 : 1 + len(self.host_cid)] == self.host_cid and data[0] & _FORM == SHORT
        if not is_ours or not self._handshake_confirmed or self._state is not QuicConnectionState.CONNECTED:
            return False
        space = self._space
        try:
            header, plain, number = self._keys.decrypt_packet(
                data, 1 + len(self.host_cid), space.expected_packet_number
            )
        except CryptoError:
            return True  # a stranger's
        if number in space.received_packets:
            return True
        if header[0] & _RESERVED:
            return False
        if number > space.expected_packet_number:
            space.expected_packet_number = number + 1
        self.heard_at = now
        if number > self._spin_highest_pn:
            self._spin_bit = bool(header[0] & SPIN) is not self._is_client
            self._spin_highest_pn = number
        try:
            is_ack_eliciting = self._take_frames(plain, now)
        except QuicConnectionError as error:
            self.close(error.error_code, error.frame_type, error.reason_phrase)
            return True
        if not self._close_pending and self._state is QuicConnectionState.CONNECTED:
            self._close_at = now + self._idle_timeout()
            self._ack_eliciting_sent_since_receipt = False
            self._note(number, now, is_ack_eliciting=is_ack_eliciting)
        return True

    def _take_frames(self, plain: bytes, now: float) -> bool:
        """Whether they are to be acknowledged. Raises QuicConnectionError."""
        context = QuicReceiveContext(tls.Epoch.ONE_RTT, self.host_cid, self._network_paths[0], None, now, None)
        frames, is_ack_eliciting, at = Buffer(data=plain), False, 0
        try:
            while at < len(plain):
                kind = frames.pull_uint_var()
                if kind == ACK:
                    self._handle_ack_frame(context, kind, frames)
                elif DATA <= kind <= _LAST_DATA and self._take_data(kind, frames):
                    is_ack_eliciting = True
                else:
                    break
                at = frames.tell()
        except BufferReadError:
            pass  # it is said by who reads it again
        if at < len(plain) or not plain:
            return super()._payload_received(context, plain[at:])[0] or is_ack_eliciting
        return is_ack_eliciting

    def _take_data(self, kind: int, frames: Buffer) -> bool:
        """Reads a STREAM frame of a stream that is there; where it is unusual, nothing is changed."""
        stream = self._streams.get(frames.pull_uint_var())
        offset = frames.pull_uint_var() if kind & OFFSET else 0
        data = frames.pull_bytes(frames.pull_uint_var() if kind & LENGTH else frames.capacity - frames.tell())
        if stream is None or stream.receiver.is_finished or kind & FIN:
            return False
        end, receiver, limit = offset + len(data), stream.receiver, self._local_max_data
        new = max(0, end - receiver.highest_offset)
        if end > stream.max_stream_data_local or limit.used + new > limit.value:
            return False
        try:
            event = receiver.handle_frame(QuicStreamFrame(data=data, offset=offset))
        except FinalSizeError:
            return False
        if event is not None:
            self._events.append(event)
        limit.used += new
        return True

    def _note(self, number: int, now: float, *, is_ack_eliciting: bool) -> None:
        """A packet has come for the first time."""
        space = self._space
        if number > space.largest_received_packet:
            space.largest_received_packet, space.largest_received_time = number, now
        space.ack_queue.add(number)
        space.received_packets.add(number)
        if len(space.ack_queue) > MAX_ACK_RANGES:
            space.ack_queue.shift()
        if is_ack_eliciting:
            self._acks.came()
            space.ack_at = now + self._ack_delay if space.ack_at is None else space.ack_at

    def _payload_received(
        self, context: QuicReceiveContext, plain: bytes, crypto_frame_required: bool = False
    ) -> tuple[bool, bool]:
        self.heard_at = context.time
        is_ack_eliciting, is_probing = super()._payload_received(context, plain, crypto_frame_required)
        if is_ack_eliciting and context.epoch is tls.Epoch.ONE_RTT:
            self._acks.came()
        return is_ack_eliciting, is_probing


_CONNECTION: Any = QuicConnection(configuration=QuicConfiguration())
_STREAM: Any = QuicStream(stream_id=0)
refuse_without(
    {
        "_ack_delay _ack_eliciting_sent_since_receipt _close_at _close_pending _events _handle_ack_frame "
        "_handshake_confirmed _idle_timeout _local_max_data _network_paths _payload_received _spin_bit "
        "_spin_highest_pn _state _streams": _CONNECTION,
        "used value": _CONNECTION._local_max_data,
        "ack_at ack_queue expected_packet_number largest_received_packet largest_received_time "
        "received_packets": QuicPacketSpace(),
        "max_stream_data_local": _STREAM,
        "handle_frame highest_offset is_finished": _STREAM.receiver,
        "decrypt_packet": CryptoPair(),
    }
)
