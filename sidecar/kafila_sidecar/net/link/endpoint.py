"""A node's one UDP socket with every link on it, of one session or of several.

A datagram is told apart by its first byte (RFC 9443): 0–3 is STUN, 8–15 the relay's, 64 and up is QUIC. STUN finds its
link by the name in USERNAME or by its transaction, QUIC by its destination connection id; addresses may change
underneath. 4 is the call of a member that looks for its session. What the relay carries is unwrapped here and then
treated alike, with the channel's path as its source.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from kafila_sidecar.errors import InvalidInput, KafilaError, Unavailable
from kafila_sidecar.net import stun
from kafila_sidecar.net.candidates import (
    MAX_CANDIDATES,
    Address,
    Candidate,
    Interface,
    LatestLook,
    address_candidate,
    host_candidates,
    system_interfaces,
)
from kafila_sidecar.net.errors import BadDatagram, Unpinned
from kafila_sidecar.net.link.link import Link, LinkEnd
from kafila_sidecar.net.link.pathsize import PROBED_BYTES
from kafila_sidecar.net.link.streams import OnStream
from kafila_sidecar.net.quic import neighbour
from kafila_sidecar.net.quic.connection import CID_BYTES, TlsIdentity
from kafila_sidecar.net.relay.client import FIRST_BYTES as RELAY
from kafila_sidecar.net.relay.client import is_path
from kafila_sidecar.net.relay.driver import ChannelUser, RelayAccess, Relaying
from kafila_sidecar.net.udp import OpenSocket, Received, UdpSocket, open_socket

log = logging.getLogger(__name__)

SMALLEST_KEY_BYTES = 16
_STUN_LAST = 3
_CALL = 4
_QUIC_FIRST = 64
_LONG_HEADER = 0x80
_LONG_HEADER_CID = 6  # first byte, version, length of the destination connection id


Strays = Callable[[bytes, Address], bool]
"""Takes a STUN message that belongs to no link; true when it was waited for."""


Calls = Callable[[bytes, Address], bool]
"""Takes a call; true when a member made it."""


class Endpoint:
    """Opened once per node; `close` ends every link."""

    def __init__(
        self, open_udp: OpenSocket, *, host: str | None, interfaces: Callable[[], Iterable[Interface]]
    ) -> None:
        self.strangers = 0  # datagrams that belong to no link, or that break its protocol
        self.further: tuple[Candidate, ...] = ()  # what was found out beyond the host candidates
        self.on_path_died: Callable[[], None] = lambda: None  # nothing comes back on a path that was in use
        self._udp = open_udp(self.deliver)
        self._host = host
        self._interfaces = LatestLook(interfaces)
        self._links: dict[str, Link] = {}  # by the pair's name, in hex
        self._relay_paths: dict[str, Address] = {}  # by the pair's name, too
        self._relaying = Relaying(self._udp.send, lambda datagram, source: self.deliver([(datagram, source)]))
        self._strays: Strays | None = None
        self._calls: Calls = lambda _, __: False

    @classmethod
    def open(cls, *, host: str | None = None, port: int = 0) -> "Endpoint":
        """Binds the socket, on every address of the machine unless `host` names one. Raises Unavailable."""
        sock = open_socket(host, port)
        return cls(lambda deliver: UdpSocket(sock, deliver), host=host, interfaces=system_interfaces)

    @property
    def address(self) -> Address:
        return self._udp.address

    def candidates(self) -> list[Candidate]:
        """Where this node may be reached, best first, as things are now."""
        if self._host is not None:
            return [address_candidate(self.address), *self.further]
        local = host_candidates(self.address[1], self._interfaces(), ipv6=self._udp.takes_ipv6)
        return [*local[: MAX_CANDIDATES - len(self.further)], *self.further]

    async def connect(
        self,
        *,
        session: bytes,
        key: bytes,
        me: TlsIdentity,
        peer_name: str,
        peer_fingerprint: bytes,
        candidates: Sequence[Candidate],
        deadline_s: float,
        on_stream: OnStream,
        relay: RelayAccess | None = None,
        udp: bool = True,
    ) -> Link:
        """A link to one member of a session; both ends call this, and each may come first.

        `key` is the pair's. A channel at the relay is bound meanwhile, where there is one; `udp` false says that
        this network carries none. A link to the same member of the same session that still stands is replaced. Raises
        Unpinned when either end refuses the other's certificate (the listener waits for a better one until the
        deadline), Unavailable with every candidate's outcome when the deadline passes, InvalidInput for arguments that
        can't work.
        """
        if len(key) < SMALLEST_KEY_BYTES or me.fingerprint == peer_fingerprint:
            raise InvalidInput(
                f"can't link to {peer_name}: it is this member itself, or the session's key is too short"
            )
        secret = stun.pair_secret(session, key, me.fingerprint, peer_fingerprint)
        name = secret.name.hex()
        link = Link(
            me=me,
            peer=peer_name,
            peer_fingerprint=peer_fingerprint,
            secret=secret,
            on_stream=on_stream,
            send=self.send,
            silent=lambda: self._silent(name),
            until=asyncio.get_running_loop().time() + deadline_s,
            sizes=PROBED_BYTES if self._udp.forbids_fragments else (),
        )
        self._register(name, link)
        if relay:
            self._open_relay(name, link, relay, udp=udp)
        await self._until_ready(link, candidates, deadline_s, self._relay_paths.get(name))
        return link

    def announced(
        self, *, session: bytes, key: bytes, me: TlsIdentity, peer_fingerprint: bytes, candidates: Sequence[Candidate]
    ) -> None:
        """A member's candidates are these now; nothing happens when it is neither linked nor being linked to."""
        secret = stun.pair_secret(session, key, me.fingerprint, peer_fingerprint)
        if link := self._links.get(secret.name.hex()):
            link.announced(candidates)

    def relay_anew(
        self, *, session: bytes, key: bytes, me: TlsIdentity, peer_fingerprint: bytes, relay: RelayAccess, udp: bool
    ) -> None:
        """A link's way to its relay is another one from now on; nothing happens when there is no such link."""
        name = stun.pair_secret(session, key, me.fingerprint, peer_fingerprint).name.hex()
        if link := self._links.get(name):
            if path := self._relay_paths.get(name):
                self._close_relay(name, path)
            self._open_relay(name, link, relay, udp=udp)

    def network_changed(self) -> None:
        """This machine has other addresses than before, or is seen from outside by another one."""
        self._relaying.network_changed()
        for link in list(self._links.values()):
            link.network_changed()

    @property
    def relayed_bytes(self) -> tuple[int, int]:
        """What went out through relays, and came in."""
        return self._relaying.sent_bytes, self._relaying.received_bytes

    async def close(self) -> None:
        """Says goodbye on every link and closes the socket."""
        for link in list(self._links.values()):
            await link.close("this member has left")
        self._relaying.close_all()
        self._udp.close()

    # ---- The node's own socket, lent to those who ask STUN servers (`classify.OwnSocket`).

    def send(self, datagrams: Sequence[bytes], target: Address) -> None:
        """In order; what can't be sent is lost. The target may be the path of a relay channel."""
        (self._relaying if is_path(target) else self._udp).send(datagrams, target)

    def hear(self, strays: Strays | None) -> None:
        """From now on `strays` gets each STUN response that belongs to no link; None: nobody does."""
        self._strays = strays

    def answer(self, calls: Calls) -> None:
        """From now on `calls` gets each call."""
        self._calls = calls

    # ---- Private.

    async def _until_ready(
        self, link: Link, candidates: Sequence[Candidate], deadline_s: float, path: Address | None
    ) -> None:
        try:
            link.announced(candidates)
            await asyncio.wait((link.ready, link.closed), timeout=deadline_s, return_when=asyncio.FIRST_COMPLETED)
            if link.closed.done():
                raise _refusal(link.closed.result(), link)
            if not link.ready.done():
                raise _too_late(link, deadline_s, self._relaying.describe(path) if path else "no relay is known")
        finally:
            if not link.ready.done():
                link.abandon(neighbour.CLOSED, "the link was given up")

    def _open_relay(self, name: str, link: Link, access: RelayAccess, *, udp: bool) -> None:
        user = ChannelUser(bound=link.use_relay, udp_back=link.network_changed)
        path = self._relay_paths[name] = self._relaying.open(access, user, udp=udp)
        link.closed.add_done_callback(lambda _: self._close_relay(name, path))

    def _close_relay(self, name: str, path: Address) -> None:
        self._relaying.close(path)
        if self._relay_paths.get(name) == path:
            del self._relay_paths[name]

    def _silent(self, name: str) -> None:
        """A link hears nothing on its path: this node may be seen elsewhere, or reach the relay in another way."""
        self.on_path_died()
        if path := self._relay_paths.get(name):
            self._relaying.doubt(path)

    def _register(self, name: str, link: Link) -> None:
        if before := self._links.get(name):
            before.abandon(neighbour.CLOSED, "the link is replaced by a new one")
        self._links[name] = link
        link.closed.add_done_callback(lambda _: self._forget(name, link))

    def _forget(self, name: str, link: Link) -> None:
        if self._links.get(name) is link:
            del self._links[name]

    def deliver(self, batch: list[Received]) -> None:
        """Hands a batch to its links, then lets each of them act once."""
        touched: dict[int, Link] = {}
        for datagrams, source in _runs(batch):
            try:
                self._receive(datagrams, source, touched)
            except BadDatagram as error:
                log.debug("datagram_refused reason=%s", error)
                self.strangers += len(datagrams)
        for link in touched.values():
            link.came()

    def _receive(self, datagrams: list[bytes], source: Address, touched: dict[int, Link]) -> None:
        """Gives a run to whom it belongs; raises BadDatagram for a stranger's."""
        if datagrams[0] and datagrams[0][0] in RELAY:
            for carried, path in self._relaying.receive(datagrams[0], source):
                self._take([carried], path, touched)
        else:
            self._take(datagrams, source, touched)

    def _take(self, datagrams: list[bytes], source: Address, touched: dict[int, Link]) -> None:
        """What a peer or a STUN server sent, on whatever path it came."""
        link, datagram = None, datagrams[0]
        if datagram and datagram[0] <= _STUN_LAST:
            link = self._take_stun(datagram, source)
        elif datagram and datagram[0] >= _QUIC_FIRST:
            link = self._take_quic(datagrams, source)
        if link is not None:
            touched[id(link)] = link
        elif not self._is_awaited(datagram, source):
            self.strangers += len(datagrams)

    def _is_awaited(self, datagram: bytes, source: Address) -> bool:
        """Whether it answers a question of the node's own, and was given to who asked."""
        if datagram and datagram[0] == _CALL:
            return self._calls(datagram, source)
        is_stun = bool(datagram) and datagram[0] <= _STUN_LAST
        return is_stun and self._strays is not None and self._strays(datagram, source)

    def _take_stun(self, datagram: bytes, source: Address) -> Link | None:
        message = stun.parse(datagram)
        if stun.is_request(message):
            link = self._links.get(stun.pair_name(message))
        else:
            link = next((x for x in self._links.values() if x.awaits(message.transaction_id)), None)
        if link is not None:
            link.receive_check(message, source)
        return link

    def _take_quic(self, datagrams: list[bytes], source: Address) -> Link | None:
        start = _LONG_HEADER_CID if datagrams[0][0] & _LONG_HEADER else 1
        cid = datagrams[0][start : start + CID_BYTES]
        link = next((x for x in self._links.values() if cid in x.routes), None)
        if link is not None:
            link.receive_quic(datagrams, source)
        return link


def _runs(batch: list[Received]) -> Iterator[tuple[list[bytes], Address]]:
    """What came in a row from one source for one connection, as a frame does; all but QUIC's short packets alone."""
    start = 0
    for stop in range(1, len(batch) + 1):
        if stop == len(batch) or not _is_next(*batch[stop - 1], *batch[stop]):
            yield [datagram for datagram, _ in batch[start:stop]], batch[start][1]
            start = stop


def _is_next(before: bytes, its_source: Address, datagram: bytes, source: Address) -> bool:
    """Whether both are short packets of one connection from one source."""
    if not (
        before and datagram and _QUIC_FIRST <= before[0] < _LONG_HEADER and _QUIC_FIRST <= datagram[0] < _LONG_HEADER
    ):
        return False
    return source == its_source and datagram[1 : 1 + CID_BYTES] == before[1 : 1 + CID_BYTES]


def _too_late(link: Link, deadline_s: float, relay: str) -> KafilaError:
    sentence = f"no link to {link.peer} within {deadline_s:g} s: {link.describe()}; {relay}"
    was_refused = link.refusal is not None and link.refusal.kind == "unpinned"
    return Unpinned(sentence) if was_refused else Unavailable(sentence)


def _refusal(ending: LinkEnd, link: Link) -> KafilaError:
    if ending.kind == "unpinned":
        return Unpinned(ending.sentence)
    return Unavailable(f"{ending.sentence} ({link.describe()})")
