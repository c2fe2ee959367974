"""A simulated internet with a hand-moved clock, and the address translators of RFC 4787 in front of its hosts."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from kafila_planner.model.types import Filtering, Mapping
from kafila_sidecar.net.candidates import Address

Deliver = Callable[[bytes, Address], None]
Arrive = Callable[[bytes, Address, int], None]  # datagram, source, the port that it was sent to


class Internet:
    """Carries datagrams to whoever has the address; `now` moves only in `run`."""

    def __init__(self, *, delay_s: float = 0.01, jitter_s: float = 0.0, loss: float = 0.0, seed: int = 1) -> None:
        self.now = 1000.0
        self.sent = 0
        self._delay_s, self._jitter_s, self._loss = delay_s, jitter_s, loss
        self._chance = random.Random(seed)
        self._hosts: dict[str, Arrive] = {}
        self._sockets: dict[Address, Deliver] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def own(self, host: str, arrive: Arrive) -> None:
        """Whatever is sent to `host` goes to `arrive`."""
        self._hosts[host] = arrive

    def bind(self, address: Address, deliver: Deliver) -> None:
        """One socket of a host without a router."""
        self._sockets[address] = deliver
        self._hosts[address[0]] = lambda data, source, port: self._to_socket(data, source, (address[0], port))

    def send(self, data: bytes, source: Address, target: Address) -> None:
        self.sent += 1
        if self._chance.random() < self._loss or target[0] not in self._hosts:
            return
        delay_s = self._delay_s + self._chance.random() * self._jitter_s
        self.at(self.now + delay_s, lambda: self._hosts[target[0]](data, source, target[1]))

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._order), action))

    def run(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> bool:
        """Moves the clock; true as soon as `until` holds, which is asked after each event."""
        end = self.now + seconds
        while not until() and self._heap and self._heap[0][0] <= end:
            when, _, action = heapq.heappop(self._heap)
            self.now = max(self.now, when)
            action()
        if until():
            return True
        self.now = end
        return False

    def _to_socket(self, data: bytes, source: Address, target: Address) -> None:
        if deliver := self._sockets.get(target):
            deliver(data, source)


@dataclass(slots=True)
class _Mapped:
    """One mapping of a router: whose it is, and to whom it has sent."""

    inside: Address
    sent_to: set[Address] = field(default_factory=set)


class Router:
    """Translates for the hosts inside. It stands on the internet, or inside another router."""

    def __init__(
        self,
        outer: "Internet | Router",
        outside: str,
        *,
        mapping: Mapping = Mapping.ENDPOINT_INDEPENDENT,
        filtering: Filtering = Filtering.ADDRESS_AND_PORT_DEPENDENT,
        blocks_udp: bool = False,
        hairpins: bool = False,
    ) -> None:
        self.blocks_udp = blocks_udp
        self._outer = outer
        self._outside = outside
        self._mapping, self._filtering, self._hairpins = mapping, filtering, hairpins
        self._ports: dict[int, _Mapped] = {}
        self._by_key: dict[tuple[object, ...], int] = {}
        self._next_port = 50_000
        self._sockets: dict[Address, Deliver] = {}
        self._inner: dict[str, Arrive] = {}
        outer.own(outside, self._arrive)

    @property
    def now(self) -> float:
        return self._outer.now

    def own(self, host: str, arrive: Arrive) -> None:
        """A router inside this one."""
        self._inner[host] = arrive

    def bind(self, address: Address, deliver: Deliver) -> None:
        self._sockets[address] = deliver

    def send(self, data: bytes, source: Address, target: Address) -> None:
        """What a host inside sends."""
        if target in self._sockets:
            self._sockets[target](data, source)
            return
        if self.blocks_udp:
            return
        port = self._map(source, target)
        self._ports[port].sent_to.add(target)
        if target[0] != self._outside:
            self._outer.send(data, (self._outside, port), target)
        elif self._hairpins:
            self._arrive(data, (self._outside, port), target[1])

    def rebind(self) -> None:
        """Forgets every mapping, as after a restart; new ones get new ports."""
        self._ports.clear()
        self._by_key.clear()

    def _map(self, source: Address, target: Address) -> int:
        key = {
            Mapping.ENDPOINT_INDEPENDENT: (source,),
            Mapping.ADDRESS_DEPENDENT: (source, target[0]),
            Mapping.ADDRESS_AND_PORT_DEPENDENT: (source, target),
        }[self._mapping]
        if key not in self._by_key:
            self._next_port += 1
            self._by_key[key] = self._next_port
            self._ports[self._next_port] = _Mapped(source)
        return self._by_key[key]

    def _arrive(self, data: bytes, source: Address, port: int) -> None:
        mapped = self._ports.get(port)
        if mapped is None or self.blocks_udp or not self._lets_in(mapped, source):
            return
        if deliver := self._sockets.get(mapped.inside):
            deliver(data, source)
        elif arrive := self._inner.get(mapped.inside[0]):
            arrive(data, source, mapped.inside[1])

    def _lets_in(self, mapped: _Mapped, source: Address) -> bool:
        if self._filtering is Filtering.ENDPOINT_INDEPENDENT:
            return True
        if self._filtering is Filtering.ADDRESS_DEPENDENT:
            return source[0] in {host for host, _ in mapped.sent_to}
        return source in mapped.sent_to
