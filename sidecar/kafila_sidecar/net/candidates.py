"""Candidates: the addresses at which this node may be reached, with their priorities (RFC 8445 section 5.1)."""

import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import psutil

from kafila_proto import ring_pb2
from kafila_sidecar.errors import InvalidInput

log = logging.getLogger(__name__)

Address = tuple[str, int]
"""IP address in its plain textual form (never IPv4-mapped, no zone) and UDP port."""

HOST = "host"
PEER_REFLEXIVE = "peer-reflexive"
SERVER_REFLEXIVE = "server-reflexive"
RELAYED = "relayed"

TYPE_PREFERENCE = {HOST: 126, PEER_REFLEXIVE: 110, SERVER_REFLEXIVE: 100, RELAYED: 0}  # RFC 8445 section 5.1.2.2
ADVERTISED = (HOST, SERVER_REFLEXIVE)  # the others are learnt, or each end's own
MAX_CANDIDATES = 32  # of one member; a machine with more useful addresses keeps the best

# Interfaces of container engines and hypervisors: their addresses mean nothing on another machine.
_VIRTUAL = ("docker", "veth", "br-", "virbr", "vmnet", "vboxnet", "cni", "flannel", "cali", "lxc", "podman", "kube")

# Where the relay's channels have their made-up addresses (`relay.client`); nobody else may name one of them.
_DISCARD_ONLY = ipaddress.ip_network("100::/64")

# Local preferences, RFC 8445 section 5.1.2.1: larger is tried first.
LARGEST_LOCAL = 65535
_ORDINARY_IPV4 = LARGEST_LOCAL
_ORDINARY_IPV6 = 49151
_LINK_LOCAL_IPV4 = 16383  # a direct cable between two machines
_LOOPBACK = 0  # several members on one machine


@dataclass(frozen=True, slots=True)
class Candidate:
    """One address of a member. `priority` is RFC 8445's, larger is better."""

    kind: str
    address: str
    port: int
    priority: int

    @property
    def target(self) -> Address:
        return self.address, self.port


@dataclass(frozen=True, slots=True)
class Interface:
    """What the operating system tells about one network interface."""

    name: str
    is_up: bool
    addresses: tuple[str, ...]


def priority(kind: str, local_preference: int) -> int:
    """RFC 8445 section 5.1.2.1, for the one component that we have."""
    return (TYPE_PREFERENCE[kind] << 24) | (local_preference << 8) | 255


def system_interfaces() -> list[Interface]:
    """The machine's interfaces as they are now, in the system's order."""
    states = psutil.net_if_stats()
    return [
        Interface(
            name=name,
            is_up=name in states and states[name].isup,
            addresses=tuple(e.address for e in entries if e.family in (socket.AF_INET, socket.AF_INET6)),
        )
        for name, entries in psutil.net_if_addrs().items()
    ]


class LatestLook:
    """The machine's interfaces; those of the look before where the system does not tell."""

    def __init__(self, look: Callable[[], Iterable[Interface]]) -> None:
        self._look = look
        self._seen: tuple[Interface, ...] = ()

    def __call__(self) -> tuple[Interface, ...]:
        try:
            self._seen = tuple(self._look())
        except OSError as error:
            log.warning("network_not_seen error=%s", error)
        return self._seen


def host_candidates(port: int, interfaces: Iterable[Interface], *, ipv6: bool) -> list[Candidate]:
    """Every useful address of this machine at `port`, best first; `ipv6` says whether the socket takes it."""
    found: dict[str, Candidate] = {}
    for interface in interfaces:
        if not interface.is_up or interface.name.lower().startswith(_VIRTUAL):
            continue
        for text in interface.addresses:
            preference = _local_preference(text, ipv6=ipv6)
            if preference is not None:
                # Equal kinds keep the system's order of interfaces.
                preference = max(0, preference - len(found)) if preference else 0
                found.setdefault(text, Candidate(HOST, text, port, priority(HOST, preference)))
    return sorted(found.values(), key=lambda c: -c.priority)[:MAX_CANDIDATES]


def address_candidate(address: Address) -> Candidate:
    """The host candidate of a socket that is bound to one address."""
    preference = _local_preference(address[0], ipv6=True)
    if preference is None:
        raise InvalidInput(f"{address[0]} can't be announced to other machines: bind to another address")
    return Candidate(HOST, address[0], address[1], priority(HOST, preference))


def _local_preference(text: str, *, ipv6: bool) -> int | None:
    """None when the address is of no use as a candidate."""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    if ip.is_unspecified or ip.is_multicast:
        return None
    if ip.is_loopback:
        return _LOOPBACK if ip.version == 4 or ipv6 else None
    if ip.version == 4:
        return _LINK_LOCAL_IPV4 if ip.is_link_local else _ORDINARY_IPV4
    # A link-local IPv6 address needs the zone of whoever sends to it, so it can't be announced.
    return _ORDINARY_IPV6 if ipv6 and not ip.is_link_local else None


def to_proto(candidates: Sequence[Candidate]) -> ring_pb2.Candidates:
    """The control message that announces candidates."""
    return ring_pb2.Candidates(
        candidates=[
            ring_pb2.Candidate(kind=c.kind, address=c.address, port=c.port, priority=c.priority) for c in candidates
        ]
    )


def from_proto(message: ring_pb2.Candidates) -> list[Candidate]:
    """A peer's candidates, checked; raises InvalidInput for one that nobody could be reached at."""
    if len(message.candidates) > MAX_CANDIDATES:
        raise InvalidInput(f"{len(message.candidates)} candidates from one member, at most {MAX_CANDIDATES} are taken")
    return [_checked(c) for c in message.candidates]


def _checked(message: ring_pb2.Candidate) -> Candidate:
    if message.kind not in ADVERTISED:
        raise InvalidInput(f"candidate of kind {message.kind[:40]!r}: expected one of {', '.join(ADVERTISED)}")
    if not is_port(message.port):
        raise InvalidInput(f"candidate with port {message.port}: ports go from 1 to 65535")
    if why := unusable(message.address):
        raise InvalidInput(f"candidate with address {message.address[:60]!r}: {why}")
    return Candidate(message.kind, str(ipaddress.ip_address(message.address)), message.port, message.priority)


def is_usable(address: Address) -> bool:
    """Whether somebody could be reached there: what a router or a STUN server says may be no address at all."""
    return is_port(address[1]) and unusable(address[0]) is None


def is_port(number: int) -> bool:
    """Whether somebody could listen at this port."""
    return 1 <= number <= 65535


def unusable(host: str) -> str | None:
    """Why nobody can be reached at this host, from another machine or this one; None where somebody could be."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return "not an IP address"
    if ip.is_unspecified or ip.is_multicast or ip == ipaddress.IPv4Address("255.255.255.255"):
        return "nobody can be reached there"
    if ip in _DISCARD_ONLY:
        return "it leads nowhere by RFC 6666"
    if ip.version == 6 and (ip.ipv4_mapped is not None or ip.scope_id is not None):
        return "write it without mapping and zone"
    return None
