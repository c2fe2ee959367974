"""Having a router forward a port by UPnP (Internet Gateway Device), through miniupnpc where it is installed.

The library blocks, so each call runs on a thread of its own; it ends by itself within its own time limits.
"""

import asyncio
import importlib
import logging
from typing import Any

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net.candidates import is_port, unusable
from kafila_sidecar.net.portmap.codec import Transport
from kafila_sidecar.net.portmap.mapping import LIFETIME_S, Mapped

log = logging.getLogger(__name__)

DISCOVERY_MS = 1000
DEADLINE_S = 6.0  # for each call


class Upnp:
    """A router found by `find_router`."""

    def __init__(self, library: Any) -> None:
        self._library = library

    async def outside(self) -> str:
        """The router's own address. Raises Unavailable."""
        return read_host(await _call(self._library.externalipaddress))

    async def map(self, transport: Transport, port: int) -> Mapped:
        """The same port outside, or another where that is taken, for `LIFETIME_S`. Raises Unavailable."""
        outside = await self.outside()  # first: who has none maps nothing that would be of use
        wanted = (transport.value.upper(), self._library.lanaddr, port, "Kafila", "")
        try:
            await _call(self._library.addportmapping, port, *wanted, LIFETIME_S)
            outer = port
        except Unavailable:
            outer = read_port(await _call(self._library.addanyportmapping, port, *wanted, LIFETIME_S))
        return Mapped("UPnP", (outside, outer))

    async def release(self, transport: Transport, outer: int) -> None:
        """Gives the mapping up. Raises Unavailable."""
        await _call(self._library.deleteportmapping, outer, transport.value.upper())


async def find_router(description: str | None = None) -> Upnp | None:
    """The first router that answers; None when there is none, or no miniupnpc. `description`: its URL, if known."""
    try:
        miniupnpc = importlib.import_module("miniupnpc")
    except ImportError:
        log.info("upnp_left_out reason=miniupnpc is not installed")
        return None
    library = miniupnpc.UPnP()
    library.discoverdelay = DISCOVERY_MS
    try:
        if description is None:
            await _call(library.discover)
        await _call(library.selectigd, *([description] if description else []))
    except Unavailable:
        return None
    return Upnp(library)


def read_host(said: object) -> str:
    """A router's address outside, as the library hands its text over. Raises Unavailable."""
    if why := unusable(str(said)):
        raise Unavailable(f"the router says by UPnP that its address is {str(said)[:60]!r}: {why}")
    return str(said)


def read_port(said: object) -> int:
    """A port outside, likewise. Raises Unavailable."""
    text = str(said)
    if len(text) > 5 or not (text.isascii() and text.isdigit()) or not is_port(int(text)):
        raise Unavailable(f"the router says by UPnP that it mapped port {text[:60]!r}, which there is not")
    return int(text)


async def _call(function: Any, *arguments: Any) -> Any:
    """One call of the library's; what it raises is an Exception with words."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await asyncio.to_thread(function, *arguments)
    except TimeoutError as error:
        raise Unavailable(f"the router did not answer by UPnP within {DEADLINE_S:g} s") from error
    except Exception as error:
        raise Unavailable(f"the router refused by UPnP: {error}") from error
