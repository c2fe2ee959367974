"""What is known of the network around this node, and kept true: its NAT, where it is seen from, changes of either."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.lack import in_words
from kafila_sidecar.net.candidates import Address, Candidate, Interface, LatestLook, system_interfaces
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.nat.behaviour import Nat, StunServer
from kafila_sidecar.net.nat.classify import OwnSocket, Strays, classify
from kafila_sidecar.net.nat.mapped import MappedAddress
from kafila_sidecar.net.nat.watch import LOOK_EVERY_S, NetworkWatch
from kafila_sidecar.net.portmap.mapping import Mapped

log = logging.getLogger(__name__)

Classify = Callable[[OwnSocket, Sequence[StunServer]], Awaitable[Nat]]
MapPort = Callable[[int, Callable[[Mapped | None], None]], Awaitable[None]]
"""Has the router forward a port until cancelled and tells what stands; returns when it offers nothing."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Who hears when the endpoint's candidates are others, and which servers matter to it."""

    servers: tuple[StunServer, ...]
    changed: Callable[[], None]


class WatchedEndpoint(Protocol):
    """What this needs of the endpoint."""

    further: tuple[Candidate, ...]
    on_path_died: Callable[[], None]

    @property
    def address(self) -> Address: ...
    def send(self, datagrams: Sequence[bytes], target: Address) -> None: ...
    def hear(self, strays: Strays | None) -> None: ...
    def network_changed(self) -> None: ...


class NetworkMonitor:
    """One per node. `run` runs as long as the node does."""

    def __init__(
        self,
        own: WatchedEndpoint,
        *,
        interfaces: Callable[[], Iterable[Interface]] = system_interfaces,
        ask: Classify = classify,
        map_port: MapPort | None = None,
    ) -> None:
        self._own = own
        own.on_path_died = self._look_at_mapping
        self._interfaces = LatestLook(interfaces)
        self._ask = ask
        self._map_port = map_port
        self._mapping: asyncio.Task[None] | None = None
        self._reflexive: Candidate | None = None
        self._mapped: Candidate | None = None
        self._asking = asyncio.Lock()
        self._known: dict[tuple[StunServer, ...], Nat] = {}
        self._kept: MappedAddress | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._listeners: list[Listener] = []
        self._doubted = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def about(self, servers: Sequence[StunServer]) -> Nat:
        """The classification by these servers, made once for each network that this machine is in.

        Raises Unavailable when no socket can be opened for it.
        """
        wanted = tuple(servers)
        async with self._asking:
            if wanted not in self._known:
                self._known[wanted] = await self._classify(wanted)
            return self._known[wanted]

    def listen(self, listener: Listener) -> None:
        """From now on it hears of changes, and its servers are asked again after each."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    async def run(self) -> None:
        """Watches the machine's addresses, and what the NAT makes of them."""
        watch = NetworkWatch(self._interfaces())
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._doubted.wait(), LOOK_EVERY_S)
                if watch.look(self._interfaces()) or self._doubted.is_set():
                    await self._changed()
        finally:
            self._stop_keeping()
            await self._stop_mapping()

    # ---- Private

    async def _changed(self) -> None:
        """Everything that was known belongs to the network before: links search, peers hear, servers are asked."""
        log.info("network_changed")
        self._doubted.clear()
        self._known.clear()
        self._own.network_changed()
        self._tell()
        await self._stop_mapping()
        wanted = {listener.servers for listener in self._listeners if listener.servers}
        if not wanted:
            self._reflexive = None  # nobody can tell it here
            self._announce()
        for servers in wanted:
            with contextlib.suppress(KafilaError), in_words():  # asked again by whoever needs it
                await self.about(servers)

    async def _classify(self, servers: tuple[StunServer, ...]) -> Nat:
        if not servers:
            return Nat(udp=None)  # what other servers told stays, and is kept true
        self._stop_keeping()
        nat = await self._ask(self._own, servers)
        log.info("nat_classified mapping=%s filtering=%s udp=%s", nat.mapping, nat.filtering, nat.udp)
        self._reflexive = nat.candidate()
        self._announce()
        if nat.is_translated:
            self._start_mapping()
        now = self._loop.time()
        self._keep(MappedAddress(servers[0].place, blocked=not nat.udp, entropy=lambda: os.urandom(12), now=now))
        return nat

    def _announce(self) -> None:
        found = {candidate.target: candidate for candidate in (self._reflexive, self._mapped) if candidate}
        further = tuple(found.values())
        if further != self._own.further:
            self._own.further = further
            self._tell()

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener.changed()

    # ---- Having the router forward our port

    def _start_mapping(self) -> None:
        if self._map_port and self._mapping is None:
            self._mapping = asyncio.create_task(self._have_mapped(self._map_port), name="port mapping")

    async def _have_mapped(self, map_port: MapPort) -> None:
        try:
            with in_words():
                await map_port(self._own.address[1], self._told_mapped)
        except KafilaError as error:
            log.info("port_mapping_failed code=%s", error.code)

    async def _stop_mapping(self) -> None:
        """Gives the mapping up; the router of another network may offer what this one did not."""
        if self._mapping:
            self._mapping.cancel()
            await asyncio.wait([self._mapping])
        self._mapping, self._mapped = None, None

    def _told_mapped(self, mapped: Mapped | None) -> None:
        self._mapped = mapped.candidate() if mapped else None
        self._announce()

    # ---- Keeping the NAT's own mapping

    def _keep(self, kept: MappedAddress) -> None:
        self._kept = kept
        self._own.hear(self._take)
        self._arm(kept)

    def _stop_keeping(self) -> None:
        self._kept = None
        self._own.hear(None)
        if self._timer:
            self._timer.cancel()

    def _take(self, datagram: bytes, source: Address) -> bool:
        try:
            is_news = self._kept is not None and self._kept.receive(datagram, source)
        except BadDatagram:
            return False
        if is_news:
            self._doubted.set()
        return True

    def _look_at_mapping(self) -> None:
        """A direct path has died, perhaps because our NAT has rebound."""
        if self._kept is not None:
            self._kept.doubt(self._loop.time())
            self._arm(self._kept)

    def _arm(self, kept: MappedAddress) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_at(kept.next_timer(), self._on_timer)

    def _on_timer(self) -> None:
        if self._kept is not None:
            for datagram, server in self._kept.handle_timer(self._loop.time()):
                self._own.send((datagram,), server)
            self._arm(self._kept)
