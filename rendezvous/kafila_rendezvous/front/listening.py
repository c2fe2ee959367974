"""Opening the TCP sockets that the front listens on, and how many connections this process can hold."""

import contextlib
import errno
import resource
import socket
from collections.abc import Sequence

from kafila_rendezvous.address import spoken
from kafila_rendezvous.config import WILDCARDS
from kafila_rendezvous.errors import CannotServe

BACKLOG = 1024
DESCRIPTORS_EACH = 3  # of a connection: the caller's, and both ends of the way to gRPC
RESERVED_DESCRIPTORS = 128  # for everything else: gRPC's own, UDP, files
MOST_DESCRIPTORS = 65_536  # where the system allows any number
_TRIES = 20


def most_connections() -> int:
    """How many fit into this process' descriptors. Raises CannotServe when hardly any does."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_DESCRIPTORS // DESCRIPTORS_EACH
    most = (soft - RESERVED_DESCRIPTORS) // DESCRIPTORS_EACH
    if most < 1:
        raise CannotServe(f"{soft} descriptors are too few to serve anybody: raise the limit (ulimit -n 1024)")
    return most


def listen(host: str, port: int) -> list[socket.socket]:
    """All addresses of `host` at one port; a wildcard takes both families where there are two. Raises CannotServe."""
    try:
        places = _places(host)
    except OSError as error:
        raise CannotServe(f"can't listen on {host}: {error.strerror or error}") from error
    for left in reversed(range(1 if port else _TRIES)):
        try:
            return _listen_at(places, port)
        except OSError as error:
            if not left or error.errno != errno.EADDRINUSE:
                why = "is the port taken, or the address another machine's?"
                raise CannotServe(f"can't listen on {spoken(host, port)}: {why}") from error
    raise AssertionError("the last try returns or raises")


def _listen_at(places: Sequence[tuple[socket.AddressFamily, str]], port: int) -> list[socket.socket]:
    """Leaves out addresses that this machine hasn't, as long as it has one. Raises OSError."""
    with contextlib.ExitStack() as stack:
        sockets: list[socket.socket] = []
        for left, (family, address) in zip(reversed(range(len(places))), places, strict=True):
            try:
                sockets.append(stack.enter_context(_listening(family, address, port)))
            except OSError as error:
                if error.errno == errno.EADDRINUSE or not (sockets or left):
                    raise
                continue
            port = sockets[-1].getsockname()[1]
        stack.pop_all()
    return sockets


def _places(host: str) -> list[tuple[socket.AddressFamily, str]]:
    if host in WILDCARDS:
        return [(socket.AF_INET6, "::")] if _has_ipv6() else [(socket.AF_INET, "0.0.0.0")]
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found))


def _has_ipv6() -> bool:
    try:
        _listening(socket.AF_INET6, "::", 0).close()
    except OSError:
        return False
    return True


def _listening(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
