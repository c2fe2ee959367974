"""The driver of port mapping: asks this machine's router by PCP and NAT-PMP, then by UPnP, and keeps what it gives."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.portmap import codec, upnp
from kafila_sidecar.net.portmap.codec import SERVER_PORT, MappingFailed, PmpAddress, Transport
from kafila_sidecar.net.portmap.gateway import default_gateway
from kafila_sidecar.net.portmap.mapping import LIFETIME_S, Mapped, MappingOffer, PortMap

log = logging.getLogger(__name__)

OFFER_WAITS_S = (0.25, 0.5)  # for an answer to each question whether a router maps ports
_DATAGRAM_BYTES = 2048

Told = Callable[[Mapped | None], None]
FindUpnp = Callable[[], Awaitable[upnp.Upnp | None]]


async def keep_mapped(
    transport: Transport,
    port: int,
    told: Told,
    *,
    router: Address | None = None,
    find_upnp: FindUpnp = upnp.find_router,
) -> None:
    """Keeps `port` mapped until cancelled, then gives the mapping up; `told` hears of each change.

    Returns when the router offers nothing: call again on another network. `router` is where PCP and NAT-PMP are asked,
    for who knows better than the routing table.
    """
    if router is None and (host := await asyncio.to_thread(default_gateway)):
        router = (host, SERVER_PORT)
    if router is not None:
        await _keep(transport, port, told, router)
    if (device := await find_upnp()) is not None:
        await _keep_upnp(device, transport, port, told)


async def find_offer(*, router: Address | None = None, find_upnp: FindUpnp = upnp.find_router) -> MappingOffer | None:
    """Who would map ports if asked; asks for nothing that changes anything."""
    if router is None and (host := await asyncio.to_thread(default_gateway)):
        router = (host, SERVER_PORT)
    if router is not None and (offer := await _offer_of(router)) is not None:
        return offer
    device = await find_upnp()
    if device is None:
        return None
    with contextlib.suppress(Unavailable):
        return MappingOffer("UPnP", await device.outside())
    return None


async def _offer_of(router: Address) -> MappingOffer | None:
    """A PCP router answers NAT-PMP's question as one of an unknown version, so one question finds both."""
    with _connected(router) as sock:
        for wait_s in OFFER_WAITS_S:
            _send(sock, codec.pmp_address())
            try:
                async with asyncio.timeout(wait_s):
                    answer = codec.parse(await _receive(sock))
            except (TimeoutError, BadDatagram):
                continue
            match answer:
                case PmpAddress(0, host):
                    return MappingOffer("NAT-PMP", host)
                case MappingFailed(is_pcp=True):
                    return MappingOffer("PCP", None)
    return None


async def _keep(transport: Transport, port: int, told: Told, router: Address) -> None:
    """Until the router turns out to speak neither protocol."""
    loop = asyncio.get_running_loop()
    with _connected(router) as sock:
        client = sock.getsockname()[0]
        core = PortMap(transport=transport, port=port, client=client, nonce=os.urandom(12), now=loop.time())
        known: Mapped | None = None
        try:
            while (due := core.next_timer()) is not None:
                _send(sock, *core.handle_timer(loop.time()))
                with contextlib.suppress(TimeoutError, BadDatagram):
                    async with asyncio.timeout_at(core.next_timer() or due):
                        _send(sock, *core.receive(await _receive(sock), loop.time()))
                if core.mapped != known:
                    known = core.mapped
                    log.info("port_map protocol=%s refusal=%s", known and known.protocol, core.refusal)
                    told(known)
        finally:
            _send(sock, *core.release())


async def _keep_upnp(device: upnp.Upnp, transport: Transport, port: int, told: Told) -> None:
    """Until the router stops mapping."""
    known: Mapped | None = None
    try:
        while True:
            mapped = await device.map(transport, port)
            if mapped != known:
                known = mapped
                told(known)
            await asyncio.sleep(LIFETIME_S / 2)
    except Unavailable as error:
        log.info("port_map_refused reason=%s", error)
        if known is not None:
            told(None)
    finally:
        if known is not None:
            with contextlib.suppress(Unavailable):
                await device.release(transport, known.outside[1])


@contextlib.contextmanager
def _connected(router: Address) -> Iterator[socket.socket]:
    """A socket that hears this router only."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # no route: nothing will be heard
            sock.connect(router)
        yield sock


def _send(sock: socket.socket, *datagrams: bytes) -> None:
    """What can't be sent is asked again later."""
    for datagram in datagrams:
        with contextlib.suppress(OSError):
            sock.send(datagram)


async def _receive(sock: socket.socket) -> bytes:
    """The next datagram; a router that refuses by ICMP has said nothing."""
    while True:
        try:
            return await asyncio.get_running_loop().sock_recv(sock, _DATAGRAM_BYTES)
        except OSError:
            await asyncio.sleep(0.01)
