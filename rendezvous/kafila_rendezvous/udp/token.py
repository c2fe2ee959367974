"""Tokens for the relay: what one end of a channel may use, and the key that only its holder has.

A token travels in the clear over UDP. Its key does not: it is handed out with the token over gRPC, and signs each
request, so that who reads a token on the way can do nothing with it. The server derives the key again and keeps none.
"""

import hashlib
import hmac
import itertools
import struct
from dataclasses import dataclass

from kafila_rendezvous.errors import Malformed

_LAYOUT = struct.Struct("!QIIBQdI")
TOKEN_BYTES = _LAYOUT.size
KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token says. `serial` is the room's, never given twice, `low` and `high` the pair's mailboxes."""

    serial: int
    low: int
    high: int
    side: int  # 0: the end of `low`
    issue: int  # rises with each token
    expires: float  # in the server's own time
    bytes_per_s: int

    @property
    def pair(self) -> tuple[int, int, int]:
        return self.serial, self.low, self.high


class Tokens:
    """`secret` is fresh for each server, so that nothing outlives it."""

    def __init__(self, *, secret: bytes, ttl_s: float, bytes_per_s: int) -> None:
        self.ttl_s = ttl_s
        self.bytes_per_s = bytes_per_s
        self._secret = secret
        self._issues = itertools.count(1)

    def issue(self, *, serial: int, mailbox: int, peer: int, now: float) -> tuple[bytes, bytes]:
        """A token for `mailbox`'s end of its channel with `peer`, and the token's key."""
        low, high = sorted((mailbox, peer))
        side = int(mailbox == high)
        token = _LAYOUT.pack(serial, low, high, side, next(self._issues), now + self.ttl_s, self.bytes_per_s)
        return token, self.key_of(token)

    def key_of(self, token: bytes) -> bytes:
        """The key that goes with a token, whoever made it; a forged token's key is known to nobody but the server."""
        return hmac.digest(self._secret, b"kafila relay token\0" + token, hashlib.sha256)

    @staticmethod
    def read(token: bytes) -> Grant:
        """Raises Malformed. What it says counts only after a signature by `key_of` was checked."""
        if len(token) != TOKEN_BYTES:
            raise Malformed(f"a relay token of {len(token)} bytes, not {TOKEN_BYTES}")
        return Grant(*_LAYOUT.unpack(token))
