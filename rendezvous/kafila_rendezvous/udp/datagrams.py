"""The datagram driver: STUN and relay on the server's UDP sockets, and the relay on streams for who has no UDP."""

import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import Callable, Mapping

from kafila_rendezvous.address import limited, plain
from kafila_rendezvous.config import WILDCARDS, RendezvousConfig, RendezvousLimits
from kafila_rendezvous.errors import CannotServe, LimitReached, RendezvousError
from kafila_rendezvous.holdings import Holdings
from kafila_rendezvous.udp.relay import Relay, Sending, Source
from kafila_rendezvous.udp.stun import SocketPlace, Stun

logger = logging.getLogger(__name__)

BUFFER_BYTES = 4 << 20  # asked of the kernel
DRAIN_DATAGRAMS = 64  # per wake-up of a socket
LARGEST_PORT = 65_535
LARGEST_DATAGRAM_BYTES = 65_507  # of UDP over IPv4

_FIRST_STREAM = LARGEST_PORT + 1
_RELAYS = SocketPlace(0, 0)
_STUN_LAST = 3  # RFC 9443: the first byte of STUN messages is at most this
_TRIES = 20  # at a free port whose neighbour is free as well

Sockets = Mapping[SocketPlace, socket.socket]


class Datagrams:
    """Runs from construction until `close`."""

    def __init__(self, sockets: Sockets, *, stun: Stun, relay: Relay, limits: RendezvousLimits) -> None:
        self.refused = 0  # datagrams that were not answered
        self._sockets = sockets
        self._stun = stun
        self._relay = relay
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray(LARGEST_DATAGRAM_BYTES)
        self._view = memoryview(self._buffer)
        self._streams: dict[Source, Callable[[bytes], None]] = {}
        self._stream_numbers = itertools.count(_FIRST_STREAM)
        self._streams_by_owner = Holdings(limits.relay_streams_per_address)
        for place, sock in sockets.items():
            self._loop.add_reader(sock, self._readable, sock, place)

    def close(self) -> None:
        for sock in self._sockets.values():
            self._loop.remove_reader(sock)
            sock.close()
        if self._timer:
            self._timer.cancel()

    # ---- Streams

    def open_stream(self, host: str, deliver: Callable[[bytes], None]) -> Source:
        """A stream from the IP address `host`. Raises LimitReached when that has too many."""
        owner = limited(host)
        if not self._streams_by_owner.has_room(owner):
            raise LimitReached(f"your address has {self._limits.relay_streams_per_address} relay streams open already")
        source = (host, next(self._stream_numbers))
        self._streams[source] = deliver
        self._streams_by_owner.add(owner)
        return source

    def receive(self, datagram: bytes, source: Source) -> None:
        """One datagram of a stream; what no datagram could hold is dropped."""
        if 0 < len(datagram) <= LARGEST_DATAGRAM_BYTES:
            self._take(datagram, source)

    def close_stream(self, source: Source) -> None:
        del self._streams[source]
        self._streams_by_owner.remove(limited(source[0]))

    # ---- Private

    def _readable(self, sock: socket.socket, place: SocketPlace) -> None:
        for _ in range(DRAIN_DATAGRAMS):
            try:
                size, source = sock.recvfrom_into(self._buffer)
            except BlockingIOError:
                return
            except OSError as error:  # an ICMP error of an earlier datagram, told on this socket
                logger.debug("receive_error error=%s", error)
                continue
            if not size:
                continue
            if self._buffer[0] <= _STUN_LAST:
                self._answer(bytes(self._view[:size]), source, place)
            elif place == _RELAYS:
                self._take(self._view[:size], source)

    def _answer(self, datagram: bytes, source: Source, place: SocketPlace) -> None:
        try:
            answer = self._stun.receive(datagram, (plain(source[0]), source[1]), place, self._loop.time())
        except RendezvousError as error:
            self._refuse(error)
            return
        self._write(self._sockets[answer.place], answer.datagram, source)

    def _take(self, datagram: bytes | memoryview, source: Source) -> None:
        try:
            sending = self._relay.receive(datagram, source, self._loop.time())
        except RendezvousError as error:
            self._refuse(error)
            return
        if sending is not None:
            self._send(sending)
        if self._timer is None:
            self._arm()

    def _send(self, sending: Sending) -> None:
        datagram, target = sending
        if target[1] <= LARGEST_PORT:
            self._write(self._sockets[_RELAYS], datagram, target)
        elif deliver := self._streams.get(target):
            deliver(bytes(datagram))

    def _write(self, sock: socket.socket, datagram: bytes | memoryview, target: Source) -> None:
        """A full buffer or an unreachable target is loss, as anywhere in the network."""
        with contextlib.suppress(OSError):
            sock.sendto(datagram, target)

    def _refuse(self, error: RendezvousError) -> None:
        self.refused += 1
        logger.debug("datagram_refused code=%s", error.code)

    def _arm(self) -> None:
        due = self._relay.next_timer()
        self._timer = None if due is None else self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._relay.handle_timer(self._loop.time())
        self._arm()


def address_of(sockets: Sockets, place: SocketPlace) -> tuple[str, int]:
    """IP address and port of one of the server's sockets; "" for the address where it listens on all."""
    host, port = sockets[place].getsockname()[:2]
    return "" if host in WILDCARDS else plain(host), port


def open_sockets(config: RendezvousConfig, tcp_port: int) -> dict[SocketPlace, socket.socket]:
    """Each address with two ports, one next to the other. Raises CannotServe."""
    if config.alternate is not None and config.host in WILDCARDS:
        raise CannotServe(
            "a second address needs the first one too: an answer has to come from the address that was asked, so "
            "listen at that address instead of at all"
        )
    hosts = [config.host] if config.alternate is None else [config.host, config.alternate]
    wanted = tcp_port if config.udp_port is None else config.udp_port
    try:
        return _open_pair(hosts, wanted)
    except OSError as error:
        if wanted and (config.udp_port is not None or config.port):
            raise CannotServe(f"can't open UDP ports {wanted} and {wanted + 1}: {error.strerror or error}") from error
    return _open_free(hosts)


def _open_free(hosts: list[str]) -> dict[SocketPlace, socket.socket]:
    for _ in range(_TRIES):
        with contextlib.suppress(OSError):
            return _open_pair(hosts, 0)
    raise CannotServe("can't open two UDP ports next to each other: are UDP sockets allowed here?")


def _open_pair(hosts: list[str], port: int) -> dict[SocketPlace, socket.socket]:
    """Raises OSError, and leaves nothing open then."""
    with contextlib.ExitStack() as stack:
        sockets: dict[SocketPlace, socket.socket] = {}
        for address, host in enumerate(hosts):
            for offset in (0, 1):
                sock = stack.enter_context(_bound(host, port + offset))
                port = sock.getsockname()[1] - offset  # which was left open, perhaps
                sockets[SocketPlace(address, offset)] = sock
        stack.pop_all()
    return sockets


def _bound(host: str, port: int) -> socket.socket:
    if not 0 <= port <= LARGEST_PORT:
        raise OSError(0, f"there is no port {port}")
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        if ":" in host:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
