"""aioquic's connection, bent in the places where a ring of pinned members needs something else.

- The server asks for a certificate, and both ends keep the peer's for comparison (there is no public call for it).
- Receive credit follows the readers (`credit`), so an unread stream can't grow without bound.
- Acknowledgements wait for company (`acks`).
- Packets of a ring's frames are built and read in a short way (`outgoing`, `incoming`), and the time of the last one
  that decrypted is kept: it is the sign of life of the peer.
- The first destination connection id names the pair, so that one socket can serve many links.
- Version negotiation and Retry, which no member sends, are not heard: neither is authenticated.
- Some streams send only when no other has anything to send (aioquic knows no priorities).
- What it raises at a peer's bytes ends this connection, and no other.

All of these reach into names that aioquic doesn't promise; importing this module fails loudly when one is gone.
"""

import hashlib
import logging
import math
import ssl
from typing import Any, Protocol, cast

from aioquic import tls
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.congestion.base import K_GRANULARITY
from aioquic.quic.connection import Limit, NetworkAddress, QuicConnection
from aioquic.quic.events import ConnectionTerminated
from aioquic.quic.packet import QuicErrorCode, QuicFrameType, QuicHeader
from aioquic.quic.packet_builder import QuicPacketBuilder
from aioquic.quic.recovery import QuicPacketSpace
from aioquic.quic.stream import QuicStream
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from kafila_sidecar.net.quic.acks import DELAY_S
from kafila_sidecar.net.quic.congestion import ALGORITHM, FrameCongestionControl, FramePacer
from kafila_sidecar.net.quic.credit import LINK_WINDOW_BYTES, STREAM_WINDOW_BYTES, UPDATE_BYTES, Credit
from kafila_sidecar.net.quic.incoming import IncomingPackets
from kafila_sidecar.net.quic.private import refuse_without

log = logging.getLogger(__name__)

ALPN = "kafila/1"
CID_BYTES = 8
IDLE_TIMEOUT_S = 15.0  # silence for this long ends a link
PSEUDO_ADDRESS = ("kafila", 0)  # all that aioquic ever sees; the real path lives below it
SMALLEST_RTT_S = 0.02  # initial guess for retransmission; a check on loopback says less than a busy process needs

_LIMIT_FRAME_BYTES = 9  # frame type and one variable-length integer
_STREAM_LIMIT_FRAME_BYTES = 17


class TlsIdentity(Protocol):
    """What a link needs to prove who this member is."""

    @property
    def certificate(self) -> x509.Certificate: ...
    @property
    def private_key(self) -> Ed25519PrivateKey: ...
    @property
    def fingerprint(self) -> bytes: ...


def configuration(me: TlsIdentity, *, is_client: bool, rtt_s: float) -> QuicConfiguration:
    """The settings of one connection; `rtt_s` is what the path's checks measured."""
    return QuicConfiguration(
        alpn_protocols=[ALPN],
        congestion_control_algorithm=ALGORITHM,
        is_client=is_client,
        idle_timeout=IDLE_TIMEOUT_S,
        initial_rtt=max(rtt_s, SMALLEST_RTT_S),
        max_data=LINK_WINDOW_BYTES,
        max_stream_data=STREAM_WINDOW_BYTES,
        connection_id_length=CID_BYTES,
        certificate=me.certificate,
        private_key=me.private_key,
        verify_mode=ssl.CERT_NONE,  # the roster pins the certificate; `peer_fingerprint` is compared with it
    )


class PinnedConnection(IncomingPackets):
    """A QuicConnection between two pinned members; `pair_name` (8 bytes) is its first destination connection id."""

    def __init__(self, *, configuration: QuicConfiguration, pair_name: bytes, credit: Credit) -> None:
        self._last: set[int] = set()
        super().__init__(
            configuration=configuration,
            original_destination_connection_id=None if configuration.is_client else pair_name,
        )
        if configuration.is_client:
            self._peer_cid.cid = pair_name
            self._original_destination_connection_id = pair_name
        self._loss._pacer = FramePacer(max_datagram_size=configuration.max_datagram_size)
        self._credit = credit

    @property
    def peer_fingerprint(self) -> bytes | None:
        """SHA-256 of the certificate whose key the peer proved; None when it showed none."""
        certificate = self.tls._peer_certificate
        return hashlib.sha256(certificate.public_bytes(Encoding.DER)).digest() if certificate else None

    @property
    def ending(self) -> ConnectionTerminated | None:
        """Why the connection is over, known as soon as either side closes."""
        return self._close_event

    def use_datagram_bytes(self, size_bytes: int) -> None:
        """From now on packets may be this large."""
        self._max_datagram_size = size_bytes
        self._window()._max_datagram_size = size_bytes
        self._loss._pacer._max_datagram_size = size_bytes

    def start_new_path(self) -> None:
        """The path below has changed: round trip and congestion window start again (RFC 9000 section 9.4)."""
        loss = self._loss
        in_flight = loss.bytes_in_flight
        loss._cc = FrameCongestionControl(max_datagram_size=self._max_datagram_size)
        loss._cc.bytes_in_flight = in_flight
        loss._pacer = FramePacer(max_datagram_size=self._max_datagram_size)
        loss._rtt_initialized, loss._rtt_min, loss._pto_count = False, math.inf, 0

    def receive_datagram(self, data: bytes, addr: NetworkAddress, now: float) -> None:
        """Never raises."""
        space = self._space if self._handshake_confirmed else None
        latest = space.largest_received_packet if space else 0
        self._ack_delay = DELAY_S if space else K_GRANULARITY
        try:
            super().receive_datagram(data, addr, now)
        except Exception as error:  # noqa: BLE001  # the certificate library below has errors of its own kinds
            self._fail(error)
        if space is not None and space.ack_at is not None:
            is_in_order = space.largest_received_packet == latest + 1
            space.ack_at = self._acks.due(space.ack_at, now, is_in_order=is_in_order)

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, NetworkAddress]]:
        """Never raises: what a peer made unsendable is the end of the connection without a goodbye."""
        try:
            return super().datagrams_to_send(now)
        except Exception as error:  # noqa: BLE001  # as above
            self._fail(error)
            self._close_end()
            return []

    def unacknowledged(self, stream_id: int) -> int:
        """Bytes of a stream that are still held here, sent or not."""
        stream = self._streams.get(stream_id)
        return stream.sender._buffer_stop - stream.sender._buffer_start if stream else 0

    def send_last(self, stream_id: int) -> None:
        """From now on this stream sends only what is left over by those that are not last."""
        self._last &= self._streams.keys()
        self._last.add(stream_id)

    def is_ours(self, stream_id: int) -> bool:
        """Whether a stream was opened here (RFC 9000 section 2.1)."""
        return (stream_id & 1 == 0) == self._is_client

    def stop_quietly(self, stream_id: int, error_code: int) -> None:
        """Gives up both directions of a stream, whatever state they are in."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        stream.sender.reset(error_code)
        if not stream.receiver.is_finished:
            stream.receiver.stop(error_code)

    @property
    def _streams_queue(self) -> list[QuicStream]:
        """In the order in which they send into each packet."""
        if self._last:
            self._queue.sort(key=lambda stream: stream.stream_id in self._last)
        return self._queue

    @_streams_queue.setter
    def _streams_queue(self, queue: list[QuicStream]) -> None:
        self._queue = queue

    def _fail(self, error: Exception) -> None:
        """Closes the connection, and says so in the next datagrams."""
        kind = type(error).__name__
        log.warning("quic_failed error=%s", kind)
        self.close(QuicErrorCode.INTERNAL_ERROR, QuicFrameType.PADDING, f"what came can't be handled ({kind})")

    def _window(self) -> FrameCongestionControl:
        return cast(FrameCongestionControl, self._loss._cc)

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        self.tls._request_client_certificate = not self._is_client

    def _receive_version_negotiation_packet(self, header: QuicHeader, now: float) -> None:
        """Members speak one version, and agree on their protocol before."""

    def _receive_retry_packet(self, header: QuicHeader, packet_without_tag: bytes, now: float) -> None:
        """A path was checked before anybody dials on it."""

    def _write_stream_limits(self, builder: QuicPacketBuilder, space: QuicPacketSpace, stream: QuicStream) -> None:
        if (limit := self._stream_limit_due(stream)) is None:
            return
        buffer = builder.start_frame(
            QuicFrameType.MAX_STREAM_DATA,
            capacity=_STREAM_LIMIT_FRAME_BYTES,
            handler=self._on_max_stream_data_delivery,
            handler_args=(stream,),
        )
        buffer.push_uint_var(stream.stream_id or 0)
        buffer.push_uint_var(limit)
        stream.max_stream_data_local = stream.max_stream_data_local_sent = limit

    def _stream_limit_due(self, stream: QuicStream) -> int | None:
        """The limit of a stream, when it is time to tell it, or it was lost."""
        told = stream.max_stream_data_local
        if stream.receiver.is_finished or not told:
            return None
        limit = self._credit.stream_limit(stream.stream_id or 0)
        if stream.max_stream_data_local_sent == told and limit - told < UPDATE_BYTES:
            return None
        return max(limit, told)

    def _has_limit_to_tell(self, stream: QuicStream) -> bool:
        return self._stream_limit_due(stream) is not None

    def _has_limits_to_tell(self) -> bool:
        streams_due = _is_due(self._local_max_streams_bidi) or _is_due(self._local_max_streams_uni)
        return streams_due or self._link_limit_due() is not None

    def _write_connection_limits(self, builder: QuicPacketBuilder, space: QuicPacketSpace) -> None:
        if (limit := self._link_limit_due()) is not None:
            self._local_max_data.value = limit
            self._write_limit(builder, self._local_max_data)
        for streams in (self._local_max_streams_bidi, self._local_max_streams_uni):
            if _is_due(streams):
                self._write_limit(builder, streams)

    def _link_limit_due(self) -> int | None:
        """The limit of all streams together, when it is time to tell it, or it was lost."""
        data = self._local_max_data
        if data.sent == data.value and data.used + LINK_WINDOW_BYTES - data.value < UPDATE_BYTES:
            return None  # not even if all that came was read
        limit = self._credit.link_limit(data.used, {i: s.receiver.highest_offset for i, s in self._streams.items()})
        if data.sent == data.value and limit - data.value < UPDATE_BYTES:
            return None
        return max(data.value, limit)

    def _write_limit(self, builder: QuicPacketBuilder, limit: Limit) -> None:
        buffer = builder.start_frame(
            limit.frame_type,
            capacity=_LIMIT_FRAME_BYTES,
            handler=self._on_connection_limit_delivery,
            handler_args=(limit,),
        )
        buffer.push_uint_var(limit.value)
        limit.sent = limit.value


def _is_due(streams: Limit) -> bool:
    """MAX_STREAMS in batches: when the peer has fewer streams left than the update would grant."""
    return bool(streams.sent - streams.used < streams.value - streams.sent)


_CONNECTION: Any = QuicConnection(configuration=QuicConfiguration())
_STREAM: Any = QuicStream(stream_id=0)
refuse_without(
    {
        "_peer_cid _original_destination_connection_id _close_event _close_end _loss _streams _initialize "
        "_ack_delay _streams_queue _receive_version_negotiation_packet _receive_retry_packet "
        "_write_stream_limits _write_connection_limits _on_max_stream_data_delivery _on_connection_limit_delivery "
        "_local_max_data _local_max_streams_bidi _local_max_streams_uni _max_datagram_size "
        "_handshake_confirmed": _CONNECTION,
        "_rtt_initialized _rtt_min _pto_count _pacer _cc": _CONNECTION._loss,
        "ack_at largest_received_packet": QuicPacketSpace(),
        "max_stream_data_local max_stream_data_local_sent": _STREAM,
        "_buffer_start _buffer_stop reset": _STREAM.sender,
        "stop is_finished highest_offset": _STREAM.receiver,
        "_request_client_certificate _peer_certificate": tls.Context(is_client=True),
    }
)
