"""STUN answers (RFC 8489) that tell a caller how its NAT behaves (RFC 5780). No I/O, no clock.

The server has one or two addresses, each with two ports. A caller sees by the mapped addresses in the answers whether
its NAT maps by destination, and asks with CHANGE-REQUEST for an answer from elsewhere to see what its NAT lets in.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from aioice.stun import ATTRIBUTES_BY_TYPE, COOKIE, HEADER_LENGTH, Class, Message, Method, parse_message

from kafila_rendezvous.address import Address, limited
from kafila_rendezvous.errors import LimitReached, Malformed
from kafila_rendezvous.pace import Pace

LARGEST_REQUEST_BYTES = 548  # RFC 8489 section 6.1: what fits into IPv4's least packet
CHANGE_ADDRESS = 0x4  # RFC 5780 section 7.2
CHANGE_PORT = 0x2

_CHANGE_REQUEST = 0x0003
_FIRST_OPTIONAL = 0x8000  # RFC 8489 section 14: attributes from here on may be ignored
_UNKNOWN_ATTRIBUTE = 420
_KNOWN = {kind for kind in ATTRIBUTES_BY_TYPE if kind < _FIRST_OPTIONAL}


class SocketPlace(NamedTuple):
    """One of the server's sockets: which of its addresses, which of its ports."""

    address: int
    port: int


class StunAnswer(NamedTuple):
    """A datagram, and the socket that it leaves from."""

    datagram: bytes
    place: SocketPlace


class Stun:
    """`addresses` are the server's, "" for one that it doesn't know (it listens on all); `ports` the same at each."""

    def __init__(self, *, addresses: Sequence[str], ports: Sequence[int], pace: Pace) -> None:
        self._addresses = addresses
        self._ports = ports
        self._pace = pace

    def receive(self, datagram: bytes, source: Address, place: SocketPlace, now: float) -> StunAnswer:
        """Answers a Binding request that came to the socket `place`.

        Raises Malformed for what is none, and LimitReached when its sender asks too often; neither is answered.
        """
        if not self._pace.allows(limited(source[0]), now):
            raise LimitReached("STUN requests come too fast from this address")
        request = _parse(datagram)
        change = request.attributes.get("CHANGE-REQUEST", 0)
        unknown = _unknown_attributes(datagram) or ([] if self._can(change) else [_CHANGE_REQUEST])
        if unknown:
            return StunAnswer(_refusal(request, unknown), place)
        leaves = self._changed(place, change)
        return StunAnswer(bytes(self._response(request, source, place, leaves)), leaves)

    def _can(self, change: int) -> bool:
        return (not change & CHANGE_ADDRESS or len(self._addresses) > 1) and (
            not change & CHANGE_PORT or len(self._ports) > 1
        )

    def _changed(self, place: SocketPlace, change: int) -> SocketPlace:
        return SocketPlace(
            address=1 - place.address if change & CHANGE_ADDRESS else place.address,
            port=1 - place.port if change & CHANGE_PORT else place.port,
        )

    def _response(self, request: Message, source: Address, place: SocketPlace, leaves: SocketPlace) -> Message:
        attributes: dict[str, object] = {"XOR-MAPPED-ADDRESS": source}
        if self._addresses[leaves.address]:
            attributes["RESPONSE-ORIGIN"] = self._at(leaves)
        if len(self._addresses) > 1 and len(self._ports) > 1:  # RFC 5780 section 7.4: only with a second address
            attributes["OTHER-ADDRESS"] = self._at(SocketPlace(1 - place.address, 1 - place.port))
        response = Message(Method.BINDING, Class.RESPONSE, request.transaction_id, attributes)
        if "FINGERPRINT" in request.attributes:
            response.add_fingerprint()
        return response

    def _at(self, place: SocketPlace) -> Address:
        return self._addresses[place.address], self._ports[place.port]


def _parse(datagram: bytes) -> Message:
    if not HEADER_LENGTH <= len(datagram) <= LARGEST_REQUEST_BYTES:
        raise Malformed(f"a STUN request of {len(datagram)} bytes")
    if datagram[4:8] != COOKIE.to_bytes(4, "big"):
        raise Malformed("a STUN request without the magic cookie")
    try:
        message = parse_message(datagram)
    except (ValueError, struct.error, IndexError) as error:  # UnicodeDecodeError is a ValueError
        raise Malformed(f"a datagram of {len(datagram)} bytes is not STUN: {error}") from error
    if message.message_method is not Method.BINDING or message.message_class is not Class.REQUEST:
        raise Malformed("a STUN message that is no Binding request")
    return message


def _unknown_attributes(datagram: bytes) -> list[int]:
    """Attributes that must be understood and are not (RFC 8489 section 6.3.1), in a message that was parsed."""
    unknown, at = [], HEADER_LENGTH
    while at + 4 <= len(datagram):
        kind, size = struct.unpack_from("!HH", datagram, at)
        if kind < _FIRST_OPTIONAL and kind not in _KNOWN and kind not in unknown:
            unknown.append(kind)
        at += 4 + (size + 3) // 4 * 4
    return unknown


def _refusal(request: Message, unknown: Sequence[int]) -> bytes:
    """Error 420 with UNKNOWN-ATTRIBUTES (RFC 8489 section 14.13), which aioice doesn't know."""
    error = Message(
        Method.BINDING, Class.ERROR, request.transaction_id, {"ERROR-CODE": (_UNKNOWN_ATTRIBUTE, "Unknown")}
    )
    named = unknown[:4]
    body = bytes(error)[HEADER_LENGTH:]
    body += struct.pack("!HH", 0x000A, 2 * len(named)) + struct.pack(f"!{len(named)}H", *named)
    body += bytes(-len(body) % 4)
    head = struct.pack("!HHI12s", Method.BINDING | Class.ERROR, len(body), COOKIE, request.transaction_id)
    return head + body
