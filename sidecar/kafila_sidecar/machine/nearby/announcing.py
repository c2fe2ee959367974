"""Says on this network where the embedded rendezvous is: no names, no words, and not which rooms there are."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext

from zeroconf import Error, ServiceInfo

from kafila_rendezvous.series import embedded_series
from kafila_sidecar.machine.nearby.service import Announced, Network, open_mdns, own_networks, to_service

log = logging.getLogger(__name__)


class Announcement:
    """One that is made anew whenever this machine is in other networks. `stands`: its networks were told."""

    def __init__(self, networks: Callable[[], Sequence[Network]] = own_networks) -> None:
        self.stands = False
        self._networks = networks
        self._doubted = asyncio.Event()

    def doubt(self) -> None:
        """The networks may be others."""
        self._doubted.set()

    @asynccontextmanager
    async def kept(self, port: int, fingerprint: str) -> AsyncIterator[None]:
        """Begins once the first one stands, or none can be made here."""
        tried = asyncio.Event()
        keeping = asyncio.create_task(self._keep(port, fingerprint, tried), name="announcement")
        keeping.add_done_callback(lambda _: tried.set())
        try:
            await tried.wait()
            yield
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])

    async def _keep(self, port: int, fingerprint: str, tried: asyncio.Event) -> None:
        while True:
            networks = self._networks()
            try:
                async with announced(port, fingerprint, networks) as self.stands:
                    tried.set()
                    await self._until_others_than(networks)
            finally:
                self.stands = False

    async def _until_others_than(self, networks: Sequence[Network]) -> None:
        while self._networks() == networks:
            await self._doubted.wait()
            self._doubted.clear()


@asynccontextmanager
async def announced(port: int, fingerprint: str, networks: Sequence[Network]) -> AsyncIterator[bool]:
    """Whether it is: not without a network that carries multicast, nor where another one has the number already, nor
    where this machine has a public address, at which the internet could ask it too, and in another's name."""
    service = to_service(_told(port, fingerprint, networks), embedded_series(fingerprint).first)
    is_public = any(one.ip.is_global for one in networks)
    registered = await _registered(service, networks) if networks and not is_public else None
    async with registered or nullcontext():
        yield registered is not None


def _told(port: int, fingerprint: str, networks: Sequence[Network]) -> Announced:
    return Announced(tuple(str(one.ip) for one in networks), port, fingerprint)


async def _registered(service: ServiceInfo, networks: Sequence[Network]) -> AsyncExitStack | None:
    """What takes it back. Returns once nobody objected to the name, which takes about half a second."""
    try:
        async with AsyncExitStack() as stack:
            mdns = open_mdns(networks)
            stack.push_async_callback(mdns.async_close)
            await mdns.async_register_service(service)
            stack.push_async_callback(mdns.async_unregister_all_services)
            return stack.pop_all()
    except (OSError, Error) as error:
        log.info("not_announced error=%r", error)
        return None
