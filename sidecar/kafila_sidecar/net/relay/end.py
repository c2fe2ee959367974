"""This node's end of one channel at the relay: bound by signed requests, and kept. No I/O, no clock.

docs/protocol.md has every byte. The relay's answers need no proof: whatever travels through it is checked end to end,
so a forged one can at most make this end bind again.
"""

import hashlib
import hmac
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.errors import BadDatagram

DATA, BIND, CHALLENGE, BOUND, REFUSED, UNBOUND = 8, 9, 10, 11, 12, 13
HEADER_BYTES = 5  # type and channel, before each relayed datagram
TRANSACTION_BYTES = 8
COOKIE_BYTES = 16
SIGNATURE_BYTES = 16
REFUSALS = {
    1: "the token is not valid, or no longer",
    2: "a newer request holds this end",
    3: "the rendezvous has no room for another channel",
}

FIRST_RETRY_S = 0.1
MOST_DOUBLINGS = 6  # of the first retry; more would be over the largest one
LARGEST_RETRY_S = 5.0  # for as long as the channel is wanted: the rendezvous may come back
HASTY_RETRY_S = 1.0  # the largest for the first requests, since links wait 15 s for a path to come back
HASTY_REQUESTS = 20
KEEP_S = 10.0  # NATs hold UDP for 30 s and more (RFC 4787 REQ-5)
TOKEN_RETRY_S = 5.0
SHORTEST_TOKEN_S = 1.0  # between two wishes for a token, however soon the last one is refused or grows old
LOST_AFTER = 4  # requests in a row without an answer
MOST_CHALLENGES = 3  # answered at once; a relay that goes on challenging is asked again only after a while
_OPEN_REQUESTS = 8
_OPEN_PROBES = 4
_NO_COOKIE = bytes(COOKIE_BYTES)
_SIZES = {CHALLENGE: 1 + TRANSACTION_BYTES + COOKIE_BYTES, BOUND: 1 + TRANSACTION_BYTES + 6, REFUSED: 10}


@dataclass(frozen=True, slots=True)
class Token:
    """From the rendezvous: what to show to the relay, and the key that signs."""

    token: bytes
    key: bytes = field(repr=False)
    ttl_s: float


class RelayEnd:
    """`number` is the channel's once the relay has bound this end. `entropy` gives 8 fresh random bytes."""

    def __init__(self, *, server: Address, entropy: Callable[[], bytes], now: float) -> None:
        self.server = server
        self.number: int | None = None
        self.refusal: str | None = None  # why the relay said no, the last time
        self._entropy = entropy
        self._token: Token | None = None
        self._token_due = now
        self._token_wished_at = now - SHORTEST_TOKEN_S
        self._cookie = _NO_COOKIE
        self._counter = 0
        self._open: deque[bytes] = deque(maxlen=_OPEN_REQUESTS)  # transactions of this step that have no answer
        self._probes: deque[bytes] = deque(maxlen=_OPEN_PROBES)  # transactions of probes that have no answer
        self._unanswered = 0
        self._challenges = 0
        self._due: float | None = None

    @property
    def is_bound(self) -> bool:
        """Whether the relay is known to forward to this end now."""
        return self.number is not None and self._unanswered < LOST_AFTER

    def use(self, token: Token, now: float) -> bytes:
        """Binds with a (newer) token; returns the request."""
        self._token = token
        self._wish_token(now + token.ttl_s / 2)
        return self._bind(now)

    def bind_again(self, now: float) -> list[bytes]:
        """When this node's address may have changed, or the relay has forgotten it; not twice within a short time."""
        if self._token is None or self._unanswered:
            return []
        return [self._bind(now)]

    def bind_anew(self, now: float) -> list[bytes]:
        """On another way to the relay, on which nothing has been asked yet."""
        self._unanswered, self._cookie = 0, _NO_COOKIE
        self._open.clear()
        return [] if self._token is None else [self._bind(now)]

    def probe(self) -> list[bytes]:
        """A request without a cookie: the relay answers it with a challenge, and keeps this end bound as it is."""
        if self._token is None:
            return []
        transaction = self._entropy()
        self._probes.append(transaction)
        return [self._signed(self._token, transaction, _NO_COOKIE)]

    def take_probe(self, datagram: bytes) -> bool:
        """Whether this answers a probe, which has its answer then."""
        transaction = datagram[1 : 1 + TRANSACTION_BYTES]
        if transaction not in self._probes:
            return False
        self._probes.clear()
        return True

    def awaits(self, datagram: bytes) -> bool:
        """Whether this is the relay's answer to a request that has none yet."""
        return datagram[1 : 1 + TRANSACTION_BYTES] in self._open

    def receive(self, datagram: bytes, now: float) -> list[bytes]:
        """Takes an answer that is awaited; raises BadDatagram for one of the wrong size."""
        kind, body = datagram[0], datagram[1 + TRANSACTION_BYTES :]
        if _SIZES.get(kind) != len(datagram):
            raise BadDatagram(f"an answer of type {kind} with {len(datagram)} bytes is none of the relay's")
        self._open.remove(datagram[1 : 1 + TRANSACTION_BYTES])
        if kind == REFUSED and self._open:
            return []  # overtaken by a later request, which is not answered yet
        self._open.clear()
        self._unanswered = 0
        if kind == CHALLENGE:
            return self._challenged(body, now)
        self._challenges = 0
        if kind == REFUSED:
            self._refused(body[0], now)
        else:
            number, lifetime_s = struct.unpack("!IH", body)
            self._bound(number, lifetime_s, now)
        return []

    def next_timer(self) -> float:
        """When `handle_timer` is due."""
        return self._token_due if self._due is None else min(self._due, self._token_due)

    def handle_timer(self, now: float) -> list[bytes]:
        """The request that is due, if one is."""
        return [self._bind(now)] if self._due is not None and self._due <= now else []

    def wants_token(self, now: float) -> bool:
        """True now and then while a (newer) token is wanted, until `use`."""
        if now < self._token_due:
            return False
        self._token_wished_at, self._token_due = now, now + TOKEN_RETRY_S
        return True

    def _bind(self, now: float) -> bytes:
        assert self._token is not None
        transaction = self._entropy()
        self._open.append(transaction)
        largest_s = HASTY_RETRY_S if self._unanswered < HASTY_REQUESTS else LARGEST_RETRY_S
        self._due = now + min(FIRST_RETRY_S * 2 ** min(self._unanswered, MOST_DOUBLINGS), largest_s)
        self._unanswered += 1
        return self._signed(self._token, transaction, self._cookie)

    def _signed(self, token: Token, transaction: bytes, cookie: bytes) -> bytes:
        self._counter += 1
        said = bytes([BIND]) + transaction + struct.pack("!Q", self._counter) + cookie + token.token
        return said + hmac.digest(token.key, said, hashlib.sha256)[:SIGNATURE_BYTES]

    def _wish_token(self, at: float) -> None:
        self._token_due = max(self._token_wished_at + SHORTEST_TOKEN_S, at)

    def _challenged(self, cookie: bytes, now: float) -> list[bytes]:
        self._cookie = cookie
        self._challenges += 1
        if self._challenges > MOST_CHALLENGES:
            self._due = now + LARGEST_RETRY_S
            return []
        return [self._bind(now)]

    def _refused(self, reason: int, now: float) -> None:
        self.refusal = REFUSALS.get(reason, f"the rendezvous refused for reason {reason}")
        self.number = None
        self._due = now + LARGEST_RETRY_S
        if reason != 3:
            self._due = None
            self._wish_token(now)

    def _bound(self, number: int, lifetime_s: int, now: float) -> None:
        self.number, self.refusal = number, None
        self._due = now + max(1.0, min(KEEP_S, lifetime_s / 4))
