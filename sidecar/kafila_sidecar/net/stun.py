"""STUN messages of the connectivity checks (RFC 8489): building, and parsing that survives hostile bytes.

The codec is aioice's. A check is a Binding request with USERNAME, PRIORITY, MESSAGE-INTEGRITY and FINGERPRINT; when
the sender chose this path it adds USE-CANDIDATE and its rising number in ICE-CONTROLLING. RING.md has every byte.
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass

from aioice.stun import Class, Message, Method, parse_message

from kafila_sidecar.net.candidates import Address, is_usable
from kafila_sidecar.net.errors import BadDatagram

MAX_STUN_BYTES = 9000  # a check that is padded to try a size
_SIGNATURE_BYTES = 32  # MESSAGE-INTEGRITY and FINGERPRINT
_ATTRIBUTE_HEADER_BYTES = 4
DIALLER = "d"  # the end with the lower fingerprint; it dials QUIC and chooses the path
LISTENER = "l"


@dataclass(frozen=True, slots=True)
class PairSecret:
    """What two members of one session share for their checks, derived by both from the session's key."""

    name: bytes  # 8 bytes; opaque to anybody without the key, different for each session and pair
    key: bytes  # 32 bytes, for MESSAGE-INTEGRITY


def pair_secret(session: bytes, key: bytes, one: bytes, other: bytes) -> PairSecret:
    """`one` and `other` are the two certificates' fingerprints, in any order."""
    low, high = sorted((one, other))
    context = struct.pack("!H", len(session)) + session + low + high
    name = hmac.digest(key, b"kafila check name\0" + context, hashlib.sha256)
    return PairSecret(name[:8], hmac.digest(key, b"kafila check key\0" + context, hashlib.sha256))


def parse(datagram: bytes) -> Message:
    """Raises BadDatagram for whatever is not a whole STUN message."""
    if len(datagram) > MAX_STUN_BYTES:
        raise BadDatagram(f"a STUN message of {len(datagram)} bytes is over {MAX_STUN_BYTES} bytes")
    try:
        return parse_message(datagram)
    except (ValueError, struct.error, IndexError) as error:  # UnicodeDecodeError is a ValueError
        raise BadDatagram(f"a datagram of {len(datagram)} bytes is not STUN: {error}") from error


def request(
    secret: PairSecret, role: str, priority: int, transaction: bytes, nomination: int | None, size_bytes: int = 0
) -> bytes:
    """A check. `nomination` is the dialler's rising number when it has chosen this path.

    With `size_bytes`, a multiple of 4, zeros in DATA make the datagram that large.
    """
    attributes: dict[str, object] = {"USERNAME": f"{secret.name.hex()}:{role}", "PRIORITY": priority}
    if nomination is not None:
        attributes["USE-CANDIDATE"] = None
        attributes["ICE-CONTROLLING"] = nomination
    message = Message(Method.BINDING, Class.REQUEST, transaction, attributes)
    padding = size_bytes - len(bytes(message)) - _SIGNATURE_BYTES - _ATTRIBUTE_HEADER_BYTES
    if padding > 0:
        attributes["DATA"] = bytes(padding)
    message.add_message_integrity(secret.key)
    return bytes(message)


def answer(secret: PairSecret, asked: Message, source: Address) -> bytes:
    """The response to an authenticated check that came from `source`."""
    message = Message(Method.BINDING, Class.RESPONSE, asked.transaction_id, {"XOR-MAPPED-ADDRESS": source})
    message.add_message_integrity(secret.key)
    return bytes(message)


def is_request(message: Message) -> bool:
    return message.message_method is Method.BINDING and message.message_class is Class.REQUEST


def is_answer(message: Message) -> bool:
    return message.message_method is Method.BINDING and message.message_class is Class.RESPONSE


def mapped_address(message: Message) -> Address | None:
    """Where the sender of an answer saw us; None where it says nothing, or an address that nobody can have."""
    return _usable(message.attributes.get("XOR-MAPPED-ADDRESS"))


def other_address(message: Message) -> Address | None:
    """A server's other place (RFC 5780 section 7.4), likewise."""
    return _usable(message.attributes.get("OTHER-ADDRESS"))


def pair_name(message: Message) -> str:
    """The pair that a request's USERNAME names, in hex; empty when it names none."""
    username = message.attributes.get("USERNAME", "")
    return str(username).partition(":")[0]


def sender_role(message: Message) -> str:
    return str(message.attributes.get("USERNAME", "")).partition(":")[2]


def _usable(address: Address | None) -> Address | None:
    return address if address is not None and is_usable(address) else None
