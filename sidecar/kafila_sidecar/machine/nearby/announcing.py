"""Says on this network where the embedded rendezvous is: no names, no words, and not which rooms there are."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from zeroconf import Error, ServiceInfo
from zeroconf.asyncio import AsyncZeroconf

from kafila_rendezvous.series import embedded_series
from kafila_sidecar.machine.nearby.service import Announced, Network, open_mdns, to_service

log = logging.getLogger(__name__)


@asynccontextmanager
async def announced(port: int, fingerprint: str, networks: Sequence[Network]) -> AsyncIterator[bool]:
    """Whether it is: not without a network that carries multicast, nor where another one has the number already, nor
    where this machine has a public address, at which the internet could ask it too, and in another's name."""
    mdns = await _registered(
        to_service(_told(port, fingerprint, networks), embedded_series(fingerprint).first), networks
    )
    try:
        yield mdns is not None
    finally:
        if mdns is not None:
            await mdns.async_unregister_all_services()
            await mdns.async_close()


def _told(port: int, fingerprint: str, networks: Sequence[Network]) -> Announced:
    return Announced(tuple(str(one.ip) for one in networks), port, fingerprint)


async def _registered(service: ServiceInfo, networks: Sequence[Network]) -> AsyncZeroconf | None:
    """Returns once nobody objected to the name, which takes about half a second."""
    if not networks or any(one.ip.is_global for one in networks):
        return None
    try:
        mdns = open_mdns(networks)
    except OSError as error:
        log.info("not_announced error=%s", error.strerror)
        return None
    try:
        await mdns.async_register_service(service)
    except BaseException as error:
        await mdns.async_close()
        if not isinstance(error, OSError | Error):
            raise
        log.info("not_announced error=%s", type(error).__name__)
        return None
    return mdns
