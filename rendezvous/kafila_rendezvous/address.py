"""Addresses of those who ask: what they are called, and whom the limits count."""

import ipaddress

Address = tuple[str, int]
"""IP address in its plain textual form (never IPv4-mapped, no zone) and port."""

_MAPPED = "::ffff:"  # how a socket for both families writes an IPv4 address


def plain(host: str) -> str:
    """A socket's own way of writing an address, without IPv4-mapping and zone."""
    return host[len(_MAPPED) :] if host.startswith(_MAPPED) and "." in host else host.partition("%")[0]


def limited(host: str) -> str:
    """Whom the limits count: an IPv4 address, or the /64 network of an IPv6 one, since hosts own those whole.

    Raises ValueError for what is no IP address.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
