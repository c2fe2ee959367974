"""Asking STUN servers how the NAT in front of this node behaves (RFC 8489, RFC 5780). No I/O, no clock.

Two sockets are asked from. The node's own one shows the mapping, by up to three places of each server at once, and its
address as others see it. A spare one, which never sends to any place but a server's first, shows the filtering: answers
are asked for from places that it did not send to. A probe that stays unanswered is sent again; silence is never "fine".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from aioice.stun import Class, Message, Method

from kafila_sidecar.net import stun
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.nat.behaviour import Evidence, Heard, Nat, StunServer, conclude

CHANGE_PORT = 0x2  # CHANGE-REQUEST, RFC 5780 section 7.2
CHANGE_BOTH = 0x6

SENDS = 5  # of each probe; at 10 % loss each way one in 4,000 is lost for good
FIRST_RETRY_S = 0.1  # doubled each time, while the server's round trip is not known
LAST_WAIT_S = 1.0
SHORTEST_RETRY_S = 0.03  # between probes whose answer may be kept out by the NAT
SHORTEST_WAIT_S = 0.1


class Sending(NamedTuple):
    """A datagram to send, from the node's own socket or from the spare one."""

    own: bool
    datagram: bytes
    target: Address


@dataclass(slots=True)
class _Probe:
    """One question. `change` asks for the answer from elsewhere; `due` None: answered, or given up."""

    server: StunServer
    target: Address
    change: int
    due: float | None
    sent: dict[bytes, float] = field(default_factory=dict)  # transaction -> when
    mapped: Address | None = None
    is_refused: bool = False

    @property
    def is_own(self) -> bool:
        return self.change < 0


_OWN = -1  # in place of a change: the probe goes out from the node's own socket


class NatCheck:
    """One classification; `nat` has the result once it is there. `entropy` gives 12 fresh random bytes."""

    def __init__(
        self, servers: Sequence[StunServer], *, local: frozenset[str], entropy: Callable[[], bytes], now: float
    ) -> None:
        self.nat: Nat | None = None if servers else Nat(udp=None)
        self._servers = list({server.place: server for server in reversed(servers)}.values())[::-1]
        self._local = local
        self._entropy = entropy
        self._probes: list[_Probe] = []
        self._rtts: dict[StunServer, float] = {}
        for server in self._servers:
            self._ask(server, now)

    def receive(self, datagram: bytes, source: Address, now: float) -> list[Sending]:
        """Takes what came to either socket; raises BadDatagram for what answers no question of ours."""
        message = stun.parse(datagram)
        probe = next((p for p in self._probes if message.transaction_id in p.sent), None)
        if probe is None or message.message_method is not Method.BINDING:
            raise BadDatagram(f"a STUN message from {source[0]} answers nothing that was asked")
        if message.message_class is Class.ERROR and source == probe.target:
            probe.is_refused, probe.due = True, None
        elif message.message_class is Class.RESPONSE:
            self._answered(probe, message, source, now)
        return self.handle_timer(now)

    def awaits(self, transaction: bytes) -> bool:
        """Whether this is a transaction of ours."""
        return any(transaction in probe.sent for probe in self._probes)

    def next_timer(self) -> float | None:
        """When `handle_timer` is due; None once the result is there."""
        if self.nat is not None:
            return None
        return min((probe.due for probe in self._probes if probe.due is not None), default=None)

    def handle_timer(self, now: float) -> list[Sending]:
        """The probes that are due; also called once at the start."""
        out = []
        for probe in self._probes:
            if probe.due is not None and probe.due <= now and self.nat is None:
                if len(probe.sent) < SENDS:
                    out.append(self._send(probe, now))
                else:
                    probe.due = None
        if self.nat is None and self._is_complete():
            self.nat = self._conclude()
        return out

    # ---- Asking

    def _ask(self, server: StunServer, now: float) -> None:
        """The probes that what is known of a server allows, less those that are there."""
        wanted = [(server.place, _OWN)]
        if server.alternate_port:
            wanted += [((server.host, server.alternate_port), _OWN)]
        if server.alternate_host:
            wanted += [((server.alternate_host, server.port), _OWN)]
        if self._may_filter(server):
            wanted += [(server.place, 0)]
            wanted += [(server.place, CHANGE_PORT)] if server.alternate_port else []
            wanted += [(server.place, CHANGE_BOTH)] if server.alternate_port and server.alternate_host else []
        known = {(probe.target, probe.change) for probe in self._probes if probe.server is server}
        self._probes += [_Probe(server, *question, due=now) for question in wanted if question not in known]

    def _may_filter(self, server: StunServer) -> bool:
        """Two servers at one address would open each other's way in on the spare socket."""
        return next(s for s in self._servers if s.host == server.host) == server

    def _send(self, probe: _Probe, now: float) -> Sending:
        transaction = self._entropy()
        retry_s, wait_s = FIRST_RETRY_S * 2 ** len(probe.sent), LAST_WAIT_S
        if probe.change > 0 and (rtt_s := self._rtts.get(probe.server)) is not None:
            retry_s, wait_s = max(SHORTEST_RETRY_S, rtt_s / 2), SHORTEST_WAIT_S + 2 * rtt_s
        probe.sent[transaction] = now
        probe.due = now + (retry_s if len(probe.sent) < SENDS else wait_s)
        attributes = {} if probe.change <= 0 else {"CHANGE-REQUEST": probe.change}
        message = Message(Method.BINDING, Class.REQUEST, transaction, attributes)
        return Sending(probe.is_own, bytes(message), probe.target)

    # ---- Answers

    def _answered(self, probe: _Probe, message: Message, source: Address, now: float) -> None:
        mapped = stun.mapped_address(message)
        if mapped is None:
            raise BadDatagram(f"a STUN answer from {source[0]} tells no mapped address that could be one")
        if probe.change > 0:
            if not _is_changed(probe.change, probe.target, source):
                probe.is_refused, probe.due = True, None  # answered, but as if no change had been asked for
                return
        elif source != probe.target:
            raise BadDatagram(f"a STUN answer from {source[0]} port {source[1]}, which was not asked")
        probe.mapped, probe.due = mapped, None
        if probe.change <= 0:
            self._measured(probe, now - probe.sent[message.transaction_id], now)
        if probe.is_own and probe.target == probe.server.place:
            self._learn(probe.server, stun.other_address(message), now)

    def _measured(self, probe: _Probe, rtt_s: float, now: float) -> None:
        """With a round trip known, answers that the NAT may keep out are waited for no longer than it takes."""
        self._rtts[probe.server] = min(rtt_s, self._rtts.get(probe.server, rtt_s))
        soon = now + max(SHORTEST_RETRY_S, rtt_s / 2)
        for other in self._probes:
            if other.change > 0 and other.server is probe.server and other.due is not None:
                other.due = min(other.due, soon)

    def _learn(self, server: StunServer, other: Address | None, now: float) -> None:
        """A foreign server says by OTHER-ADDRESS what else it has (RFC 5780 section 7.4)."""
        if (
            other is None
            or server.alternate_port
            or other[0] == server.host
            or (":" in other[0]) != (":" in server.host)
        ):
            return
        known = StunServer(server.host, server.port, alternate_port=other[1], alternate_host=other[0])
        self._servers[self._servers.index(server)] = known
        self._rtts[known] = self._rtts[server]
        for probe in self._probes:
            if probe.server is server:
                probe.server = known
        self._ask(known, now)

    # ---- The result

    def _is_complete(self) -> bool:
        """Everything is answered or given up; servers that never answered are not waited for if others settle it."""
        if all(probe.due is None for probe in self._probes):
            return True
        if any(probe.due is not None and probe.server in self._rtts for probe in self._probes):
            return False
        nat = self._conclude()
        settled = not nat.mapping_is_assumed and not nat.filtering_is_assumed
        return settled and "unknown" not in (nat.mapping, nat.filtering)

    def _conclude(self) -> Nat:
        evidence = {server: self._evidence(server) for server in self._servers}
        first = self._servers[0]
        return conclude(evidence, first=first, local=self._local, rtt_s=self._rtts.get(first))

    def _evidence(self, server: StunServer) -> Evidence:
        own = [probe for probe in self._probes if probe.server is server and probe.is_own]
        other_port = (server.host, server.alternate_port)
        answering = {probe.target for probe in own if probe.mapped}
        hosts = {host for host, _ in answering}
        return Evidence(
            mapped={probe.target: probe.mapped for probe in own if probe.mapped},
            is_partial=len(answering) < len(own),
            from_other_port=self._heard(server, CHANGE_PORT, is_alive=other_port in answering),
            from_other_address=self._heard(server, CHANGE_BOTH, is_alive=server.alternate_host in hosts),
        )

    def _heard(self, server: StunServer, change: int, *, is_alive: bool) -> Heard:
        asked = {probe.change: probe for probe in self._probes if probe.server is server and not probe.is_own}
        probe, base = asked.get(change), asked.get(0)
        if probe is not None and probe.mapped:
            return Heard.YES
        if probe is None or base is None or not base.mapped or probe.is_refused or not is_alive:
            return Heard.UNTOLD
        return Heard.NO


def _is_changed(change: int, asked: Address, source: Address) -> bool:
    """Whether an answer comes from where the change says."""
    return source[1] != asked[1] and (source[0] != asked[0]) == (change == CHANGE_BOTH)
