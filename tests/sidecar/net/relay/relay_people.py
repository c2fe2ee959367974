"""A relay and members on a simulated internet: both cores, joined by datagrams."""

import random
from collections.abc import Sequence

from kafila_rendezvous.config import RendezvousLimits
from kafila_rendezvous.errors import RendezvousError
from kafila_rendezvous.pace import Pace
from kafila_rendezvous.udp.relay import Relay
from kafila_rendezvous.udp.token import Tokens
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.relay.client import ChannelBound, Deliver, NeedToken, Output, RelayClient, Send
from kafila_sidecar.net.relay.end import Token
from kafila_sidecar.net.udp import Received
from tests.support.hand_clock import Clocked, HandClock
from tests.support.simnet import Host, Network, Realm

SERVER = ("192.0.2.1", 7770)


class RelayServer:
    """`restart` forgets everything, as a new process would."""

    def __init__(self, clock: HandClock, network: Network, *, ttl_s: float = 3600.0) -> None:
        self._clock, self._ttl_s = clock, ttl_s
        self._chance = random.Random(5)
        self.is_up = True
        self.bound = 0  # answers that bound an end
        self.restart()
        self._socket = Host("relay", (network.public, SERVER[0])).open(SERVER[1], self._take)

    def restart(self) -> None:
        self.tokens = Tokens(secret=self._chance.randbytes(32), ttl_s=self._ttl_s, bytes_per_s=10**7)
        self.keep(RendezvousLimits())

    def keep(self, limits: RendezvousLimits) -> None:
        """From now on other limits, with no channel yet."""
        pace = Pace(per_s=1e6, burst=10**6, salt=b"")
        self.relay = Relay(tokens=self.tokens, limits=limits, pace=pace, entropy=self._chance.randbytes)

    def token(self, mailbox: int, peer: int) -> Token:
        token, key = self.tokens.issue(serial=1, mailbox=mailbox, peer=peer, now=self._clock.now)
        return Token(token, key, self._ttl_s)

    def _take(self, batch: Sequence[Received]) -> None:
        for data, source in batch:
            self._receive(data, source)

    def _receive(self, data: bytes, source: Address) -> None:
        if not self.is_up:
            return
        self.relay.handle_timer(self._clock.now)
        try:
            sending = self.relay.receive(data, source, self._clock.now)
        except RendezvousError:
            return
        if sending is not None:
            self.bound += sending[0][0] == 11
            self._socket.send([bytes(sending[0])], sending[1][:2])


class RelayMember:
    """One member with a socket; `heard` is what came out of its channels."""

    def __init__(self, clock: HandClock, realm: Realm, address: str, mailbox: int, server: RelayServer) -> None:
        chance = random.Random(mailbox)
        self.core = RelayClient(lambda: chance.randbytes(8))
        self.heard: list[tuple[bytes, Address]] = []
        self.bound: list[Address] = []
        self.asked = 0  # for tokens
        self.refused = 0
        self._clock, self._server, self._mailbox = clock, server, mailbox
        self._peers: dict[Address, int] = {}
        self._socket = Host(f"member {mailbox}", (realm, address)).open(5000, self._take)
        self._clocked = Clocked(clock, self.core.next_timer, self._fire)

    def open(self, peer: int) -> Address:
        path = self.core.open(SERVER, self._clock.now)
        self._peers[path] = peer
        self._fire()
        return path

    def send(self, data: bytes, path: Address) -> bool:
        wrapped = self.core.wrap([data], path)
        if wrapped is None:
            return False
        self._socket.send(*wrapped)
        return True

    def act(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            match output:
                case Send(datagram, server):
                    self._socket.send([datagram], server)
                case Deliver(datagram, path):
                    self.heard.append((datagram, path))
                case ChannelBound(path):
                    self.bound.append(path)
                case NeedToken(path):
                    self.asked += 1
                    if self._server.is_up:
                        token = self._server.token(self._mailbox, self._peers[path])
                        self.act(self.core.use(path, token, self._clock.now))
        self._clocked.arm()

    def _take(self, batch: Sequence[Received]) -> None:
        for data, source in batch:
            self._receive(data, source)

    def _receive(self, data: bytes, source: Address) -> None:
        try:
            self.act(self.core.receive(data, source, self._clock.now))
        except BadDatagram:
            self.refused += 1

    def _fire(self) -> None:
        self.act(self.core.handle_timer(self._clock.now))
