"""The one UDP socket of a node: datagrams in batches, with the kernel's segmentation offload where it has one.

Linux cuts one large write into datagrams of equal size (UDP_SEGMENT) and hands several datagrams of one source over
as one large read (UDP_GRO); elsewhere, or when the kernel refuses, each datagram is a system call of its own.
"""

import asyncio
import errno
import logging
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net.candidates import Address

log = logging.getLogger(__name__)

BUFFER_BYTES = 4 << 20  # asked of the kernel for each direction; it may grant less
DRAIN_DATAGRAMS = 64  # per wake-up, so that timers and other sockets get their turn
MAX_UNSENT = 1024  # datagrams that wait for a full send buffer; more are dropped, which QUIC sees as loss

_UDP_SEGMENT = 103  # linux/udp.h; Python has no names for these
_UDP_GRO = 104
# The option that sets "don't fragment", by platform and family; Python has names for few of them.
_NO_FRAGMENTS = {
    "linux": {  # IP_MTU_DISCOVER and IPV6_MTU_DISCOVER, set to IP_PMTUDISC_PROBE: linux/in.h, linux/in6.h
        socket.AF_INET: (socket.IPPROTO_IP, 10, 3),
        socket.AF_INET6: (socket.IPPROTO_IPV6, 23, 3),
    },
    "darwin": {  # IP_DONTFRAG and IPV6_DONTFRAG: netinet/in.h, netinet6/in6.h
        socket.AF_INET: (socket.IPPROTO_IP, 28, 1),
        socket.AF_INET6: (socket.IPPROTO_IPV6, 62, 1),
    },
}
_MAX_SEGMENTS = 64  # UDP_MAX_SEGMENTS of older kernels
_MAX_RUN_BYTES = 65000  # below the 65,507 bytes of one UDP payload over IPv4
_READ_BYTES = 65535
_ANCILLARY_BYTES = socket.CMSG_SPACE(4)
_REFUSED_OFFLOAD = {errno.EIO, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOPROTOOPT, errno.EMSGSIZE}

Received = tuple[bytes, Address]


class Socket(Protocol):
    """What others need of a socket of this node's: a `UdpSocket`, or one of a simulated network."""

    @property
    def takes_ipv6(self) -> bool: ...
    @property
    def forbids_fragments(self) -> bool: ...
    @property
    def address(self) -> Address: ...
    def send(self, datagrams: Sequence[bytes], target: Address) -> None: ...
    def close(self) -> None: ...


OpenSocket = Callable[[Callable[[list[Received]], None]], Socket]
"""Opens one that hands over each batch of datagrams with their sources."""


def open_socket(host: str | None, port: int) -> socket.socket:
    """A bound, non-blocking UDP socket; with no host, for IPv6 and IPv4 where possible. Raises Unavailable."""
    if host is None:
        try:
            return _bound(socket.AF_INET6, "::", port)
        except OSError:  # no IPv6 on this machine
            host = "0.0.0.0"
    try:
        return _bound(socket.AF_INET6 if ":" in host else socket.AF_INET, host, port)
    except OSError as error:
        raise Unavailable(f"can't open UDP port {port} on {host}: {error.strerror or error}") from error


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def runs(datagrams: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Cuts a list of datagrams into runs that one segmented write can carry: equal sizes, only the last one shorter."""
    start = 0
    while start < len(datagrams):
        size = len(datagrams[start])
        most = min(_MAX_SEGMENTS, _MAX_RUN_BYTES // max(size, 1))
        stop = start + 1
        while (
            stop < len(datagrams) and stop - start < most and len(datagrams[stop - 1]) == size >= len(datagrams[stop])
        ):
            stop += 1
        yield datagrams[start:stop]
        start = stop


class UdpSocket:
    """Drives a bound socket on the running loop; `deliver` gets each batch of (datagram, source)."""

    def __init__(self, sock: socket.socket, deliver: Callable[[list[Received]], None]) -> None:
        self.dropped = 0  # datagrams that the system refused to send
        self._sock = sock
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._maps_ipv4 = sock.family == socket.AF_INET6
        self._segments = True  # until the kernel refuses
        self._buffer = bytearray(_READ_BYTES)
        self._view = memoryview(self._buffer)
        self._unsent: deque[tuple[bytes, Address]] = deque()
        self._ask_for(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self._ask_for(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        self._ask_for(socket.IPPROTO_UDP, _UDP_GRO, 1)
        self.forbids_fragments = self._forbid_fragments()
        self._loop.add_reader(sock, self._readable)

    @property
    def takes_ipv6(self) -> bool:
        return self._maps_ipv4

    @property
    def address(self) -> Address:
        """What the socket is bound to; "::" or "0.0.0.0" for every address of the machine."""
        host, port = self._sock.getsockname()[:2]
        return host, port

    def send(self, datagrams: Sequence[bytes], target: Address) -> None:
        """Sends datagrams in order, as one batch; a full buffer makes them wait, an error makes them lost."""
        rest = datagrams if self._unsent else self._write(datagrams, target)
        for datagram in rest:
            self._keep(datagram, target)

    def close(self) -> None:
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._unsent.clear()
        self._sock.close()

    def _forbid_fragments(self) -> bool:
        """Whether a datagram that is too large for the path is lost as a whole, as finding its size needs."""
        options = _NO_FRAGMENTS.get(sys.platform, {})
        families = [socket.AF_INET, socket.AF_INET6] if self._sock.family == socket.AF_INET6 else [socket.AF_INET]
        taken = [self._ask_for(*options[family]) for family in families if family in options]
        return bool(taken) and all(taken)

    def _ask_for(self, level: int, option: int, value: int) -> bool:
        try:
            self._sock.setsockopt(level, option, value)
        except OSError as error:
            log.debug("socket_option_refused option=%d error=%s", option, error)
            return False
        return True

    def _write(self, datagrams: Sequence[bytes], target: Address) -> Sequence[bytes]:
        """Returns those that the send buffer had no room for."""
        address = self._sockaddr(target)
        sent = 0
        for run in runs(datagrams):
            taken = self._write_run(run, address)
            sent += taken
            if taken < len(run):
                break
        return datagrams[sent:]

    def _write_run(self, run: Sequence[bytes], address: tuple[str, int]) -> int:
        """How many of the run's datagrams are dealt with; fewer than all when the send buffer is full."""
        if len(run) == 1 or not self._segments:
            return self._write_singly(run, address)
        ancillary = [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("=H", len(run[0])))]
        try:
            self._sock.sendmsg(run, ancillary, 0, address)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._segments = error.errno not in _REFUSED_OFFLOAD
            return self._write_singly(run, address)
        return len(run)

    def _write_singly(self, run: Sequence[bytes], address: tuple[str, int]) -> int:
        for i, datagram in enumerate(run):
            try:
                self._sock.sendto(datagram, address)
            except BlockingIOError:
                return i
            except OSError as error:  # no route, no such address, a firewall: QUIC and the checks see it as loss
                self.dropped += 1
                log.debug("datagram_dropped bytes=%d error=%s", len(datagram), error)
        return len(run)

    def _keep(self, datagram: bytes, target: Address) -> None:
        if len(self._unsent) >= MAX_UNSENT:
            self.dropped += 1
            return
        if not self._unsent:
            self._loop.add_writer(self._sock, self._writable)
        self._unsent.append((datagram, target))

    def _writable(self) -> None:
        while self._unsent:
            datagram, target = self._unsent[0]
            if not self._write_singly((datagram,), self._sockaddr(target)):
                return
            self._unsent.popleft()
        self._loop.remove_writer(self._sock)

    def _readable(self) -> None:
        """Drains at most DRAIN_DATAGRAMS (and the rest of the last read) and hands them over as one batch."""
        batch: list[Received] = []
        while len(batch) < DRAIN_DATAGRAMS and self._read(batch):
            pass
        if batch:
            self._deliver(batch)

    def _read(self, batch: list[Received]) -> bool:
        try:
            size, ancillary, _, source = self._sock.recvmsg_into([self._buffer], _ANCILLARY_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:  # an ICMP error of an earlier datagram, told on this socket
            log.debug("receive_error error=%s", error)
            return True
        host, port = source[:2]
        origin = (host[7:] if host.startswith("::ffff:") else host, port)
        step = struct.unpack("=i", ancillary[0][2])[0] if ancillary else size
        batch.extend((bytes(self._view[i : min(i + step, size)]), origin) for i in range(0, size, max(step, 1)))
        return True

    def _sockaddr(self, target: Address) -> tuple[str, int]:
        host, port = target
        return (f"::ffff:{host}", port) if self._maps_ipv4 and ":" not in host else (host, port)
