"""All of a node's relay channels, so that "by way of the relay" is one more address to send to. No I/O, no clock.

A channel is a *path*: a made-up address of the discard-only block 100::/64 (RFC 6666), which no network carries.
Whoever sends to a path wraps the datagrams for the relay; whatever comes out of a channel has its path as source.
Checks, QUIC and the choice of the best address need not know more.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafila_sidecar.net.candidates import LARGEST_LOCAL, RELAYED, Address, Candidate, priority
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.relay.end import (
    BOUND,
    CHALLENGE,
    DATA,
    HEADER_BYTES,
    REFUSED,
    UNBOUND,
    RelayEnd,
    Token,
)

FIRST_BYTES = range(8, 16)  # of the relay's datagrams; RFC 9443 leaves these free
_PREFIX = "100::"
_PATH_PORT, _STREAM_PORT = 1, 2


@dataclass(frozen=True, slots=True)
class Send:
    """To the relay: a datagram of its own protocol."""

    datagram: bytes
    server: Address


@dataclass(frozen=True, slots=True)
class Deliver:
    """From the peer at the other end of `path`."""

    datagram: bytes
    path: Address


@dataclass(frozen=True, slots=True)
class ChannelBound:
    """The relay forwards on this path from now on: `candidate(path)` can be checked."""

    path: Address


@dataclass(frozen=True, slots=True)
class NeedToken:
    """Ask the rendezvous for a token for this path and pass it to `use`; said again after a while."""

    path: Address


@dataclass(frozen=True, slots=True)
class RelayHeard:
    """The relay keeps this path bound as it was, and answers on the way by which its requests go."""

    path: Address


@dataclass(frozen=True, slots=True)
class RelayProved:
    """The relay answered a probe."""

    path: Address


Output = Send | Deliver | ChannelBound | NeedToken | RelayHeard | RelayProved


class RelayClient:
    """`entropy` gives 8 fresh random bytes."""

    def __init__(self, entropy: Callable[[], bytes]) -> None:
        self._entropy = entropy
        self._ends: dict[Address, RelayEnd] = {}
        self._by_number: dict[tuple[Address, int], Address] = {}
        self._numbers = itertools.count(1)

    def open(self, server: Address, now: float) -> Address:
        """A new channel's path; `handle_timer`, due at once, asks for its token. `server`: the relay's address."""
        path = (f"{_PREFIX}{next(self._numbers):x}", _PATH_PORT)
        self._ends[path] = RelayEnd(server=server, entropy=self._entropy, now=now)
        return path

    def use(self, path: Address, token: Token, now: float) -> list[Output]:
        """The token that was asked for; nothing happens when the channel was closed meanwhile."""
        end = self._ends.get(path)
        return [Send(end.use(token, now), end.server)] if end else []

    def move(self, path: Address, server: Address, now: float) -> list[Output]:
        """Reaches the relay at another address from now on: by a stream, or by UDP again."""
        end = self._ends.get(path)
        if end is None:
            return []
        self._forget_number(end)
        end.server, end.number = server, None
        return [Send(datagram, server) for datagram in end.bind_anew(now)]

    def ask(self, path: Address, now: float) -> list[Output]:
        """Binds again, since it is doubted whether the relay still answers."""
        end = self._ends.get(path)
        return [Send(datagram, end.server) for datagram in end.bind_again(now)] if end else []

    def probe(self, path: Address, server: Address) -> list[Output]:
        """Asks the relay at an address that is not the one in use; nothing changes by it."""
        end = self._ends.get(path)
        return [Send(datagram, server) for datagram in end.probe()] if end else []

    def close(self, path: Address) -> None:
        """The relay forgets its end when it is not bound again."""
        if end := self._ends.pop(path, None):
            self._forget_number(end)

    def bind_again(self, now: float) -> list[Output]:
        """All channels, when this node's network has changed."""
        return [Send(datagram, end.server) for end in self._ends.values() for datagram in end.bind_again(now)]

    def bind_anew(self, server: Address, now: float) -> list[Output]:
        """All channels at this address of a relay, which knows nothing of what was asked before."""
        ends = [end for end in self._ends.values() if end.server == server]
        return [Send(datagram, server) for end in ends for datagram in end.bind_anew(now)]

    def wrap(self, datagrams: Sequence[bytes], path: Address) -> tuple[list[bytes], Address] | None:
        """Datagrams for the relay and its address; None while the path is not bound: they are lost."""
        end = self._ends.get(path)
        if end is None or end.number is None:
            return None
        header = bytes([DATA]) + end.number.to_bytes(4, "big")
        return [header + datagram for datagram in datagrams], end.server

    def receive(self, datagram: bytes, source: Address, now: float) -> list[Output]:
        """Takes a datagram whose first byte is in `FIRST_BYTES`; raises BadDatagram for what is not the relay's."""
        kind = datagram[0]
        if kind == DATA:
            return [Deliver(datagram[HEADER_BYTES:], self._path_of(datagram, source))]
        if kind == UNBOUND and len(datagram) == HEADER_BYTES:
            end = self._ends[self._path_of(datagram, source)]
            return [Send(request, end.server) for request in end.bind_again(now)]
        if kind not in (CHALLENGE, BOUND, REFUSED):
            raise BadDatagram(f"a datagram of type {kind} from {source[0]} is not the relay's")
        return self._answered(datagram, source, now)

    def next_timer(self) -> float | None:
        """When `handle_timer` is due."""
        return min((end.next_timer() for end in self._ends.values()), default=None)

    def handle_timer(self, now: float) -> list[Output]:
        """Requests and wishes that are due."""
        out: list[Output] = []
        for path, end in self._ends.items():
            out += [Send(datagram, end.server) for datagram in end.handle_timer(now)]
            out += [NeedToken(path)] if end.wants_token(now) else []
        return out

    def describe(self, path: Address) -> str:
        """How the channel stands, for people."""
        end = self._ends.get(path)
        if end is None:
            return "the relay is not used"
        if end.is_bound:
            return "the relay is ready"
        return f"the relay refused: {end.refusal}" if end.refusal else "the relay does not answer"

    def _answered(self, datagram: bytes, source: Address, now: float) -> list[Output]:
        for path, end in self._ends.items():
            if end.take_probe(datagram):
                return [RelayProved(path)]
            if end.server != source or not end.awaits(datagram):
                continue
            before = end.number
            self._forget_number(end)
            out: list[Output] = [Send(request, source) for request in end.receive(datagram, now)]
            if end.number is not None:
                self._by_number[source, end.number] = path
            if end.number is not None and not out:
                out.append(RelayHeard(path) if end.number == before else ChannelBound(path))
            return out
        raise BadDatagram(f"a datagram from {source[0]} answers no request to a relay")

    def _path_of(self, datagram: bytes, source: Address) -> Address:
        path = self._by_number.get((source, int.from_bytes(datagram[1:HEADER_BYTES], "big")))
        if path is None or len(datagram) < HEADER_BYTES:
            raise BadDatagram(f"a relayed datagram from {source[0]} for a channel that this node has not bound there")
        return path

    def _forget_number(self, end: RelayEnd) -> None:
        if end.number is not None:
            self._by_number.pop((end.server, end.number), None)


def is_path(address: Address) -> bool:
    """Whether this is a channel's made-up address."""
    return address[1] == _PATH_PORT and address[0].startswith(_PREFIX)


def is_stream(address: Address) -> bool:
    """Whether this stands for a relay that is reached by a stream."""
    return address[1] == _STREAM_PORT and address[0].startswith(_PREFIX)


def stream_server(number: int) -> Address:
    """A made-up address for the relay at the other end of stream `number`, to `open` or `move` channels to."""
    return f"{_PREFIX}{number:x}", _STREAM_PORT


def candidate(path: Address) -> Candidate:
    """The path as a candidate of the peer's, for this node only; it is never announced."""
    return Candidate(RELAYED, *path, priority(RELAYED, LARGEST_LOCAL))
