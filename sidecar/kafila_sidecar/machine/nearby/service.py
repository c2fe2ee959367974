"""What is announced: `37._kafila._tcp.local.`, where 37 are the last two digits of a code's number."""

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
from zeroconf import IPVersion, ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from kafila_rendezvous.series import EMBEDDED_STEP
from kafila_sidecar.net.candidates import host_candidates, system_interfaces

TYPE = "_kafila._tcp.local."
_PIN = "pin"
_MOST_ADDRESSES = 8  # of one announcement

Network = ipaddress.IPv4Interface


@dataclass(frozen=True, slots=True)
class Announced:
    """Where a rendezvous says that it is, and which certificate it says that it has. Anybody may have said it."""

    addresses: tuple[str, ...]
    port: int
    fingerprint: str


def service_name(room: int) -> str:
    """Of the rendezvous that has this room, if an embedded one does."""
    return f"{room % EMBEDDED_STEP}.{TYPE}"


def own_networks() -> list[Network]:
    """This machine's addresses with their networks, those of container engines and of loopback left out; best first."""
    try:
        masks = {one.address: one.netmask for some in psutil.net_if_addrs().values() for one in some if one.netmask}
        found = host_candidates(1, system_interfaces(), ipv6=False)
    except OSError:  # no descriptor to ask with
        return []
    here = [Network((one.address, masks.get(one.address, 32))) for one in found]
    return [one for one in here if not one.ip.is_loopback]


def open_mdns(networks: Sequence[Network]) -> AsyncZeroconf:
    """Raises OSError where there is no multicast."""
    return AsyncZeroconf(interfaces=[str(one.ip) for one in networks], ip_version=IPVersion.V4Only)


def to_service(announced: Announced, room: int) -> ServiceInfo:
    """The host's name is the number too, so that none of the machine's own names gets out."""
    return ServiceInfo(
        TYPE,
        service_name(room),
        port=announced.port,
        addresses=[socket.inet_aton(address) for address in announced.addresses[:_MOST_ADDRESSES]],
        properties={_PIN: announced.fingerprint},
        server=f"kafila-{announced.fingerprint}.local.",
    )


def from_service(service: ServiceInfo, networks: Sequence[Network]) -> Announced | None:
    """What of it can be true: only who is on this network is announced there. None: nothing."""
    said = service.parsed_addresses(IPVersion.V4Only)
    near = tuple(one for one in said if any(ipaddress.ip_address(one) in network.network for network in networks))
    pin = service.decoded_properties.get(_PIN)
    return Announced(near[:_MOST_ADDRESSES], service.port, pin) if near and pin and service.port else None
