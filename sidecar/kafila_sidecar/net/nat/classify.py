"""The driver of `check`: one classification over the node's own socket and a spare one."""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kafila_sidecar.net.candidates import Address, Interface, system_interfaces
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.nat.behaviour import Nat, StunServer
from kafila_sidecar.net.nat.check import NatCheck, Sending
from kafila_sidecar.net.udp import OpenSocket, Received, Socket, UdpSocket, open_socket

Strays = Callable[[bytes, Address], bool]
"""Takes a STUN message that belongs to no link; true when it was waited for."""


class OwnSocket(Protocol):
    """What the node's one socket lends: sending, and the STUN messages that belong to nobody else."""

    def send(self, datagrams: Sequence[bytes], target: Address) -> None:
        """In order; what can't be sent is lost."""

    def hear(self, strays: Strays | None) -> None:
        """From now on `strays` gets each STUN response that belongs to no link; None: nobody does."""


def open_anywhere(deliver: Callable[[list[Received]], None]) -> Socket:
    """A socket at a free port. Raises Unavailable."""
    return UdpSocket(open_socket(None, 0), deliver)


async def classify(
    own: OwnSocket,
    servers: Sequence[StunServer],
    *,
    interfaces: Callable[[], Iterable[Interface]] = system_interfaces,
    open_spare: OpenSocket = open_anywhere,
) -> Nat:
    """Takes a round trip or two where nothing is lost or kept out, 2.5 s where no server answers.

    `servers` are of one family. One classification at a time uses `own`. Raises Unavailable when no spare socket can
    be opened.
    """
    local = frozenset(address for interface in interfaces() for address in interface.addresses)
    classification = _Classification(own, servers, local, open_spare)
    try:
        return await classification.done
    finally:
        classification.close()


class SoleSocket:
    """A socket that serves as `OwnSocket` where there is no endpoint; close it in the end. Raises Unavailable."""

    def __init__(self) -> None:
        self._strays: Strays | None = None
        self._udp = open_anywhere(self._deliver)

    @property
    def port(self) -> int:
        return self._udp.address[1]

    def send(self, datagrams: Sequence[bytes], target: Address) -> None:
        self._udp.send(datagrams, target)

    def hear(self, strays: Strays | None) -> None:
        self._strays = strays

    def close(self) -> None:
        self._udp.close()

    def _deliver(self, batch: list[Received]) -> None:
        for datagram, source in batch:
            if self._strays is not None:
                self._strays(datagram, source)


class _Classification:
    def __init__(
        self, own: OwnSocket, servers: Sequence[StunServer], local: frozenset[str], open_spare: OpenSocket
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[Nat] = self._loop.create_future()
        self._own = own
        self._timer: asyncio.TimerHandle | None = None
        self._spare = open_spare(self._deliver)
        self._check = NatCheck(servers, local=local, entropy=lambda: os.urandom(12), now=self._loop.time())
        own.hear(self._take)
        self._on_timer()

    def close(self) -> None:
        self._own.hear(None)
        self._spare.close()
        if self._timer:
            self._timer.cancel()

    def _deliver(self, batch: list[Received]) -> None:
        for datagram, source in batch:
            self._take(datagram, source)

    def _take(self, datagram: bytes, source: Address) -> bool:
        try:
            sendings = self._check.receive(datagram, source, self._loop.time())
        except BadDatagram:
            return False
        self._act(sendings)
        return True

    def _on_timer(self) -> None:
        self._act(self._check.handle_timer(self._loop.time()))

    def _act(self, sendings: Sequence[Sending]) -> None:
        for is_own, datagram, target in sendings:
            (self._own if is_own else self._spare).send((datagram,), target)
        if self._check.nat is not None and not self.done.done():
            self.done.set_result(self._check.nat)
        if self._timer:
            self._timer.cancel()
        due = self._check.next_timer()
        self._timer = None if due is None else self._loop.call_at(due, self._on_timer)
