"""A member that proved its certificate and then says anything in QUIC: its own link may end, and nothing else."""

import itertools

import pytest
from aioquic import tls
from aioquic.buffer import encode_uint_var

from tests.sidecar.net.quic.test_neighbour import QuicEnd, established
from tests.sidecar.net.wire import DatagramWire
from tests.support import fuzz

PACKETS = max(1, fuzz.INPUTS // 50)  # many of them end a connection, and a handshake costs some ten milliseconds
MOST_GROWTH_BYTES = 1 << 20  # one connection with all the streams that a peer may open
_SHORT_HEADER, _TWO_BYTE_NUMBER = 0x40, 0x01  # RFC 9000 section 17.3.1
_LEAST_BYTES = 4  # of number and payload together: RFC 9001 section 5.4.2


def frame(kind: int, *fields: int | bytes) -> bytes:
    """RFC 9000 section 19: numbers are variable-length integers."""
    return encode_uint_var(kind) + b"".join(encode_uint_var(f) if isinstance(f, int) else f for f in fields)


FRAMES = {
    "ping": frame(0x01),
    "ack": frame(0x02, 1000, 0, 1, 0, 2, 1),
    "reset stream": frame(0x04, 0, 2, 5),
    "stop sending": frame(0x05, 0, 2),
    "crypto": frame(0x06, 0, 4, b"\x04\x00\x00\x00"),
    "new token": frame(0x07, 3, b"abc"),
    "stream": frame(0x0F, 0, 0, 5, b"hello"),
    "stream later": frame(0x0E, 4, 70_000, 5, b"hello"),
    "max data": frame(0x10, 1 << 30),
    "max stream data": frame(0x11, 0, 1 << 30),
    "max streams": frame(0x12, 500),
    "blocked": frame(0x14, 7) + frame(0x15, 0, 7) + frame(0x16, 7),
    "new connection id": frame(0x18, 9, 1, b"\x08", b"another1", bytes(16)),
    "retire connection id": frame(0x19, 1),
    "path challenge": frame(0x1A, b"12345678"),
    "path response": frame(0x1B, b"12345678"),
    "close": frame(0x1C, 1, 0, 2, b"no") + frame(0x1D, 1, 2, b"no"),
    "handshake done": frame(0x1E),
    "datagram": frame(0x31, 3, b"abc"),
}


class HostileMember:
    """A link whose far end is honest; `say` sends any payload in a packet that decrypts, and that no other follows.

    Nothing is added to a payload but what it is too short by, and numbers go on where the handshake ended: what an
    honest member might say takes the same way as if one had said it.
    """

    def __init__(self, *, dials: bool) -> None:
        a, b = established(DatagramWire(delay_s=0.001))
        self.end, self.honest = (a, b) if dials else (b, a)
        self._numbers = itertools.count(self.end.core.connection._packet_number)

    def say(self, payload: bytes, *, first: int = _SHORT_HEADER | _TWO_BYTE_NUMBER) -> None:
        self.say_in(next(self._numbers), payload, first=first)

    def say_at_once(self, payloads: list[bytes]) -> None:
        """Packets that the far end takes one after another, before it answers any."""
        for payload in payloads:
            self._send(next(self._numbers), payload, _SHORT_HEADER | _TWO_BYTE_NUMBER)

    def say_in(self, number: int, payload: bytes, *, first: int = _SHORT_HEADER | _TWO_BYTE_NUMBER) -> None:
        """In a packet of this number; `first`: its first byte, which says how many bytes the number has."""
        self._send(number, payload, first)
        pump(self.honest)

    def _send(self, number: int, payload: bytes, first: int) -> None:
        connection, honest, number_bytes = self.end.core.connection, self.honest, (first & 0x03) + 1
        header = bytes([first]) + connection._peer_cid.cid + number.to_bytes(number_bytes, "big")
        payload = payload.ljust(_LEAST_BYTES - number_bytes, b"\0")
        crypto = connection._cryptos[tls.Epoch.ONE_RTT]
        honest.wire.now += 0.001
        honest.core.receive(crypto.encrypt_packet(header, payload, number), honest.wire.now, 0.02)


def pump(end: QuicEnd) -> None:
    """Sends into the void."""
    while (event := end.core.next_event()) is not None:
        end.events.append(event)
    end.core.datagrams(end.wire.now)


@pytest.mark.parametrize("name", FRAMES)
def test_frame_when_well_formed_then_the_far_end_takes_the_packet(name: str) -> None:
    hostile = HostileMember(dials=True)
    heard_at = hostile.honest.core.heard_at
    hostile.say(FRAMES[name])
    assert hostile.honest.core.heard_at != heard_at


@pytest.mark.fuzz
@pytest.mark.parametrize("dials", [True, False])
def test_link_when_a_member_says_hostile_frames_then_at_most_its_own_link_ends(dials: bool) -> None:
    hostile = HostileMember(dials=dials)
    ended = 0

    def read(payload: bytes) -> None:
        nonlocal hostile, ended
        hostile.say(payload)
        core = hostile.honest.core
        assert len(core.routes) <= 10
        assert len(core.connection._streams) <= 300
        if hostile.honest.ended is not None:
            ended += 1
            hostile = HostileMember(dials=dials)
        hostile.honest.events = [event for event in hostile.honest.events if event is hostile.honest.ended]

    whole = [*FRAMES.values(), b"".join(FRAMES.values())]
    assert fuzz.fuzz(read, whole, inputs=PACKETS, errors=(), growth_bytes=MOST_GROWTH_BYTES) == PACKETS + len(whole)
    assert 0 < ended < PACKETS
