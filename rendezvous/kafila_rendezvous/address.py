"""Addresses of those who ask: what they are called, and whom the limits count."""

import ipaddress
from functools import lru_cache

Address = tuple[str, int]
"""IP address in its plain textual form (never IPv4-mapped, no zone) and port."""

_MAPPED = "::ffff:"  # how a socket for both families writes an IPv4 address


def plain(host: str) -> str:
    """A socket's own way of writing an address, without IPv4-mapping and zone."""
    return host[len(_MAPPED) :] if host.startswith(_MAPPED) and "." in host else host.partition("%")[0]


def spoken(host: str, port: int) -> str:
    """host:port as people write it, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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


SHARES = (1, 2, 4)  # how many times an address' limit the networks of `networks` may use, narrowest first


@lru_cache(maxsize=4096)
def networks(owner: str) -> tuple[str, ...]:
    """The networks that `owner`, as `limited` names it, lies in, narrowest first: itself, and of IPv6 its /56 and /48.

    Providers give a home a /56 and a site a /48, so whoever has one would be 65,536 addresses if only /64 counted.
    """
    if not owner.endswith("/64"):
        return (owner,)
    network = ipaddress.IPv6Network(owner)
    return owner, str(network.supernet(new_prefix=56)), str(network.supernet(new_prefix=48))
