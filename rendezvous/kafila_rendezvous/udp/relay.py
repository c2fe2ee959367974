"""The relay: carries opaque datagrams between the two ends of a channel, where members can't reach each other.

No I/O, no clock. A member binds its address to its end of a channel by a signed request (docs/protocol.md): the cookie
proves that the address is the sender's before anything is kept, the token says which end and how much, and a number
that rises lets nobody bind an older address again. What the datagrams hold is the members' own, encrypted end to end.
"""

import hashlib
import hmac
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kafila_rendezvous.address import limited
from kafila_rendezvous.config import RendezvousLimits
from kafila_rendezvous.errors import LimitReached, Malformed
from kafila_rendezvous.holdings import Holdings
from kafila_rendezvous.pace import Pace
from kafila_rendezvous.udp.rate import Bucket, SharedBuckets
from kafila_rendezvous.udp.token import TOKEN_BYTES, Grant, Tokens

DATA, BIND, CHALLENGE, BOUND, REFUSED, UNBOUND = 8, 9, 10, 11, 12, 13  # free between STUN and DTLS by RFC 9443
HEADER_BYTES = 5  # type and channel, before each relayed datagram

TRANSACTION_BYTES = 8
COOKIE_BYTES = 16
SIGNATURE_BYTES = 16
COOKIE_WINDOW_S = 30.0

BAD_TOKEN, OLD_NUMBER, NO_ROOM = 1, 2, 3  # why a request is refused

_BIND_BYTES = 1 + TRANSACTION_BYTES + 8 + COOKIE_BYTES + TOKEN_BYTES + SIGNATURE_BYTES

Source = tuple[str, int] | tuple[str, int, int, int]
"""Who sent a datagram: a socket's address, or for a stream its IP address and a number above all ports."""

K = TypeVar("K")

Sending = tuple[bytes | memoryview, Source]


@dataclass(slots=True)
class BoundEnd:
    """One member's end of a channel, at the address that it bound last."""

    source: Source
    owner: str  # whom the limits count
    order: tuple[int, int]  # token, then number within it
    bound_at: float
    own: Bucket
    shared: tuple[Bucket, ...]  # with the other ends of its address, and of the networks around it

    def takes(self, size: int, now: float) -> bool:
        """Counts a datagram; False when it is too much for the end or for where it is."""
        buckets = (self.own, *self.shared)
        if not all(bucket.has(size, now) for bucket in buckets):
            return False
        for bucket in buckets:
            bucket.take(size)
        return True


@dataclass(slots=True)
class RelayChannel:
    """Between two mailboxes of one room; `number` stands at the start of each of its datagrams."""

    number: int
    ends: list[BoundEnd | None] = field(default_factory=lambda: [None, None])


EndKey = tuple[tuple[int, int, int], int]  # pair, side


class Relay:
    """All channels of one server. `entropy(n)` gives n random bytes."""

    def __init__(
        self, *, tokens: Tokens, limits: RendezvousLimits, pace: Pace, entropy: Callable[[int], bytes]
    ) -> None:
        self.carried_bytes = 0  # of what went from one end to the other
        self.dropped = 0  # datagrams over an end's budget, or for an end that is not bound
        self._tokens = tokens
        self._limits = limits
        self._pace = pace
        self._entropy = entropy
        self._cookie_key = entropy(32)
        self._channels: dict[tuple[int, int, int], RelayChannel] = {}
        self._numbers: set[int] = set()
        self._routes: dict[tuple[int, Source], tuple[RelayChannel, int]] = {}
        self._bound: OrderedDict[EndKey, BoundEnd] = OrderedDict()  # the longest unheard of first
        self._by_owner = Holdings(limits.relay_ends_per_address)
        self._rates = SharedBuckets(limits.relay_bytes_per_address_and_s, self._by_owner)
        self._by_room: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._channels)

    def receive(self, datagram: bytes | memoryview, source: Source, now: float) -> Sending | None:
        """Takes one datagram; what is to be sent for it, if anything.

        Raises Malformed for what is no datagram of this protocol, LimitReached when its sender asks too often.
        """
        kind = datagram[0] if len(datagram) else 0
        if kind == DATA:
            return self._carry(datagram, source, now)
        if kind != BIND or len(datagram) != _BIND_BYTES:
            raise Malformed(f"a datagram of type {kind} with {len(datagram)} bytes is nothing for the relay")
        self._pay(source, now)
        return self._bind(bytes(datagram), source, now), source

    def next_timer(self) -> float | None:
        """When `handle_timer` is due, in the time of `now`."""
        longest = next(iter(self._bound.values()), None)
        return None if longest is None else longest.bound_at + self._limits.relay_idle_s

    def handle_timer(self, now: float) -> None:
        """Forgets the ends that were not bound again for too long."""
        while (due := self.next_timer()) is not None and due <= now:
            self._forget(next(iter(self._bound)), now)

    # ---- Datagrams

    def _carry(self, datagram: bytes | memoryview, source: Source, now: float) -> Sending | None:
        if len(datagram) <= HEADER_BYTES:
            raise Malformed("a relayed datagram without content")
        number = int.from_bytes(datagram[1:HEADER_BYTES], "big")
        route = self._routes.get((number, source))
        if route is None:
            self._pay(source, now)
            return struct.pack("!BI", UNBOUND, number), source
        channel, side = route
        end, other = channel.ends[side], channel.ends[1 - side]
        if end is None or other is None or not end.takes(len(datagram), now):
            self.dropped += 1
            return None
        self.carried_bytes += len(datagram) - HEADER_BYTES
        return datagram, other.source

    def _pay(self, source: Source, now: float) -> None:
        if not self._pace.allows(limited(source[0]), now):
            raise LimitReached("relay requests come too fast from this address")

    # ---- Binding

    def _bind(self, datagram: bytes, source: Source, now: float) -> bytes:
        """The answer to a request: challenge, bound, or refused."""
        transaction = datagram[1 : 1 + TRANSACTION_BYTES]
        at = 1 + TRANSACTION_BYTES
        (number,) = struct.unpack_from("!Q", datagram, at)
        cookie = datagram[at + 8 : at + 8 + COOKIE_BYTES]
        if not self._is_cookie(cookie, source, now):
            return bytes([CHALLENGE]) + transaction + self._cookie(source, now)
        token = datagram[at + 8 + COOKIE_BYTES : -SIGNATURE_BYTES]
        signature = sign(self._tokens.key_of(token), datagram[:-SIGNATURE_BYTES])
        grant = self._tokens.read(token)
        if not hmac.compare_digest(signature, datagram[-SIGNATURE_BYTES:]) or grant.expires <= now:
            return _refused(transaction, BAD_TOKEN)
        return self._take(grant, number, source, transaction, now)

    def _take(self, grant: Grant, number: int, source: Source, transaction: bytes, now: float) -> bytes:
        known = self._bound.get((grant.pair, grant.side))
        if known is not None and (grant.issue, number) <= known.order:
            return _refused(transaction, OLD_NUMBER)
        owner = limited(source[0])
        if self._is_other_end(grant, source) or not self._has_room(grant, owner, known):
            return _refused(transaction, NO_ROOM)
        channel = self._place(grant, number, source, owner, now)
        lifetime_s = min(int(self._limits.relay_idle_s), 0xFFFF)
        return bytes([BOUND]) + transaction + struct.pack("!IH", channel.number, lifetime_s)

    def _is_other_end(self, grant: Grant, source: Source) -> bool:
        """Whether this very address holds the channel's other end, so that who sends could not be told."""
        other = self._bound.get((grant.pair, 1 - grant.side))
        return other is not None and other.source == source

    def _has_room(self, grant: Grant, owner: str, known: BoundEnd | None) -> bool:
        limits = self._limits
        is_new = grant.pair not in self._channels
        return (
            (not is_new or len(self._channels) < limits.relay_channels)
            and (not is_new or self._by_room[grant.serial] < limits.relay_channels_per_room)
            and ((known is not None and known.owner == owner) or self._by_owner.has_room(owner))
        )

    def _place(self, grant: Grant, number: int, source: Source, owner: str, now: float) -> RelayChannel:
        """Puts the end where its member is now; a budget that is running stays."""
        key = (grant.pair, grant.side)
        before = self._bound.get(key)
        channel = self._channels.get(grant.pair) or self._open(grant)
        if before is not None:
            del self._routes[channel.number, before.source]
            self._by_owner.remove(before.owner)
        end = BoundEnd(
            source=source,
            owner=owner,
            order=(grant.issue, number),
            bound_at=now,
            own=before.own if before else Bucket(grant.bytes_per_s, now),
            shared=self._rates.of(owner, now),
        )
        channel.ends[grant.side] = self._bound[key] = end
        self._bound.move_to_end(key)
        self._by_owner.add(owner)
        if before is not None:
            self._rates.left(before.owner, now)
        self._routes[channel.number, source] = (channel, grant.side)
        return channel

    def _open(self, grant: Grant) -> RelayChannel:
        number = int.from_bytes(self._entropy(4), "big")
        while number in self._numbers:
            number = int.from_bytes(self._entropy(4), "big")
        self._numbers.add(number)
        self._by_room[grant.serial] += 1
        channel = self._channels[grant.pair] = RelayChannel(number)
        return channel

    def _forget(self, key: EndKey, now: float) -> None:
        pair, side = key
        end, channel = self._bound.pop(key), self._channels[pair]
        channel.ends[side] = None
        self._routes.pop((channel.number, end.source), None)
        self._by_owner.remove(end.owner)
        self._rates.left(end.owner, now)
        if channel.ends == [None, None]:
            del self._channels[pair]
            self._numbers.discard(channel.number)
            _less(self._by_room, pair[0])

    # ---- Cookies

    def _cookie(self, source: Source, at: float) -> bytes:
        said = f"{int(at // COOKIE_WINDOW_S)} {source!r}".encode()
        return hmac.digest(self._cookie_key, said, hashlib.sha256)[:COOKIE_BYTES]

    def _is_cookie(self, cookie: bytes, source: Source, now: float) -> bool:
        """This window's or the one before."""
        windows = (now, now - COOKIE_WINDOW_S)
        return any(hmac.compare_digest(cookie, self._cookie(source, at)) for at in windows)


def sign(key: bytes, said: bytes) -> bytes:
    """The signature at the end of a request to bind."""
    return hmac.digest(key, said, hashlib.sha256)[:SIGNATURE_BYTES]


def _refused(transaction: bytes, reason: int) -> bytes:
    return bytes([REFUSED]) + transaction + bytes([reason])


def _less(counts: Counter[K], key: K) -> None:
    """Counts one down, and keeps no zeros."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
