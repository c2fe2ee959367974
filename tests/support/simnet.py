"""A simulated internet: hosts behind RFC 4787 boxes, with delay, loss and reorder, on a loop's or a hand-moved clock.

A realm is one address space: the public internet, or what is inside a box. A box translates between its inside realm
and the one that it stands in, so boxes nest. Only whole datagrams exist; what is lost, filtered or unroutable is gone.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple, Protocol

from kafila_planner.model.types import Filtering, Mapping
from kafila_sidecar.net.candidates import Address, Interface

LAN_DELAY_S = 0.0002
FIRST_FREE_PORT = 40_000
BINDING_IDLE_S = 120.0  # RFC 4787 REQ-5: two minutes at least


class Packet(NamedTuple):
    source: Address
    target: Address
    data: bytes


Door = Callable[[Packet], None]
"""Takes what is sent to one IP address of a realm."""


class Clock(Protocol):
    """An event loop, or `hand_clock.HandClock`."""

    def time(self) -> float: ...
    def call_later(self, delay_s: float, action: Callable[[Packet], None], packet: Packet, /) -> object: ...


class Network:
    """The public realm, and the chances of the whole simulation. Delays are one way, in seconds.

    `clock` is the running event loop unless given.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        delay_s: float = 0.001,
        jitter_s: float = 0.0,
        loss: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.chance = random.Random(seed)
        self.clock: Clock = clock or asyncio.get_running_loop()
        self.public = Realm(self, delay_s=delay_s, jitter_s=jitter_s, loss=loss)
        self.sent: Counter[str] = Counter()  # datagrams that hosts sent, by the host's name


class Realm:
    """One address space. What it can't deliver goes to its uplink, if it has one."""

    def __init__(
        self,
        network: Network,
        *,
        delay_s: float = LAN_DELAY_S,
        jitter_s: float = 0.0,
        loss: float = 0.0,
        uplink: Door | None = None,
        isolates: bool = False,
    ) -> None:
        self.network = network
        self.delay_s, self.jitter_s, self.loss = delay_s, jitter_s, loss
        self.doors: dict[str, Door] = {}
        self._uplink = uplink
        self._isolates = isolates  # its hosts can't reach each other, as in a guest network

    def carry(self, packet: Packet) -> None:
        """From inside this realm to wherever the target is."""
        door = self.doors.get(packet.target[0])
        if door is None:
            if self._uplink:
                self._uplink(packet)
        elif not (self._isolates and packet.source[0] in self.doors):
            self.deliver(packet, door)

    def deliver(self, packet: Packet, door: Door) -> None:
        chance = self.network.chance
        if chance.random() >= self.loss:
            self.network.clock.call_later(self.delay_s + chance.random() * self.jitter_s, door, packet)


class Hairpin(Enum):
    """What becomes of a packet from inside to the box's own outside address (RFC 4787 section 6)."""

    NONE = auto()
    EXTERNAL = auto()  # it arrives from the sender's outside address, as REQ-9 wants
    INTERNAL = auto()  # it arrives from the sender's inside address
    ONE_WAY = auto()  # as EXTERNAL, but only for the host that was attached first


@dataclass(slots=True)
class Binding:
    """An outside port that leads to one inside address."""

    inside: Address
    port: int
    used_at: float
    contacted: set[Address] = field(default_factory=set)


class Box:
    """A NAT in `outer` at `address`; hosts attach to `inner`. The default is the ordinary home router."""

    def __init__(
        self,
        outer: Realm,
        address: str,
        *,
        mapping: Mapping = Mapping.ENDPOINT_INDEPENDENT,
        filtering: Filtering = Filtering.ADDRESS_AND_PORT_DEPENDENT,
        preserves_ports: bool = True,
        hairpin: Hairpin = Hairpin.NONE,
        isolates: bool = False,
        idle_s: float = BINDING_IDLE_S,
    ) -> None:
        self.mapping, self.filtering, self.hairpin = mapping, filtering, hairpin
        self.blocks_udp = False  # nothing from inside gets out
        self.lets_nothing_in = False
        self.refuses: set[str] = set()  # outside addresses from which nothing comes in
        self.inner = Realm(outer.network, uplink=self._outbound, isolates=isolates)
        self._outer = outer
        self._address = address
        self._preserves_ports = preserves_ports
        self._idle_s = idle_s
        self._bindings: dict[tuple[Address, ...] | tuple[Address, str], Binding] = {}
        self._by_port: dict[int, Binding] = {}
        outer.doors[address] = self._inbound

    def rebind(self) -> None:
        """Forgets every binding, and gives out other ports from now on: a router that restarted."""
        self._bindings.clear()
        self._by_port.clear()
        self._preserves_ports = False

    def move(self, address: str) -> None:
        """Another outside address, as after a new dial-in."""
        self.rebind()
        del self._outer.doors[self._address]
        self._address = address
        self._outer.doors[address] = self._inbound

    # ---- Private

    def _outbound(self, packet: Packet) -> None:
        if self.blocks_udp:
            return
        if packet.target[0] == self._address:
            self._hairpin(packet)
            return
        source = self._translate(packet)
        self._outer.carry(packet._replace(source=source))

    def _translate(self, packet: Packet) -> Address:
        """The outside source address of a packet from inside, whose target is let in from now on."""
        binding = self._binding(packet)
        binding.contacted.add(packet.target)
        binding.used_at = self._now
        return self._address, binding.port

    def _inbound(self, packet: Packet) -> None:
        binding = self._by_port.get(packet.target[1])
        if (
            self.lets_nothing_in
            or packet.source[0] in self.refuses
            or binding is None
            or binding.inside[0] not in self.inner.doors
        ):
            return
        if self._is_live(binding) and self._lets_in(binding, packet.source):
            self.inner.deliver(packet._replace(target=binding.inside), self.inner.doors[binding.inside[0]])

    def _hairpin(self, packet: Packet) -> None:
        first = next(iter(self.inner.doors))
        if self.hairpin is Hairpin.NONE or (self.hairpin is Hairpin.ONE_WAY and packet.source[0] != first):
            return
        outside = self._translate(packet)
        if self.hairpin is not Hairpin.INTERNAL:
            self._inbound(packet._replace(source=outside))
        elif binding := self._by_port.get(packet.target[1]):
            self.inner.deliver(packet._replace(target=binding.inside), self.inner.doors[binding.inside[0]])

    def _binding(self, packet: Packet) -> Binding:
        key = self._key(packet)
        known = self._bindings.get(key)
        if known is None or not self._is_live(known):
            known = self._bindings[key] = Binding(packet.source, self._free_port(packet.source[1]), self._now)
            self._by_port[known.port] = known
        return known

    def _key(self, packet: Packet) -> tuple[Address, ...] | tuple[Address, str]:
        if self.mapping is Mapping.ENDPOINT_INDEPENDENT:
            return (packet.source,)
        if self.mapping is Mapping.ADDRESS_DEPENDENT:
            return packet.source, packet.target[0]
        return packet.source, packet.target

    def _lets_in(self, binding: Binding, source: Address) -> bool:
        if self.filtering is Filtering.ENDPOINT_INDEPENDENT:
            return True
        if self.filtering is Filtering.ADDRESS_DEPENDENT:
            return source[0] in {host for host, _ in binding.contacted}
        return source in binding.contacted

    def _free_port(self, wanted: int) -> int:
        if self._preserves_ports and wanted not in self._by_port:
            return wanted
        while (port := self._outer.network.chance.randrange(FIRST_FREE_PORT, 65_536)) in self._by_port:
            pass
        return port

    def _is_live(self, binding: Binding) -> bool:
        return self._now - binding.used_at <= self._idle_s

    @property
    def _now(self) -> float:
        return self._outer.network.clock.time()


class Firewall:
    """Public addresses inside, which only who was contacted can reach: IPv6 at home."""

    def __init__(self, outer: Realm, *, filtering: Filtering = Filtering.ADDRESS_AND_PORT_DEPENDENT) -> None:
        self.inner = Realm(outer.network, uplink=self._outbound)
        self._outer = outer
        self._by_port = filtering is Filtering.ADDRESS_AND_PORT_DEPENDENT
        self._contacted: set[tuple[Address, str, int]] = set()

    def _outbound(self, packet: Packet) -> None:
        self._outer.doors.setdefault(packet.source[0], self._inbound)
        self._contacted.add(self._flow(packet.source, packet.target))
        self._outer.carry(packet)

    def _inbound(self, packet: Packet) -> None:
        if self._flow(packet.target, packet.source) in self._contacted:
            self.inner.deliver(packet, self.inner.doors[packet.target[0]])

    def _flow(self, inside: Address, outside: Address) -> tuple[Address, str, int]:
        return inside, outside[0], outside[1] if self._by_port else 0


class Host:
    """A machine with an address in each of `places`; the first of a family is its way to everywhere else."""

    def __init__(self, name: str, *places: tuple[Realm, str]) -> None:
        self.name = name
        self.places: tuple[tuple[Realm, str], ...] = ()
        self._sockets: dict[int, SimSocket] = {}
        self.move(*places)

    @property
    def network(self) -> Network:
        return self.places[0][0].network

    def move(self, *places: tuple[Realm, str]) -> None:
        """From now on the machine is elsewhere; its sockets stay open."""
        for realm, address in self.places:
            realm.doors.pop(address, None)
        self.places = places
        for realm, address in places:
            realm.doors[address] = self._receive

    def interfaces(self) -> list[Interface]:
        """What the operating system would tell."""
        return [Interface(f"eth{i}", True, (address,)) for i, (_, address) in enumerate(self.places)]

    def open(self, port: int, deliver: Callable[[list[tuple[bytes, Address]]], None]) -> "SimSocket":
        """A UDP socket on every address; `deliver` gets each batch of (datagram, source)."""
        sock = self._sockets[port] = SimSocket(self, port, deliver)
        return sock

    def send(self, port: int, datagrams: Iterable[bytes], target: Address) -> None:
        realm, address = self._way_to(target)
        for data in datagrams:
            self.network.sent[self.name] += 1
            if realm is not None:
                realm.carry(Packet((address, port), target, data))

    def close(self, port: int) -> None:
        self._sockets.pop(port, None)

    def _way_to(self, target: Address) -> tuple[Realm | None, str]:
        family = [place for place in self.places if (":" in place[1]) == (":" in target[0])]
        near = [place for place in family if target[0] in place[0].doors]
        return next(iter(near or family), (None, ""))

    def _receive(self, packet: Packet) -> None:
        if sock := self._sockets.get(packet.target[1]):
            sock.deliver([(packet.data, packet.source)])


class SimSocket:
    """What `UdpSocket` is to the endpoint, without a kernel."""

    forbids_fragments = False
    takes_ipv6 = True

    def __init__(self, host: Host, port: int, deliver: Callable[[list[tuple[bytes, Address]]], None]) -> None:
        self.address: Address = ("::", port)
        self.deliver = deliver
        self._host = host

    def send(self, datagrams: Sequence[bytes], target: Address) -> None:
        self._host.send(self.address[1], datagrams, target)

    def close(self) -> None:
        self._host.close(self.address[1])
