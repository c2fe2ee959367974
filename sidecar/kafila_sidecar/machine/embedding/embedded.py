"""The rendezvous that a host embeds when none is configured, and what is known of who can reach it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

from kafila_rendezvous.certificate import read_key_pair
from kafila_rendezvous.errors import CannotServe
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.lack import in_words
from kafila_sidecar.machine.embedding.rendezvous_process import RendezvousProcess, ServedPorts
from kafila_sidecar.net.candidates import host_candidates, system_interfaces
from kafila_sidecar.net.portmap.codec import Transport
from kafila_sidecar.net.portmap.driver import Told
from kafila_sidecar.net.portmap.mapping import Mapped
from kafila_sidecar.session.rendezvous.address import RendezvousAddress

log = logging.getLogger(__name__)


MAPPING_PATIENCE_S = 2.0  # for the router's answer, before the code is printed

UNHEARD = ". This network can't be told of it (mDNS), so the code carries the address"

MapPort = Callable[[Transport, int, Told], Awaitable[None]]
"""Has the router forward a port until cancelled and tells what stands; returns when it offers nothing."""


class NetworkTold(Protocol):
    """Tells this network of a port and a certificate's fingerprint for as long as it is `kept`; `stands`: it could."""

    stands: bool

    def doubt(self) -> None: ...
    def kept(self, port: int, fingerprint: str) -> AbstractAsyncContextManager[None]: ...


def best_address() -> str:
    """The address that others would most likely use."""
    try:
        interfaces = system_interfaces()
    except OSError as error:  # no descriptor to ask with
        log.warning("interfaces_unknown error=%s", error.strerror)
        return "127.0.0.1"
    found = [candidate.address for candidate in host_candidates(1, interfaces, ipv6=False)]
    return next((address for address in found if not ip_address(address).is_loopback), "127.0.0.1")


class EmbeddedRendezvous:
    """Started with the first session that needs it; serves until `stack` is closed, or nobody needed it after all."""

    def __init__(
        self,
        *,
        folder: Path,
        stack: AsyncExitStack,
        map_port: MapPort | None,
        announcement: NetworkTold | None = None,
        is_needed: Callable[[RendezvousAddress], bool] = lambda _: True,
        own_address: Callable[[], str] = best_address,
        patience_s: float = MAPPING_PATIENCE_S,
    ) -> None:
        """`map_port` None: the router is not asked. `announcement` None: this network is told nothing. `is_needed`: a
        session may be found there. `own_address`: where others would reach this machine."""
        self._is_needed = is_needed
        self._own_address = own_address
        self._patience_s = patience_s
        self._folder = folder
        self._serving = AsyncExitStack()
        stack.push_async_callback(self._serving.aclose)
        self._borrowers = 0  # who may need it in a moment
        self._map_port = map_port
        self._announcement = announcement
        self._served: ServedPorts | None = None
        self._outside: Mapped | None = None  # what the router forwards to it
        self._mapping: list[asyncio.Task[None]] = []
        self._starting = asyncio.Lock()

    async def start(self) -> tuple[RendezvousAddress, str]:
        """Where it can be reached, and a sentence on by whom.

        Raises:
            Refused: no port can be opened, or its key can't be kept.
            Unavailable: its process can't be started.
        """
        async with self._starting:
            if self._served is None:
                self._served = await self._serve()
        address = self._place(self._served)
        note = rendezvous_note(address, self._outside.outside if self._outside else None)
        is_unheard = self._announcement is not None and not self._announcement.stands
        return address, note + (UNHEARD if is_unheard and is_of_a_network(address) else "")

    def moved(self) -> None:
        """This machine's network is another one."""
        if self._announcement is not None:
            self._announcement.doubt()

    def is_found_by_number(self, address: RendezvousAddress) -> bool:
        """Whether members on this network need no address: it is this one, and this network was told of it."""
        is_told = self._announcement is not None and self._announcement.stands
        return is_told and self._served is not None and self._served.fingerprint == address.fingerprint

    def is_own(self, address: RendezvousAddress) -> bool:
        """Whether it is, or was, this machine's, by its certificate."""
        try:
            pair = read_key_pair(self._folder / "certificate.pem", self._folder / "key.pem")
        except CannotServe:
            return False
        return address.fingerprint == pair.fingerprint

    @contextlib.asynccontextmanager
    async def lent(self) -> AsyncIterator[tuple[RendezvousAddress, str]]:
        """The same, for somebody who may find no use for it: it ends then, unless a session needs it. Raises as `start`
        does."""
        self._borrowers += 1
        try:
            yield await self.start()
        finally:
            self._borrowers -= 1
            await self._end_if_idle()

    async def _end_if_idle(self) -> None:
        async with self._starting:
            if self._borrowers or self._served is None or self._is_needed(self._place(self._served)):
                return
            log.info("rendezvous_not_needed")
            self._served = self._outside = None
            await self._serving.aclose()

    def _place(self, served: ServedPorts) -> RendezvousAddress:
        """In the network that this machine is in now."""
        return RendezvousAddress(self._own_address(), served.port, served.fingerprint)

    async def _serve(self) -> ServedPorts:
        process = RendezvousProcess(self._folder)
        served = await process.start()
        self._serving.push_async_callback(process.stop)
        if self._announcement is not None:
            await self._serving.enter_async_context(self._announcement.kept(served.port, served.fingerprint))
        here = ip_address(self._own_address())
        is_behind_a_router = here.is_private and not here.is_loopback
        if is_behind_a_router and self._map_port is not None:
            await self._have_mapped(served, self._map_port)
        return served

    async def _have_mapped(self, served: ServedPorts, map_port: MapPort) -> None:
        """Asks the router to let in members from elsewhere. Without the UDP ports they use the relay by its stream."""
        answered = asyncio.Event()

        def told(mapped: Mapped | None) -> None:
            self._outside = mapped
            answered.set()

        tcp = asyncio.create_task(_keep(map_port(Transport.TCP, served.port, told)), name="map the rendezvous")
        tcp.add_done_callback(lambda _: answered.set())
        udp = [_keep(map_port(Transport.UDP, port, lambda _: None)) for port in served.udp_ports]
        self._mapping = [tcp, *(asyncio.create_task(keeping) for keeping in udp)]
        self._serving.push_async_callback(self._stop_mapping)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(answered.wait(), self._patience_s)

    async def _stop_mapping(self) -> None:
        for task in self._mapping:
            task.cancel()
        await asyncio.wait(self._mapping)


def is_of_a_network(address: RendezvousAddress) -> bool:
    """Neither this machine's alone nor the internet's, where announcements have no place."""
    host = ip_address(address.host)
    return not (host.is_loopback or host.is_global)


async def _keep(mapping: Awaitable[None]) -> None:
    try:
        with in_words():
            await mapping
    except KafilaError as error:
        log.info("port_mapping_failed code=%s", error.code)


def rendezvous_note(address: RendezvousAddress, outside: tuple[str, int] | None) -> str:
    host = address.host
    if outside is not None and ip_address(outside[0]).is_global:
        elsewhere = RendezvousAddress(*outside, address.fingerprint)
        return (
            "the rendezvous runs on this machine, and the router forwards a port to it, as far as can be told: members"
            f" elsewhere write @{elsewhere} after the code's words"
        )
    if ip_address(host).is_loopback:
        return "the rendezvous runs on this machine, and only this machine can reach it"
    if ip_address(host).is_global:
        return (
            "the rendezvous runs on this machine, which has a public address: reachable from outside unless a firewall"
            " is in the way"
        )
    return (
        "the rendezvous runs on this machine: reachable from this network only, as far as can be told. For members"
        " elsewhere, run `kafila-rendezvous --listen 0.0.0.0:7770` on any server with a public address"
        " and set KAFILA_RENDEZVOUS to the line that it prints"
    )
