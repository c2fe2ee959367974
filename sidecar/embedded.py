"""The rendezvous that a host embeds when none is configured, and what is known of who can reach it."""

import asyncio
from contextlib import AsyncExitStack
from ipaddress import ip_address
from pathlib import Path

from rendezvous.certificate import keep_key_pair
from rendezvous.config import Config
from rendezvous.errors import RendezvousError
from rendezvous.server import serve
from sidecar.errors import from_code
from sidecar.net.candidates import host_candidates, system_interfaces
from sidecar.session.address import Address


class EmbeddedRendezvous:
    """Started with the first session that needs it; serves until `stack` is closed."""

    def __init__(self, *, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._address: Address | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> tuple[Address, str]:
        """Where it can be reached, and a sentence on by whom.

        Raises:
            Refused: no port can be opened, or its key can't be kept.
        """
        async with self._starting:
            if self._address is None:
                self._address = await self._serve()
        return self._address, _note(self._address.host)

    async def _serve(self) -> Address:
        try:
            config = Config(host="0.0.0.0", port=0, key_pair=keep_key_pair(self._folder))
            serving = await self._stack.enter_async_context(serve(config))
        except RendezvousError as error:
            raise from_code(error.code, str(error)) from error
        return Address(_best_address(), serving.port, serving.fingerprint)


def _best_address() -> str:
    """The address that others would most likely use."""
    found = [candidate.address for candidate in host_candidates(1, system_interfaces(), ipv6=False)]
    return next((address for address in found if not ip_address(address).is_loopback), "127.0.0.1")


def _note(host: str) -> str:
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
