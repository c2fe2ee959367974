"""What is known about the NAT in front of this node, and how it follows from what STUN servers saw.

Mapping and filtering are two values (RFC 4787), each with the word "assumed" where a server with one address can't
settle it: then equal mappings at its two ports count as endpoint-independent, and an answer from the port that was not
asked shows that filtering is at most address-dependent.
"""

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from kafila_planner.model.types import Filtering, Mapping
from kafila_sidecar.net.candidates import LARGEST_LOCAL, SERVER_REFLEXIVE, Address, Candidate, priority


@dataclass(frozen=True, slots=True)
class StunServer:
    """Where STUN answers. The rendezvous says its second port, and its second address where it has one."""

    host: str  # an IP address
    port: int
    alternate_port: int | None = None
    alternate_host: str | None = None

    @property
    def place(self) -> Address:
        return self.host, self.port


class Heard(Enum):
    """Whether an answer came from a place that this node had not sent to."""

    YES = auto()
    NO = auto()  # asked again and again, while the same place answers when it is asked itself
    UNTOLD = auto()  # the server has no such place, does not know the request, or the place is silent anyway


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one server told. `mapped` has this node's address as seen by each of the server's places that answered."""

    mapped: Dictionary[Address, Address]
    is_partial: bool  # another of its places was asked in vain
    from_other_port: Heard
    from_other_address: Heard


@dataclass(frozen=True, slots=True)
class Nat:
    """How this node is seen from outside, in the planner's words. Times in seconds."""

    udp: bool | None  # False: no server answered; None: there was none to ask
    mapping: Mapping = Mapping.UNKNOWN
    mapping_is_assumed: bool = False
    filtering: Filtering = Filtering.UNKNOWN
    filtering_is_assumed: bool = False
    mapped: Address | None = None  # of the socket that was probed
    is_translated: bool | None = None  # False: `mapped` is an address of this machine
    rtt_s: float | None = None  # to the first server
    silent: tuple[Address, ...] = ()  # servers that said nothing at all

    def candidate(self) -> Candidate | None:
        """The server-reflexive candidate (RFC 8445 section 5.1.1.2); None where it would repeat a host candidate."""
        if self.mapped is None or not self.is_translated:
            return None
        return Candidate(SERVER_REFLEXIVE, *self.mapped, priority(SERVER_REFLEXIVE, LARGEST_LOCAL))


def conclude(
    evidence: Dictionary[StunServer, Evidence], *, first: StunServer, local: frozenset[str], rtt_s: float | None
) -> Nat:
    """Weighs what the servers told. `local` are this machine's own addresses.

    Servers on this side of the NAT, which see a local address, count only where nobody outside answered.
    """
    answered = {server: told for server, told in evidence.items() if told.mapped}
    outside = {server: told for server, told in answered.items() if not _sees_local(told, local)}
    counted = list((outside or answered).values())
    mapping, mapping_is_assumed = mapping_of(counted, is_translated=bool(outside))
    filtering, filtering_is_assumed = filtering_of(counted)
    chosen = outside or answered
    told = chosen.get(first) or next(iter(chosen.values()), None)
    return Nat(
        udp=bool(answered) if evidence else None,
        mapping=mapping,
        mapping_is_assumed=mapping_is_assumed,
        filtering=filtering,
        filtering_is_assumed=filtering_is_assumed,
        mapped=next(iter(told.mapped.values())) if told else None,
        is_translated=bool(outside) if answered else None,
        rtt_s=rtt_s,
        silent=tuple(server.place for server in evidence if server not in answered),
    )


def mapping_of(counted: Sequence[Evidence], *, is_translated: bool) -> tuple[Mapping, bool]:
    """RFC 5780 section 4.3, over all places that answered; the flag says that it is assumed."""
    seen = {place: mapped for told in counted for place, mapped in told.mapped.items()}
    if not seen:
        return Mapping.UNKNOWN, False
    if len(set(seen.values())) > 1:
        return _dependent(seen), False
    if len({host for host, _ in seen}) > 1:
        return Mapping.ENDPOINT_INDEPENDENT, False
    if any(told.is_partial for told in counted) or (len(seen) == 1 and is_translated):
        return Mapping.UNKNOWN, False
    return Mapping.ENDPOINT_INDEPENDENT, True


def filtering_of(counted: Sequence[Evidence]) -> tuple[Filtering, bool]:
    """RFC 5780 section 4.4; what came in is certain, so the most that any server showed counts."""
    if any(told.from_other_address is Heard.YES for told in counted):
        return Filtering.ENDPOINT_INDEPENDENT, False
    shown = [told for told in counted if told.from_other_port is Heard.YES]
    if shown:
        return Filtering.ADDRESS_DEPENDENT, all(told.from_other_address is Heard.UNTOLD for told in shown)
    if any(told.from_other_port is Heard.NO for told in counted):
        return Filtering.ADDRESS_AND_PORT_DEPENDENT, False
    return Filtering.UNKNOWN, False


def _dependent(seen: Dictionary[Address, Address]) -> Mapping:
    """By address only where ports of one address were seen to make no difference; else the stricter."""
    by_host: dict[str, list[Address]] = {}
    for (host, _), mapped in seen.items():
        by_host.setdefault(host, []).append(mapped)
    if any(len(set(mapped)) > 1 for mapped in by_host.values()):
        return Mapping.ADDRESS_AND_PORT_DEPENDENT
    port_is_no_matter = any(len(mapped) > 1 for mapped in by_host.values())
    return Mapping.ADDRESS_DEPENDENT if port_is_no_matter else Mapping.ADDRESS_AND_PORT_DEPENDENT


def _sees_local(told: Evidence, local: frozenset[str]) -> bool:
    return all(host in local for host, _ in told.mapped.values())
