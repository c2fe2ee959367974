"""A node's one UDP socket with every link on it, of one session or of several.

A datagram is told apart by its first byte (RFC 9443): 0–3 is STUN, 64 and up is QUIC. STUN finds its link by the name
in USERNAME or by its transaction, QUIC by its destination connection id; addresses may change underneath.
"""

import asyncio
import logging
from collections.abc import Sequence

from sidecar.errors import InvalidInput, KafilaError, Unavailable
from sidecar.net import neighbour, stun
from sidecar.net.candidates import (
    Address,
    Candidate,
    address_candidate,
    host_candidates,
    system_interfaces,
)
from sidecar.net.errors import BadDatagram, Unpinned
from sidecar.net.link import Ending, Link, OnStream
from sidecar.net.pathsize import PROBED_BYTES
from sidecar.net.quic import CID_BYTES, Identity
from sidecar.net.udp import Received, UdpSocket, open_socket

log = logging.getLogger(__name__)

SMALLEST_KEY_BYTES = 16
_STUN_LAST = 3
_QUIC_FIRST = 64
_LONG_HEADER = 0x80
_LONG_HEADER_CID = 6  # first byte, version, length of the destination connection id


class Endpoint:
    """Opened once per node; `close` ends every link."""

    def __init__(self, udp: UdpSocket, host: str | None) -> None:
        self.strangers = 0  # datagrams that belong to no link, or that break its protocol
        self._udp = udp
        self._host = host
        self._links: dict[str, Link] = {}  # by the pair's name, in hex

    @classmethod
    def open(cls, *, host: str | None = None, port: int = 0) -> "Endpoint":
        """Binds the socket, on every address of the machine unless `host` names one. Raises Unavailable."""
        sock = open_socket(host, port)
        endpoint: Endpoint = cls(UdpSocket(sock, lambda batch: endpoint._deliver(batch)), host)
        return endpoint

    @property
    def address(self) -> Address:
        return self._udp.address

    def candidates(self) -> list[Candidate]:
        """Where this node may be reached, best first, as things are now."""
        if self._host is not None:
            return [address_candidate(self.address)]
        return host_candidates(self.address[1], system_interfaces(), ipv6=self._udp.takes_ipv6)

    async def connect(
        self,
        *,
        session: bytes,
        key: bytes,
        me: Identity,
        peer_name: str,
        peer_fingerprint: bytes,
        candidates: Sequence[Candidate],
        deadline_s: float,
        on_stream: OnStream,
    ) -> Link:
        """A link to one member of a session; both ends call this, and each may come first.

        `key` is the session's. A link to the same member of the same session that still stands is replaced. Raises
        Unpinned when either end refuses the other's certificate (the listener waits for a better one until the
        deadline), Unavailable with every candidate's outcome when the deadline passes, InvalidInput for arguments that
        can't work.
        """
        if len(key) < SMALLEST_KEY_BYTES or me.fingerprint == peer_fingerprint:
            raise InvalidInput(
                f"can't link to {peer_name}: it is this member itself, or the session's key is too short"
            )
        secret = stun.pair_secret(session, key, me.fingerprint, peer_fingerprint)
        link = Link(
            me=me,
            peer=peer_name,
            peer_fingerprint=peer_fingerprint,
            secret=secret,
            on_stream=on_stream,
            send=self._udp.send,
            until=asyncio.get_running_loop().time() + deadline_s,
            sizes=PROBED_BYTES if self._udp.forbids_fragments else (),
        )
        self._register(secret.name.hex(), link)
        await self._until_ready(link, candidates, deadline_s)
        return link

    def add_candidates(
        self, *, session: bytes, key: bytes, me: Identity, peer_fingerprint: bytes, candidates: Sequence[Candidate]
    ) -> None:
        """Further candidates of a member; nothing happens when it is neither linked nor being linked to."""
        secret = stun.pair_secret(session, key, me.fingerprint, peer_fingerprint)
        if link := self._links.get(secret.name.hex()):
            link.add_candidates(candidates)

    async def close(self) -> None:
        """Says goodbye on every link and closes the socket."""
        for link in list(self._links.values()):
            await link.close("this member has left")
        self._udp.close()

    async def _until_ready(self, link: Link, candidates: Sequence[Candidate], deadline_s: float) -> None:
        try:
            link.add_candidates(candidates)
            await asyncio.wait((link.ready, link.closed), timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
            if link.closed.done():
                raise _refusal(link.closed.result(), link)
            if not link.ready.done():
                raise _too_late(link, deadline_s)
        finally:
            if not link.ready.done():
                link.abandon(neighbour.CLOSED, "the link was given up")

    def _register(self, name: str, link: Link) -> None:
        if before := self._links.get(name):
            before.abandon(neighbour.CLOSED, "the link is replaced by a new one")
        self._links[name] = link
        link.closed.add_done_callback(lambda _: self._forget(name, link))

    def _forget(self, name: str, link: Link) -> None:
        if self._links.get(name) is link:
            del self._links[name]

    def _deliver(self, batch: list[Received]) -> None:
        """Hands a batch to its links, then lets each of them act once."""
        touched: dict[int, Link] = {}
        for datagram, source in batch:
            try:
                link = self._receive(datagram, source)
            except BadDatagram as error:
                log.debug("datagram_refused reason=%s", error)
                link = None
            if link is None:
                self.strangers += 1
            else:
                touched[id(link)] = link
        for link in touched.values():
            link.pump()

    def _receive(self, datagram: bytes, source: Address) -> Link | None:
        """The link that took the datagram; None for a stranger's."""
        if not datagram:
            return None
        if datagram[0] <= _STUN_LAST:
            return self._receive_stun(datagram, source)
        if datagram[0] >= _QUIC_FIRST:
            return self._receive_quic(datagram)
        return None

    def _receive_stun(self, datagram: bytes, source: Address) -> Link | None:
        message = stun.parse(datagram)
        if stun.is_request(message):
            link = self._links.get(stun.pair_name(message))
        else:
            link = next((x for x in self._links.values() if x.awaits(message.transaction_id)), None)
        if link is not None:
            link.receive_check(message, source)
        return link

    def _receive_quic(self, datagram: bytes) -> Link | None:
        start = _LONG_HEADER_CID if datagram[0] & _LONG_HEADER else 1
        cid = datagram[start : start + CID_BYTES]
        link = next((x for x in self._links.values() if cid in x.routes), None)
        if link is not None:
            link.receive_quic(datagram)
        return link


def _too_late(link: Link, deadline_s: float) -> KafilaError:
    sentence = f"no link to {link.peer} within {deadline_s:g} s: {link.describe()}"
    was_refused = link.refusal is not None and link.refusal.kind == "unpinned"
    return Unpinned(sentence) if was_refused else Unavailable(sentence)


def _refusal(ending: Ending, link: Link) -> KafilaError:
    if ending.kind == "unpinned":
        return Unpinned(ending.sentence)
    return Unavailable(f"{ending.sentence} ({link.describe()})")
