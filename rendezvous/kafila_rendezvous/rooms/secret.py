"""Mailboxes' secrets, which the server knows again after a restart, without having kept anything.

A secret is the room's serial, and a MAC over it with the numbers of room and mailbox. Whoever shows one had that
mailbox, so it gets it back.
"""

import hashlib
import hmac
import struct

_SERIAL = struct.Struct("!Q")
_SAID = struct.Struct("!QII")
_MAC_BYTES = 24
SECRET_BYTES = _SERIAL.size + _MAC_BYTES


class Secrets:
    """`key` is the server's own, and the same in each of its runs if secrets shall outlive it."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make(self, *, serial: int, room: int, mailbox: int) -> bytes:
        """`SECRET_BYTES` long; `serial` has 64 bits."""
        said = _SAID.pack(serial, room, mailbox)
        mac = hmac.digest(self._key, b"kafila mailbox secret\0" + said, hashlib.sha256)
        return _SERIAL.pack(serial) + mac[:_MAC_BYTES]

    def serial_in(self, secret: bytes, *, room: int, mailbox: int) -> int | None:
        """The room's serial in a secret of this mailbox; None if that is none of ours."""
        if len(secret) != SECRET_BYTES:
            return None
        (serial,) = _SERIAL.unpack_from(secret)
        is_ours = hmac.compare_digest(secret, self.make(serial=serial, room=room, mailbox=mailbox))
        return int(serial) if is_ours else None


def key_from(private_key_pem: bytes) -> bytes:
    """The key for `Secrets` that goes with the server's certificate, and lasts as long as it."""
    return hmac.digest(private_key_pem, b"kafila mailbox secrets", hashlib.sha256)
