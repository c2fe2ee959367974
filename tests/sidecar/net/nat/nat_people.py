"""Who takes part in tests of the classification: STUN servers, and a node that asks them."""

import itertools
from collections.abc import Sequence

from aioice.stun import Class, Message, Method, parse_message

from kafila_rendezvous.errors import RendezvousError
from kafila_rendezvous.pace import Pace
from kafila_rendezvous.udp.stun import SocketPlace, Stun
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.nat.behaviour import StunServer
from kafila_sidecar.net.nat.check import NatCheck, Sending
from kafila_sidecar.net.udp import Received
from tests.support.hand_clock import Clocked, HandClock
from tests.support.simnet import Host, Realm, SimSocket

PORTS = (7770, 7771)
INSIDE = "10.0.0.5"
OWN_PORT, SPARE_PORT = 1111, 2222


class StunHost:
    """The rendezvous' own STUN core at one or two addresses of a realm; `dead` places are silent."""

    def __init__(self, clock: HandClock, realm: Realm, *hosts: str, dead: Sequence[SocketPlace] = ()) -> None:
        self._clock = clock
        self._core = Stun(addresses=hosts, ports=PORTS, pace=Pace(per_s=1e6, burst=10**6, salt=b""))
        self._hosts = hosts
        self._sockets: dict[SocketPlace, SimSocket] = {}
        for address, name in enumerate(hosts):
            host = Host(name, (realm, name))
            for place in (SocketPlace(address, 0), SocketPlace(address, 1)):
                if place not in dead:
                    self._sockets[place] = self._open(host, place)

    @property
    def told(self) -> StunServer:
        """As the rendezvous says it."""
        return StunServer(self._hosts[0], PORTS[0], PORTS[1], self._hosts[1] if len(self._hosts) > 1 else None)

    @property
    def named(self) -> StunServer:
        """As an owner names a foreign server."""
        return StunServer(self._hosts[0], PORTS[0])

    def _open(self, host: Host, place: SocketPlace) -> SimSocket:
        return host.open(PORTS[place.port], lambda batch: self._receive(batch, place))

    def _receive(self, batch: Sequence[Received], place: SocketPlace) -> None:
        for data, source in batch:
            try:
                answer = self._core.receive(data, source, place, self._clock.now)
            except RendezvousError:
                continue
            if answer.place in self._sockets:
                self._sockets[answer.place].send([answer.datagram], source)


class PlainStunHost:
    """A STUN server that has one socket and has never heard of RFC 5780."""

    def __init__(self, realm: Realm, host: str, port: int = 3478) -> None:
        self.named = StunServer(host, port)
        self._socket = Host(host, (realm, host)).open(port, self._receive)

    def _receive(self, batch: Sequence[Received]) -> None:
        for data, source in batch:
            asked = parse_message(data)
            answer = Message(Method.BINDING, Class.RESPONSE, asked.transaction_id, {"XOR-MAPPED-ADDRESS": source})
            self._socket.send([bytes(answer)], source)


class Asker:
    """A node that classifies, inside a box or on the internet itself."""

    def __init__(self, clock: HandClock, realm: Realm, servers: Sequence[StunServer], address: str = INSIDE) -> None:
        self._clock = clock
        host = Host("asker", (realm, address))
        self._own, self._spare = (host.open(port, self._take) for port in (OWN_PORT, SPARE_PORT))
        numbers = itertools.count(1)
        self.core = NatCheck(
            servers, local=frozenset({address}), entropy=lambda: next(numbers).to_bytes(12, "big"), now=clock.now
        )
        self._clocked = Clocked(clock, self.core.next_timer, self._fire)
        self._fire()

    def receive(self, data: bytes, source: Address) -> None:
        self._act(self.core.receive(data, source, self._clock.now))

    def _take(self, batch: Sequence[Received]) -> None:
        for data, source in batch:
            self.receive(data, source)

    def _fire(self) -> None:
        self._act(self.core.handle_timer(self._clock.now))

    def _act(self, sendings: Sequence[Sending]) -> None:
        for is_own, data, target in sendings:
            (self._own if is_own else self._spare).send([data], target)
        self._clocked.arm()
