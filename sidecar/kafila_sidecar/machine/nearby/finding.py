"""Asks this network where the rendezvous of a code's number is. Whoever answers first is believed no further than the
host, once the code is proved, says the same."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from zeroconf import Error
from zeroconf.asyncio import AsyncServiceInfo

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.machine.nearby.service import TYPE, Announced, Network, from_service, open_mdns, service_name
from kafila_sidecar.session.rendezvous.address import RendezvousAddress, parse_address

log = logging.getLogger(__name__)

PATIENCE_S = 3.0  # questions go out at once, after 0.2 s, 0.6 s and so on
_CONNECTING_S = 1.0


async def find(room: int, networks: Sequence[Network], *, patience_s: float = PATIENCE_S) -> RendezvousAddress | None:
    """None where nobody answers in time, or nothing that makes sense."""
    said = await heard(room, networks, patience_s) if networks else None
    if said is None:
        return None
    for address in said.addresses:
        with contextlib.suppress(OSError, TimeoutError, InvalidInput):
            place = parse_address(f"{address}:{said.port}#{said.fingerprint}")
            await _reached(place)
            return place
    return None


async def heard(room: int, networks: Sequence[Network], patience_s: float) -> Announced | None:
    """What somebody here says of it; None where nobody does in time, or nothing that can be true."""
    service = AsyncServiceInfo(TYPE, service_name(room))
    try:
        mdns = open_mdns(networks)
        try:
            was_answered = await service.async_request(mdns.zeroconf, patience_s * 1000)
        finally:
            await mdns.async_close()
    except (OSError, Error) as error:
        log.info("not_asked_nearby error=%r", error)
        return None
    return from_service(service, networks) if was_answered else None


async def _reached(place: RendezvousAddress) -> None:
    """Raises OSError or TimeoutError where nobody listens."""
    async with asyncio.timeout(_CONNECTING_S):
        _, writer = await asyncio.open_connection(place.host, place.port)
    writer.transport.abort()
