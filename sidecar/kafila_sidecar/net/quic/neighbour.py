"""One QUIC connection with one pinned neighbour, without I/O: bytes in, bytes and events out.

The end with the lower fingerprint dials. The listener compares the dialler's certificate with the roster when the
handshake completes and then sends a welcome; the dialler, which completes first, counts the link as up only then.
"""

from collections import deque
from dataclasses import dataclass

from aioquic._buffer import Buffer
from aioquic.quic import events as quic_events
from aioquic.quic.packet import QuicErrorCode, QuicPacketType, pull_quic_header

from kafila_sidecar.foreign import line
from kafila_sidecar.net.quic.connection import (
    CID_BYTES,
    PSEUDO_ADDRESS,
    PinnedConnection,
    TlsIdentity,
    configuration,
)
from kafila_sidecar.net.quic.credit import Credit

LONGEST_REASON = 200  # characters that the other end says when it closes
KEEPALIVE_S = 0.5  # a PING after this long without a word from the peer
LISTENERS_PATIENCE_S = 0.25  # longer: the dialler's PING is word enough, and two that ask each other cost twice as much
MOST_ATTEMPTS = 8  # at a handshake, at once; a dialler makes one each time that it wants the link
ATTEMPTS_PER_S = 2.0
WELCOME = b"kafila\x01"  # the listener's first bytes, on its first unidirectional stream: protocol version 1
_WELCOME_STREAM = 3  # RFC 9000 section 2.1: server-initiated, unidirectional
_SMALLEST_INITIAL_BYTES = 1200  # RFC 9000 section 14.1

CLOSED = 0x0  # application error codes of CONNECTION_CLOSE, RESET_STREAM and STOP_SENDING
UNPINNED = 0x1
GIVEN_UP = 0x2


@dataclass(frozen=True, slots=True)
class Established:
    """Both certificates are the roster's, and both ends know it."""


@dataclass(frozen=True, slots=True)
class StreamData:
    stream_id: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class StreamGone:
    """The peer gave a stream up. `is_reset`: it sends nothing more on it; else it wants nothing more."""

    stream_id: int
    is_reset: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The connection is over. `kind`: "closed", "unpinned" (either end), "silent", "failed"."""

    kind: str
    detail: str


Event = Established | StreamData | StreamGone | Ended


class Attempts:
    """How many handshakes may begin: each costs some milliseconds of computing, which a forger does not pay."""

    def __init__(self) -> None:
        self._left, self._at = float(MOST_ATTEMPTS), 0.0

    def take(self, now: float) -> bool:
        """Takes one, if one is left."""
        self._left = min(MOST_ATTEMPTS, self._left + (now - self._at) * ATTEMPTS_PER_S)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Neighbour:
    """The protocol core of a link. `pair_name` is 8 bytes that both ends derive, `peer_fingerprint` the roster's."""

    def __init__(self, *, me: TlsIdentity, peer_fingerprint: bytes, pair_name: bytes) -> None:
        self.dials = me.fingerprint < peer_fingerprint
        self.credit = Credit()
        self.routes: set[bytes] = set() if self.dials else {pair_name}  # connection ids that lead here
        self.is_established = False
        self.refusal: Ended | None = None  # how the latest attempt failed that reached a listener
        self._me = me
        self._peer_fingerprint = peer_fingerprint
        self._pair_name = pair_name
        self._connection: PinnedConnection | None = None
        self._peer_cid = b""  # the dialler's first source connection id, which tells its attempts apart
        self._attempts = Attempts()
        self._welcome = b""
        self._events: deque[Event] = deque()
        self._early: list[Event] = []  # what overtook the welcome
        self._ended = False
        self._came_at = 0.0  # the latest datagram
        self._ping_at: float | None = None
        self._pings = 0

    @property
    def is_started(self) -> bool:
        return self._connection is not None

    @property
    def heard_at(self) -> float | None:
        """When the peer last said something that only it can say."""
        return self._connection.heard_at if self._connection else None

    @property
    def connection(self) -> PinnedConnection:
        if self._connection is None:
            raise RuntimeError("the connection has not been started")
        return self._connection

    def follow_path(self, *, is_new: bool, datagram_bytes: int) -> None:
        """The driver's path below has another address, or carries datagrams of another size."""
        if self._connection is None:
            return
        if is_new:
            self._connection.start_new_path()
        self._connection.use_datagram_bytes(datagram_bytes)

    def dial(self, now: float, rtt_s: float) -> None:
        """Starts the handshake; only the end that dials."""
        self._start(rtt_s)
        self.connection.connect(PSEUDO_ADDRESS, now)

    def receive(self, datagram: bytes, now: float, rtt_s: float) -> None:
        """Takes one datagram. Whatever isn't the peer's is dropped by QUIC's own protection."""
        if self._ended:
            return
        if not self.dials and not self.is_established:
            self._listen(datagram, now, rtt_s)
        if self._connection is None:
            return
        self._connection.receive_datagram(datagram, PSEUDO_ADDRESS, now)
        self._came_at = now
        if not self.is_established:
            self._collect(now)

    def next_timer(self) -> float | None:
        if self._connection is None or self._ended:
            return None
        at, ping_at = self._connection.get_timer(), self._ping_at
        return ping_at if at is None or (ping_at is not None and ping_at < at) else at

    def handle_timer(self, now: float) -> bool:
        """Whether anything was due, so that there may be something to send."""
        next_at = self.next_timer()
        if self._connection is None or next_at is None or now < next_at:
            return False
        self._connection.handle_timer(now)
        if self._ping_at is not None and now >= self._ping_at:
            self._keep_alive(now)
        self._collect(now)
        return True

    def has_to_send(self, now: float) -> bool:
        """Whether `datagrams` may have something: sometimes true though it has not."""
        return self._connection is not None and self._connection.has_to_send(now)

    def datagrams(self, now: float) -> list[bytes]:
        """What is to be sent now, in order."""
        if self._connection is None:
            return []
        return [data for data, _ in self._connection.datagrams_to_send(now)]

    def next_event(self) -> Event | None:
        if not self._events and self.is_established and not self._ended:
            self._collect(self._came_at)  # of all datagrams that have come since
        return self._events.popleft() if self._events else None

    def close(self, code: int, reason: str) -> None:
        """Says goodbye in the next datagrams; no event follows."""
        self._ended = True
        if self._connection is not None:
            self._connection.close(error_code=code, reason_phrase=reason)

    def _start(self, rtt_s: float) -> None:
        self._connection = PinnedConnection(
            configuration=configuration(self._me, is_client=self.dials, rtt_s=rtt_s),
            pair_name=self._pair_name,
            credit=self.credit,
        )
        self.routes.add(self._connection.host_cid)

    def _listen(self, datagram: bytes, now: float, rtt_s: float) -> None:
        """Starts a connection for the dialler's first packet, anew for each of its attempts; there is only ever one."""
        try:
            header = pull_quic_header(Buffer(data=datagram), host_cid_length=CID_BYTES)
        except ValueError:
            return
        is_first = header.packet_type is QuicPacketType.INITIAL and header.destination_cid == self._pair_name
        if not is_first or len(datagram) < _SMALLEST_INITIAL_BYTES or header.source_cid == self._peer_cid:
            return
        if self._attempts.take(now):
            self._peer_cid = header.source_cid
            self.refusal = None
            self.routes = {self._pair_name}
            self._start(rtt_s)

    def _keep_alive(self, now: float) -> None:
        heard_at = self.connection.heard_at or now
        quiet_s = KEEPALIVE_S if self.dials else KEEPALIVE_S + LISTENERS_PATIENCE_S
        if now - heard_at >= quiet_s:
            self._pings += 1
            self.connection.send_ping(self._pings)
            heard_at = now
        self._ping_at = heard_at + quiet_s

    def _collect(self, now: float) -> None:
        """Translates aioquic's events."""
        connection = self.connection
        while (event := connection.next_event()) is not None:
            match event:
                case quic_events.HandshakeCompleted():
                    self._handshaken(now)
                case quic_events.StreamDataReceived():
                    self._stream_data(self._joined(event), now)
                case quic_events.StreamReset(stream_id=stream_id):
                    self._stream_event(StreamGone(stream_id, is_reset=True))
                case quic_events.StopSendingReceived(stream_id=stream_id):
                    self._stream_event(StreamGone(stream_id, is_reset=False))
                case quic_events.ConnectionIdIssued(connection_id=cid):
                    self.routes.add(cid)
                case quic_events.ConnectionIdRetired(connection_id=cid):
                    self.routes.discard(cid)
        if connection.ending is not None:
            self._end(self._told(connection.ending))

    def _joined(self, event: quic_events.StreamDataReceived) -> StreamData:
        """With what has come of the stream right behind it: a frame is in several datagrams."""
        parts = [event.data]
        while not event.end_stream and (data := self.connection.next_data(event.stream_id)) is not None:
            parts.append(data)
        return StreamData(event.stream_id, b"".join(parts) if len(parts) > 1 else event.data, event.end_stream)

    def _handshaken(self, now: float) -> None:
        if self.connection.peer_fingerprint != self._peer_fingerprint:
            shown = "no certificate" if self.connection.peer_fingerprint is None else "another certificate"
            self._fail(Ended("unpinned", f"it showed {shown} than the roster's"))
        elif not self.dials:
            self.connection.send_stream_data(_WELCOME_STREAM, WELCOME, end_stream=True)
            self._establish(now)

    def _stream_data(self, event: StreamData, now: float) -> None:
        if self.is_established or event.stream_id != _WELCOME_STREAM:
            self._stream_event(event)
            return
        self._welcome += event.data
        if self._welcome == WELCOME and event.is_last:
            self._establish(now)
        elif event.is_last or not WELCOME.startswith(self._welcome):
            self._fail(Ended("failed", "it speaks another version of the protocol"))

    def _stream_event(self, event: StreamData | StreamGone) -> None:
        (self._events if self.is_established else self._early).append(event)

    def _establish(self, now: float) -> None:
        self.is_established = True
        self._ping_at = now + KEEPALIVE_S
        self._events.append(Established())
        self._events.extend(self._early)
        self._early.clear()

    def _fail(self, ended: Ended) -> None:
        code = UNPINNED if ended.kind == "unpinned" else CLOSED
        self.connection.close(error_code=code)
        self._end(ended)

    def _end(self, ended: Ended) -> None:
        """Ends the link, or just this attempt at it: a forged first packet must not keep the real dialler out."""
        if self._ended:
            return
        if not self.dials and not self.is_established:
            self.refusal = self.refusal or ended
            return
        self._ended = True
        self._events.append(ended)

    def _told(self, ending: quic_events.ConnectionTerminated) -> Ended:
        """What aioquic says about a connection that is over."""
        is_application = ending.frame_type is None
        # Before the handshake is confirmed an application's close is masked (RFC 9000 section 10.2.3).
        is_masked = ending.error_code == QuicErrorCode.APPLICATION_ERROR and not self.is_established
        if ending.reason_phrase == "Idle timeout":
            return Ended("silent", "it has said nothing for too long")
        if is_masked or (is_application and ending.error_code == UNPINNED):
            return Ended("unpinned", "it refused this member's certificate")
        reason = line(ending.reason_phrase, LONGEST_REASON)  # the other end may say what it likes
        if is_application and ending.error_code == CLOSED:
            return Ended("closed", reason or "it closed the link")
        return Ended("failed", f"QUIC error {ending.error_code:#x} {reason}".strip())
