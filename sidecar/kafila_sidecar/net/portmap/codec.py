"""PCP (RFC 6887) and NAT-PMP (RFC 6886) datagrams: how a router is asked for a port, and what it answers."""

import ipaddress
import struct
from dataclasses import dataclass
from enum import Enum

from kafila_sidecar.net.candidates import is_port, is_usable, unusable
from kafila_sidecar.net.errors import BadDatagram

SERVER_PORT = 5351  # of both, RFC 6887 section 19.1
NONCE_BYTES = 12
_PCP_VERSION, _PMP_VERSION = 2, 0
_ANSWER = 0x80  # RFC 6887 section 7.2, RFC 6886 section 3.2: set in the opcode of answers
_MAP = 1
_PCP_HEADER, _PCP_MAP = struct.Struct("!BBHI16s"), struct.Struct("!12sB3xHH16s")
_PCP_ANSWER = struct.Struct("!BBxBII12x")
_PMP_MAP, _PMP_ADDRESS, _PMP_MAPPED = struct.Struct("!BBxxHHI"), struct.Struct("!BBHI4s"), struct.Struct("!BBHIHHI")
_PMP_SHORT = struct.Struct("!BBHI")
_LARGEST_BYTES = 1100  # RFC 6887 section 7
UNSUPPORTED_VERSION = 1  # the result code, in both protocols

PMP_RESULTS = {
    1: "it speaks another version",
    2: "it maps no ports for this machine",
    3: "its own network is down",
    4: "it has no ports left",
    5: "it does not know the request",
}
PCP_RESULTS = {
    1: "it speaks another version",
    2: "it maps no ports for this machine",
    4: "it does not know the request",
    7: "its own network is down",
    8: "it has no ports left",
    9: "it does not map this protocol",
    10: "this machine has too many ports mapped",
    11: "it can't give that port",
    12: "there is another router between it and this machine",
}


class Transport(Enum):
    """What is mapped."""

    UDP = "udp"
    TCP = "tcp"


_PCP_TRANSPORT = {Transport.UDP: 17, Transport.TCP: 6}  # IANA protocol numbers
_PMP_OPCODE = {Transport.UDP: 1, Transport.TCP: 2}


@dataclass(frozen=True, slots=True)
class PcpMapped:
    """A PCP router's answer to MAP. `result` 0: mapped, for `lifetime_s` from now; else refused for so long."""

    result: int
    lifetime_s: int
    nonce: bytes
    inner_port: int
    outer_port: int
    outer_host: str


@dataclass(frozen=True, slots=True)
class PmpAddress:
    """A NAT-PMP router's address outside."""

    result: int
    host: str


@dataclass(frozen=True, slots=True)
class PmpMapped:
    """A NAT-PMP router's answer to a mapping request."""

    result: int
    transport: Transport
    inner_port: int
    outer_port: int
    lifetime_s: int


@dataclass(frozen=True, slots=True)
class MappingFailed:
    """An answer of either protocol that says no and nothing else."""

    is_pcp: bool
    result: int


Answer = PcpMapped | PmpAddress | PmpMapped | MappingFailed


def pcp_map(transport: Transport, *, port: int, wished: int, lifetime_s: int, nonce: bytes, client: str) -> bytes:
    """Asks for a mapping of `port`, or gives it up with `lifetime_s` 0. `client` is this machine's own address."""
    header = _PCP_HEADER.pack(_PCP_VERSION, _MAP, 0, lifetime_s, _packed(client))
    any_host = "::" if ":" in client else "::ffff:0.0.0.0"  # RFC 6887 section 11.1: no wish
    return header + _PCP_MAP.pack(nonce, _PCP_TRANSPORT[transport], port, wished, _packed(any_host))


def pmp_address() -> bytes:
    """Asks for the router's address outside; changes nothing."""
    return bytes([_PMP_VERSION, 0])


def pmp_map(transport: Transport, *, port: int, wished: int, lifetime_s: int) -> bytes:
    """Asks for a mapping of `port`, or gives it up with `lifetime_s` 0 and `wished` 0."""
    return _PMP_MAP.pack(_PMP_VERSION, _PMP_OPCODE[transport], port, wished, lifetime_s)


def parse(datagram: bytes) -> Answer:
    """Raises BadDatagram for what is no answer of either protocol, or grants what nobody could be reached at.

    Answers to requests that give a mapping up are of the latter kind: nobody waits for them.
    """
    if not _PMP_SHORT.size <= len(datagram) <= _LARGEST_BYTES or not datagram[1] & _ANSWER:
        raise BadDatagram(f"a datagram of {len(datagram)} bytes is no answer of a router's")
    try:
        return _parse_pcp(datagram) if datagram[0] == _PCP_VERSION else _parse_pmp(datagram)
    except (struct.error, ValueError) as error:
        raise BadDatagram(f"a router's answer of {len(datagram)} bytes can't be read: {error}") from error


def _parse_pcp(datagram: bytes) -> Answer:
    _, opcode, result, lifetime_s, _ = _PCP_ANSWER.unpack_from(datagram)
    if opcode & ~_ANSWER != _MAP or len(datagram) < _PCP_ANSWER.size + _PCP_MAP.size:
        return MappingFailed(is_pcp=True, result=result or UNSUPPORTED_VERSION)
    nonce, _, inner, outer, host = _PCP_MAP.unpack_from(datagram, _PCP_ANSWER.size)
    answer = PcpMapped(result, lifetime_s, nonce, inner, outer, _plain(host))
    if not result and not is_usable((answer.outer_host, outer)):
        raise ValueError(f"port {outer} at {answer.outer_host}")
    return answer


def _parse_pmp(datagram: bytes) -> Answer:
    version, opcode, result, _ = _PMP_SHORT.unpack_from(datagram)
    kind = opcode & ~_ANSWER
    if version != _PMP_VERSION:
        raise ValueError(f"version {version}")
    if result == UNSUPPORTED_VERSION or len(datagram) == _PMP_SHORT.size:
        return MappingFailed(is_pcp=False, result=result or UNSUPPORTED_VERSION)
    if kind == 0:
        host = str(ipaddress.IPv4Address(_PMP_ADDRESS.unpack(datagram)[4]))
        if not result and (why := unusable(host)):
            raise ValueError(f"{host}: {why}")
        return PmpAddress(result, host)
    transport = next((t for t, code in _PMP_OPCODE.items() if code == kind), None)
    if transport is None:
        raise ValueError(f"opcode {opcode}")
    _, _, _, _, inner, outer, lifetime_s = _PMP_MAPPED.unpack(datagram)
    if not result and not is_port(outer):
        raise ValueError(f"port {outer}")
    return PmpMapped(result, transport, inner, outer, lifetime_s)


def _packed(host: str) -> bytes:
    """IPv4 as IPv4-mapped IPv6 (RFC 6887 section 5)."""
    address = ipaddress.ip_address(host)
    return address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed


def _plain(packed: bytes) -> str:
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address)
