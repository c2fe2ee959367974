"""Where a rendezvous is: `host:port`, `host:port#fingerprint`, or `grpc+insecure://host:port`."""

import ipaddress
import re
from dataclasses import dataclass

from kafila_sidecar.errors import InvalidInput

INSECURE_SCHEME = "grpc+insecure://"

_PLAIN_RANGES = tuple(
    ipaddress.ip_network(text)
    for text in (
        "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16",
        "::1/128", "fc00::/7", "fe80::/10",
    )
)  # fmt: skip
_HOST_AND_PORT = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9._-]{1,253})):(?P<port>[0-9]{1,5})")
_FINGERPRINT = re.compile(r"[a-z2-7]{16,52}")  # base32 of a SHA-256's start, 80 bits at least


@dataclass(frozen=True, slots=True)
class RendezvousAddress:
    """A rendezvous' place. TLS unless `insecure`; a fingerprint pins the server's certificate."""

    host: str
    port: int
    fingerprint: str | None = None
    insecure: bool = False

    @property
    def target(self) -> str:
        """host:port as gRPC takes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def is_same(self, other: "RendezvousAddress") -> bool:
        """A server may be known by several addresses, but has one certificate."""
        return self == other or (self.fingerprint is not None and self.fingerprint == other.fingerprint)

    def __str__(self) -> str:
        scheme = INSECURE_SCHEME if self.insecure else ""
        pin = f"#{self.fingerprint}" if self.fingerprint else ""
        return f"{scheme}{self.target}{pin}"


def parse_address(text: str) -> RendezvousAddress:
    """Reads an address; raises InvalidInput that names what is wrong."""
    text = text.strip()
    insecure = text.lower().startswith(INSECURE_SCHEME)
    rest, _, pin = text[len(INSECURE_SCHEME) if insecure else 0 :].partition("#")
    match = _HOST_AND_PORT.fullmatch(rest)
    if match is None:
        raise InvalidInput(f"{_shown(rest)} is no rendezvous address: write host:port, as in 192.0.2.7:7770")
    address = RendezvousAddress(
        host=match["six"] or match["host"],
        port=_port(match["port"]),
        fingerprint=_fingerprint(pin) if "#" in text else None,
        insecure=insecure,
    )
    if insecure:
        _refuse_public(address)
    return address


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65535:
        raise InvalidInput(f"port {port} of the rendezvous address is not between 1 and 65535")
    return port


def _fingerprint(text: str) -> str:
    lowered = text.lower()
    if not _FINGERPRINT.fullmatch(lowered):
        raise InvalidInput("the rendezvous fingerprint after # is not 16 to 52 letters of a-z and 2-7: copy it again")
    return lowered


def _refuse_public(address: RendezvousAddress) -> None:
    if address.fingerprint:
        raise InvalidInput(f"{INSECURE_SCHEME} has no certificate to pin: leave the fingerprint after # out")
    if address.host.lower() == "localhost":
        return
    try:
        ip = ipaddress.ip_address(address.host)
    except ValueError:
        ip = None
    if ip is None or not any(ip in network for network in _PLAIN_RANGES):
        raise InvalidInput(
            f"{INSECURE_SCHEME} is for loopback and private addresses only, not {_shown(address.host)}: "
            "use TLS with host:port#fingerprint"
        )


def _shown(text: str) -> str:
    return repr(text[:80])
