"""Who takes part in tests of the classification: STUN servers, and a node that asks them."""

import itertools
from collections.abc import Sequence

from aioice.stun import Class, Message, Method, parse_message

from kafila_rendezvous.errors import RendezvousError
from kafila_rendezvous.pace import Pace
from kafila_rendezvous.udp.stun import SocketPlace, Stun
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.nat.behaviour import StunServer
from kafila_sidecar.net.nat.natcheck import NatCheck, Sending
from tests.sidecar.net.simnat import Internet, Router

PORTS = (7770, 7771)
INSIDE = "10.0.0.5"
OWN, SPARE = (INSIDE, 1111), (INSIDE, 2222)


class Server:
    """The rendezvous' own STUN core at one or two addresses of the internet."""

    def __init__(self, net: Internet | Router, *hosts: str, dead: Sequence[SocketPlace] = ()) -> None:
        self._net = net
        self._dead = dead
        self._core = Stun(addresses=hosts, ports=PORTS, pace=Pace(per_s=1e6, burst=10**6, salt=b""))
        self._hosts = hosts
        for place in (SocketPlace(a, p) for a in range(len(hosts)) for p in (0, 1)):
            if place not in dead:
                net.bind(self._at(place), lambda data, source, place=place: self._receive(data, source, place))  # type: ignore[misc]

    @property
    def told(self) -> StunServer:
        """As the rendezvous says it."""
        return StunServer(self._hosts[0], PORTS[0], PORTS[1], self._hosts[1] if len(self._hosts) > 1 else None)

    @property
    def named(self) -> StunServer:
        """As an owner names a foreign server."""
        return StunServer(self._hosts[0], PORTS[0])

    def _at(self, place: SocketPlace) -> Address:
        return self._hosts[place.address], PORTS[place.port]

    def _receive(self, data: bytes, source: Address, place: SocketPlace) -> None:
        try:
            answer = self._core.receive(data, source, place, self._net.now)
        except RendezvousError:
            return
        if answer.place not in self._dead:
            self._net.send(answer.datagram, self._at(answer.place), source)


class PlainServer:
    """A STUN server that has one socket and has never heard of RFC 5780."""

    def __init__(self, net: Internet, host: str, port: int = 3478) -> None:
        self._net, self._place = net, (host, port)
        net.bind(self._place, self._receive)

    @property
    def named(self) -> StunServer:
        return StunServer(*self._place)

    def _receive(self, data: bytes, source: Address) -> None:
        asked = parse_message(data)
        answer = Message(Method.BINDING, Class.RESPONSE, asked.transaction_id, {"XOR-MAPPED-ADDRESS": source})
        self._net.send(bytes(answer), self._place, source)


class Asker:
    """A node that classifies, inside a router or on the internet itself."""

    def __init__(
        self, net: Internet, via: Internet | Router, servers: Sequence[StunServer], host: str = INSIDE
    ) -> None:
        self._net, self._via = net, via
        self._own, self._spare = (host, OWN[1]), (host, SPARE[1])
        for address in (self._own, self._spare):
            via.bind(address, self.receive)
        numbers = itertools.count(1)
        self.core = NatCheck(
            servers, local=frozenset({host}), entropy=lambda: next(numbers).to_bytes(12, "big"), now=net.now
        )
        self.started_at = net.now
        self._act(self.core.handle_timer(net.now))

    def receive(self, data: bytes, source: Address) -> None:
        self._act(self.core.receive(data, source, self._net.now))

    def _act(self, sendings: Sequence[Sending]) -> None:
        for is_own, data, target in sendings:
            self._via.send(data, self._own if is_own else self._spare, target)
        due = self.core.next_timer()
        if due is not None:
            self._net.at(due, self._fire)

    def _fire(self) -> None:
        due = self.core.next_timer()
        if due is not None and due <= self._net.now:
            self._act(self.core.handle_timer(self._net.now))
