"""A fresh session key for those who are left after a removal, wrapped for each of them alone; see ring.proto."""

import hashlib
import struct
from collections.abc import Iterable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from google.protobuf.message import DecodeError

from kafila_proto import ring_pb2
from kafila_sidecar.errors import Denied, InvalidInput
from kafila_sidecar.session.membership.agreement import derive, exchange
from kafila_sidecar.session.membership.members import Member
from kafila_sidecar.session.membership.seal import KEY_BYTES, NONCE_BYTES, Entropy

LARGEST_REKEY_BYTES = 8 * 1024

_ONCE = bytes(NONCE_BYTES)  # each wrapping key wraps once


def wrap(key: bytes, *, session: bytes, number: int, readers: Iterable[Member], entropy: Entropy) -> bytes:
    """A `Rekey` by which the readers, and nobody else, learn the session's key of this number."""
    ephemeral = X25519PrivateKey.from_private_bytes(entropy(32))
    public = ephemeral.public_key().public_bytes_raw()
    message = ring_pb2.Rekey(ephemeral=public)
    for reader in readers:
        shared = exchange(ephemeral, reader.agreement)
        cipher = _cipher(shared, session, number, public, reader.agreement)
        message.keys.add(member=reader.index, sealed=cipher.encrypt(_ONCE, key, None))
    return message.SerializeToString()


def unwrap(data: bytes, *, session: bytes, number: int, own: X25519PrivateKey, index: int) -> bytes:
    """The session's key, 32 bytes, for the member that the log entry `index` admitted.

    Raises Denied when nothing is wrapped for this member, InvalidInput for nonsense.
    """
    if len(data) > LARGEST_REKEY_BYTES:
        raise InvalidInput(f"a session's new key in {len(data)} bytes is over {LARGEST_REKEY_BYTES} bytes")
    try:
        message = ring_pb2.Rekey.FromString(data)
    except DecodeError as error:
        raise InvalidInput("a session's new key can't be read") from error
    sealed = next((wrapped.sealed for wrapped in message.keys if wrapped.member == index), b"")
    shared = exchange(own, message.ephemeral)
    cipher = _cipher(shared, session, number, message.ephemeral, own.public_key().public_bytes_raw())
    try:
        key = cipher.decrypt(_ONCE, sealed, None)
    except InvalidTag as error:
        raise Denied("a session's new key is not wrapped for this member") from error
    if len(key) != KEY_BYTES:
        raise InvalidInput(f"a session's new key has {len(key)} bytes, not {KEY_BYTES}")
    return key


def digest(data: bytes) -> bytes:
    """What the log entry says of its `Rekey`, 32 bytes."""
    return hashlib.sha256(data).digest()


def _cipher(shared: bytes, session: bytes, number: int, ephemeral: bytes, agreement: bytes) -> ChaCha20Poly1305:
    info = b"kafila rekey" + session + struct.pack(">I", number) + ephemeral + agreement
    return ChaCha20Poly1305(derive(shared, info, KEY_BYTES))
