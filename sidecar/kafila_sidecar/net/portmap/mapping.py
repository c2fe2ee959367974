"""Having a router forward a port, by PCP or NAT-PMP, whichever it speaks. No I/O, no clock.

Both are asked at once: PCP for the mapping, NAT-PMP for the router's address, which changes nothing. PCP's mapping is
taken where it comes; NAT-PMP maps where PCP is refused as unknown, or says nothing. What is mapped is renewed at half
its lifetime, and given up in the end.
"""

from dataclasses import dataclass

from kafila_sidecar.net.candidates import LARGEST_LOCAL, SERVER_REFLEXIVE, Address, Candidate, priority
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.portmap import codec
from kafila_sidecar.net.portmap.codec import MappingFailed, PcpMapped, PmpAddress, PmpMapped, Transport

LIFETIME_S = 3600  # asked for; routers may give less. PCP recommends at least 120 (RFC 6887 section 15)
SHORTEST_RENEWAL_S = 30.0
FIRST_RETRY_S = 0.25  # doubled each time (RFC 6886 section 3.1)
SENDS = 3  # then the router is taken to speak neither
PMP_PATIENCE_S = 0.5  # for PCP's answer, once NAT-PMP has answered
AGAIN_AFTER_S = 300.0  # a refusal


@dataclass(frozen=True, slots=True)
class Mapped:
    """A port outside that leads to ours. `protocol` for people: "PCP", "NAT-PMP", "UPnP"."""

    protocol: str
    outside: Address

    def candidate(self) -> Candidate:
        """As a candidate of the node's: like a server-reflexive one, but open to everybody."""
        return Candidate(SERVER_REFLEXIVE, *self.outside, priority(SERVER_REFLEXIVE, LARGEST_LOCAL))


@dataclass(frozen=True, slots=True)
class MappingOffer:
    """A router that maps ports when asked: by which protocol, and its own address outside where it said it."""

    protocol: str  # "PCP", "NAT-PMP", "UPnP"
    outside: str | None


class PortMap:
    """One port of this machine's. `client` is its own address towards the router, `nonce` 12 random bytes.

    `mapped` is what stands, `refusal` why nothing does.
    """

    def __init__(self, *, transport: Transport, port: int, client: str, nonce: bytes, now: float) -> None:
        self.mapped: Mapped | None = None
        self.refusal: str | None = None
        self.outside: str | None = None  # the router's address, as NAT-PMP says it
        self._transport, self._port, self._client, self._nonce = transport, port, client, nonce
        self._wished = port
        self._is_pmp = False  # which protocol is used, once that is known
        self._asks_both = True
        self._pcp_is_unknown = False
        self._sent = 0
        self._due: float | None = now

    def receive(self, datagram: bytes, now: float) -> list[bytes]:
        """Takes what came from the router; raises BadDatagram for what is no answer to this mapping's requests."""
        if self._due is None:
            raise BadDatagram("a router's answer to what is no longer asked")
        match codec.parse(datagram):
            case PcpMapped() as answer:
                self._pcp_answered(answer, now)
            case PmpAddress(result, host):
                self._pmp_address(result, host, now)
            case PmpMapped() as answer:
                self._pmp_answered(answer, now)
            case MappingFailed() as answer:
                self._failed(answer, now)
        return self.handle_timer(now)

    def next_timer(self) -> float | None:
        """When `handle_timer` is due; None when the router speaks neither protocol."""
        return self._due

    def handle_timer(self, now: float) -> list[bytes]:
        """The requests that are due; also called once at the start."""
        if self._due is None or self._due > now:
            return []
        if self._sent >= SENDS:
            return self._give_up(now)
        self._due = now + FIRST_RETRY_S * 2**self._sent
        self._sent += 1
        wants_address = self._is_pmp or (self._asks_both and self.outside is None)
        return [codec.pmp_address()] * wants_address + [self._request(LIFETIME_S)]

    def release(self) -> list[bytes]:
        """Gives the mapping up; nothing is waited for."""
        was_mapped, self.mapped, self._due = self.mapped, None, None
        return [self._request(0)] if was_mapped else []

    # ---- Requests

    def _request(self, lifetime_s: int) -> bytes:
        if self._is_pmp:
            wished = self._wished if lifetime_s else 0
            return codec.pmp_map(self._transport, port=self._port, wished=wished, lifetime_s=lifetime_s)
        return codec.pcp_map(
            self._transport,
            port=self._port,
            wished=self._wished,
            lifetime_s=lifetime_s,
            nonce=self._nonce,
            client=self._client,
        )

    def _use_pmp(self, now: float) -> None:
        self._is_pmp, self._asks_both, self._sent, self._due = True, False, 0, now

    # ---- Answers

    def _pcp_answered(self, answer: PcpMapped, now: float) -> None:
        if answer.nonce != self._nonce or answer.inner_port != self._port:
            raise BadDatagram("a router's answer is for another mapping")
        if answer.result:
            self._refused(codec.PCP_RESULTS.get(answer.result, f"PCP error {answer.result}"), now)
        else:
            self._asks_both = False
            self._stands(Mapped("PCP", (answer.outer_host, answer.outer_port)), answer.lifetime_s, now)

    def _pmp_address(self, result: int, host: str, now: float) -> None:
        if result:
            return
        self.outside = host
        if self._asks_both and self._pcp_is_unknown:
            self._use_pmp(now)
        elif self._asks_both:
            self._due = min(self._due or now, now + PMP_PATIENCE_S)
            self._sent = SENDS  # when nothing more comes of PCP until then, NAT-PMP it is
        elif self.mapped is not None and self._is_pmp:
            self.mapped = Mapped("NAT-PMP", (host, self.mapped.outside[1]))

    def _pmp_answered(self, answer: PmpMapped, now: float) -> None:
        if answer.inner_port != self._port or answer.transport is not self._transport or not self._is_pmp:
            raise BadDatagram("a router's answer is for another mapping")
        if answer.result or self.outside is None:
            self._refused(codec.PMP_RESULTS.get(answer.result, f"NAT-PMP error {answer.result}"), now)
        else:
            self._stands(Mapped("NAT-PMP", (self.outside, answer.outer_port)), answer.lifetime_s, now)

    def _failed(self, answer: MappingFailed, now: float) -> None:
        """A router that speaks one protocol says so to a request of the other: no fault while that one works."""
        if answer.is_pcp:
            return
        if self._is_pmp:
            self._refused(codec.PMP_RESULTS.get(answer.result, f"NAT-PMP error {answer.result}"), now)
        elif self._asks_both and answer.result == codec.UNSUPPORTED_VERSION:
            self._pcp_is_unknown = True
            if self.outside is not None:
                self._use_pmp(now)

    def _give_up(self, now: float) -> list[bytes]:
        if self._asks_both and self.outside is not None:
            self._use_pmp(now)
            return self.handle_timer(now)
        if self._asks_both:
            self._due = None
        else:
            self._refused("it has stopped answering", now)
        return []

    def _stands(self, mapped: Mapped, lifetime_s: int, now: float) -> None:
        self.mapped, self.refusal, self._wished = mapped, None, mapped.outside[1]
        self._sent, self._due = 0, now + max(SHORTEST_RENEWAL_S, lifetime_s / 2)

    def _refused(self, why: str, now: float) -> None:
        self.mapped, self.refusal = None, f"the router maps no port: {why}"
        self._sent, self._due = 0, now + AGAIN_AFTER_S
