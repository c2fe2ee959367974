"""Members on any machines: the rendezvous' own STUN and relay cores, and the node's own endpoint on each."""

import asyncio
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from kafila_rendezvous.config import RendezvousLimits
from kafila_rendezvous.errors import RendezvousError
from kafila_rendezvous.pace import Pace
from kafila_rendezvous.udp.relay import Relay, Source
from kafila_rendezvous.udp.stun import SocketPlace, Stun
from kafila_rendezvous.udp.token import Tokens
from kafila_sidecar.net.candidates import Address, Candidate, Interface
from kafila_sidecar.net.link.endpoint import Endpoint
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.streams import OnStream
from kafila_sidecar.net.nat.behaviour import Nat, StunServer
from kafila_sidecar.net.nat.classify import OwnSocket, classify
from kafila_sidecar.net.nat.monitor import Listener, NetworkMonitor
from kafila_sidecar.net.relay.driver import RelayAccess
from kafila_sidecar.net.relay.end import Token
from kafila_sidecar.net.udp import Received, Socket
from tests.sidecar.net.people import KEY, SESSION, LinkPerson, ignore, person
from tests.support.simnet import Host, Network

PORTS = (3478, 3479)
NODE_PORT, SPARE_PORT = 5000, 6000
DEADLINE_S = 20.0
PEOPLE = sorted((person() for _ in range(16)), key=lambda p: p.fingerprint)
"""In the order of their fingerprints: of two, the earlier one dials."""


Deliver = Callable[[list[Received]], None]


class AnyMachine(Protocol):
    """What members and the rendezvous run on: `simnet.Host`, or a network namespace."""

    name: str

    def open(self, port: int, deliver: Deliver) -> Socket: ...
    def interfaces(self) -> list[Interface]: ...


class SimRendezvous:
    """STUN at one or two addresses, the relay at the first, and signalling that takes as long and loses nothing.

    `open_at(address, port, deliver)` opens its sockets; `delay_s` is one way, of calls over TCP.
    """

    def __init__(self, *addresses: str, delay_s: float, open_at: Callable[[str, int, Deliver], Socket]) -> None:
        self.loop = asyncio.get_running_loop()
        self.delay_s = delay_s
        self.has_relay = True
        self.streamed = 0  # datagrams that came by stream
        self.server = StunServer(addresses[0], PORTS[0], PORTS[1], *addresses[1:])
        pace = Pace(per_s=1e6, burst=1_000_000, salt=b"")
        self._stun = Stun(addresses=addresses, ports=PORTS, pace=pace)
        self._tokens = Tokens(secret=b"s" * 32, ttl_s=3600, bytes_per_s=1 << 30)
        self.relay = Relay(tokens=self._tokens, limits=RendezvousLimits(), pace=pace, entropy=os.urandom)
        self._sockets = {
            SocketPlace(i, j): open_at(address, port, self._listener(SocketPlace(i, j)))
            for i, address in enumerate(addresses)
            for j, port in enumerate(PORTS)
        }
        self._streams: dict[Source, Callable[[bytes], None]] = {}
        self._cut_off: set[str] = set()  # members by name, whose TCP carries nothing at present
        self._numbers = itertools.count(70_000)

    @classmethod
    def simulated(cls, network: Network, *addresses: str) -> "SimRendezvous":
        hosts = {address: Host(f"rendezvous {address}", (network.public, address)) for address in addresses}
        return cls(
            *addresses,
            delay_s=network.public.delay_s,
            open_at=lambda address, port, deliver: hosts[address].open(port, deliver),
        )

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()

    def cut_off(self, member: str) -> None:
        """Nothing travels between this member and the rendezvous by TCP; what is sent meanwhile is lost."""
        self._cut_off.add(member)

    def reconnect(self, member: str) -> None:
        self._cut_off.discard(member)

    def is_cut_off(self, member: str) -> bool:
        return member in self._cut_off

    async def token(self, mailbox: int, peer: int) -> Token:
        """What the call over TCP gives, after its round trip."""
        await asyncio.sleep(2 * self.delay_s)
        token, key = self._tokens.issue(serial=1, mailbox=mailbox, peer=peer, now=self.loop.time())
        return Token(token, key, self._tokens.ttl_s)

    def signal(self, deliver: Callable[[], None]) -> None:
        """One message from a member to another one."""
        self.loop.call_later(2 * self.delay_s, deliver)

    @property
    def streams(self) -> int:
        return len(self._streams)

    def open_stream(self, member: str, deliver: Callable[[bytes], None], opened: Callable[[], None]) -> "Pipe":
        source = ("192.0.2.200", next(self._numbers))
        self._streams[source] = lambda data: None if self.is_cut_off(member) else deliver(data)
        return Pipe(self, member, source, opened)

    def take(self, datagram: bytes, source: Source) -> None:
        """One datagram for the relay."""
        if not self.has_relay:
            return
        sending = self.relay.receive(datagram, source, self.loop.time())
        if sending is None:
            return
        data, target = bytes(sending[0]), sending[1]
        if target in self._streams:
            self.loop.call_later(self.delay_s, self._streams[target], data)
        else:
            self._sockets[SocketPlace(0, 0)].send([data], (target[0], target[1]))

    def _listener(self, place: SocketPlace) -> Callable[[list[tuple[bytes, Address]]], None]:
        return lambda batch: self._receive(batch, place)

    def _receive(self, batch: list[tuple[bytes, Address]], place: SocketPlace) -> None:
        for datagram, source in batch:
            if datagram[0] > 3:
                self.take(datagram, source)
                continue
            try:
                answer = self._stun.receive(datagram, source, place, self.loop.time())
            except RendezvousError:
                continue
            self._sockets[answer.place].send([answer.datagram], source)


@dataclass
class Pipe:
    """The relay's stream, without gRPC."""

    rendezvous: SimRendezvous
    member: str
    source: Source
    opened: Callable[[], None]

    def send(self, datagrams: Sequence[bytes]) -> None:
        if self.rendezvous.is_cut_off(self.member):
            return
        self.rendezvous.streamed += len(datagrams)
        for datagram in datagrams:
            self.rendezvous.loop.call_later(self.rendezvous.delay_s, self.rendezvous.take, datagram, self.source)

    async def run(self) -> None:
        self.opened()
        await asyncio.Event().wait()


@dataclass
class NetMember:
    """One machine: what the sidecar has, with a simulated socket below."""

    rendezvous: SimRendezvous
    host: AnyMachine
    person: LinkPerson
    mailbox: int
    on_stream: OnStream = ignore
    known: dict[int, list[Candidate]] = field(default_factory=dict)  # by mailbox

    def __post_init__(self) -> None:
        self.endpoint = Endpoint(
            lambda deliver: self.host.open(NODE_PORT, deliver), host=None, interfaces=self.host.interfaces
        )
        self.monitor = NetworkMonitor(self.endpoint, interfaces=self.host.interfaces, ask=self._ask)
        self.running = asyncio.create_task(self.monitor.run())

    async def classify(self) -> Nat:
        return await self.monitor.about([self.rendezvous.server])

    async def link(self, peer: "NetMember", *, deadline_s: float = DEADLINE_S, udp: bool = True) -> Link:
        """This end of a link; the other end does the same."""
        return await self.endpoint.connect(
            session=SESSION,
            key=KEY,
            me=self.person,
            peer_name=peer.host.name,
            peer_fingerprint=peer.person.fingerprint,
            candidates=self.known.get(peer.mailbox, []),
            deadline_s=deadline_s,
            on_stream=self.on_stream,
            relay=RelayAccess(
                self.rendezvous.server.place,
                lambda: self.rendezvous.token(self.mailbox, peer.mailbox),
                partial(self.rendezvous.open_stream, self.host.name),
            ),
            udp=udp,
        )

    def announce(self, peers: Iterable["NetMember"]) -> None:
        """Tells others where this one is."""
        candidates = self.endpoint.candidates()
        for peer in peers:
            self.rendezvous.signal(lambda peer=peer: peer.learn(self, candidates))  # type: ignore[misc]

    def learn(self, peer: "NetMember", candidates: list[Candidate]) -> None:
        self.known[peer.mailbox] = candidates
        self.endpoint.announced(
            session=SESSION,
            key=KEY,
            me=self.person,
            peer_fingerprint=peer.person.fingerprint,
            candidates=candidates,
        )

    def listen(self, peer: "NetMember") -> None:
        """From now on the peer hears of other candidates."""
        self.monitor.listen(Listener((self.rendezvous.server,), lambda: self.announce([peer])))

    async def close(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])
        await self.endpoint.close()

    async def _ask(self, own: OwnSocket, servers: Sequence[StunServer]) -> Nat:
        return await classify(
            own,
            servers,
            interfaces=self.host.interfaces,
            open_spare=lambda deliver: self.host.open(SPARE_PORT, deliver),
        )


async def linked(a: NetMember, b: NetMember) -> tuple[tuple[Nat, Nat], tuple[Link, Link]]:
    """Introduces two members as a session does, at once and again when candidates change, and links them."""
    for one, other in ((a, b), (b, a)):
        one.listen(other)
        one.announce([other])
    nats = asyncio.gather(a.classify(), b.classify())
    links = await asyncio.gather(a.link(b), b.link(a))
    return (await nats)[:2], links[:2]
