"""Which STUN servers to ask: the rendezvous, and further ones that the owner named."""

import asyncio
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from kafila_proto import rendezvous_pb2
from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.net.candidates import Address, is_port, unusable
from kafila_sidecar.net.nat.behaviour import StunServer

log = logging.getLogger(__name__)

DEFAULT_PORT = 3478  # RFC 8489 section 18.6
RESOLVE_DEADLINE_S = 2.0


@dataclass(frozen=True, slots=True)
class FoundServers:
    """Servers of one family, the rendezvous first, and the names that led nowhere."""

    servers: tuple[StunServer, ...]
    unresolved: tuple[str, ...]


def parse_servers(text: str) -> tuple[Address, ...]:
    """Reads KAFILA_STUN, as in `stun.example.net,192.0.2.7:3479,[2001:db8::7]:3478`. Raises InvalidInput."""
    return tuple(_parse(part.strip()) for part in text.split(",") if part.strip())


async def find_servers(
    rendezvous: str | None, udp: rendezvous_pb2.UdpPlace | None, further: Sequence[Address]
) -> FoundServers:
    """Looks names up. `rendezvous` is the host at which the rendezvous was reached, `udp` what it said of itself."""
    udp = checked_place(udp) if udp is not None else None
    servers: list[StunServer] = []
    unresolved: list[str] = []
    family: socket.AddressFamily | None = None
    if rendezvous is not None and udp is not None and udp.port:
        host = await _resolve(udp.host or rendezvous, family)
        if host is None:
            unresolved.append(rendezvous)
        else:
            servers.append(StunServer(host, udp.port, udp.alternate_port or None, udp.alternate_host or None))
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for name, port in further:
        host = await _resolve(name, family)
        if host is None:
            unresolved.append(name)
        else:
            servers.append(StunServer(host, port))
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return FoundServers(tuple(servers), tuple(unresolved))


def checked_place(udp: rendezvous_pb2.UdpPlace) -> rendezvous_pb2.UdpPlace:
    """What a rendezvous says of its UDP ports; an empty place, and one log line, where that makes no sense."""
    ports = [port for port in (udp.port, udp.alternate_port) if port]
    hosts = [host for host in (udp.host, udp.alternate_host) if host]
    if all(map(is_port, ports)) and not any(map(unusable, hosts)):
        return udp
    log.warning("udp_place_refused port=%d alternate_port=%d hosts=%d", udp.port, udp.alternate_port, len(hosts))
    return rendezvous_pb2.UdpPlace()


def _parse(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in host.strip("[]") and not host.startswith("[")):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= 65535:
        raise InvalidInput(
            f"KAFILA_STUN has {text[:80]!r}, which is no host:port, as in stun.example.net:{DEFAULT_PORT}"
        )
    return host, int(port)


async def _resolve(host: str, family: socket.AddressFamily | None) -> str | None:
    """An address of the wanted family, IPv4 before IPv6 where any will do."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_DEADLINE_S):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_DGRAM, family=family or socket.AF_UNSPEC)
    except (OSError, UnicodeError, TimeoutError) as error:
        log.info("stun_server_unresolved error=%s", error)
        return None
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    return min(addresses, key=lambda address: ":" in address, default=None)
