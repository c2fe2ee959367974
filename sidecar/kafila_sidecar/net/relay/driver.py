"""The driver of the node's relay channels: sends their requests, fetches tokens, tells links when a path stands.

While no UDP reaches the relay (`carriage` judges that), the same datagrams travel in a stream to the rendezvous; one
serves all channels there.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.net.candidates import Address, Candidate
from kafila_sidecar.net.relay.carriage import Carriage, Due
from kafila_sidecar.net.relay.client import (
    ChannelBound,
    Deliver,
    NeedToken,
    Output,
    RelayClient,
    RelayHeard,
    RelayProved,
    Send,
    candidate,
    is_stream,
    stream_server,
)
from kafila_sidecar.net.relay.end import Token

log = logging.getLogger(__name__)

SendTo = Callable[[Sequence[bytes], Address], None]


class RelayTransport(Protocol):
    """The relay over the rendezvous' TLS connection (`stream.RelayStream`)."""

    def send(self, datagrams: Sequence[bytes]) -> None: ...
    async def run(self) -> None: ...


OpenStream = Callable[[Callable[[bytes], None], Callable[[], None]], RelayTransport]
"""Makes a stream from what takes its datagrams, and what hears that it was (re)opened."""


@dataclass(frozen=True, slots=True)
class RelayAccess:
    """One link's way to the relay. `token` asks the rendezvous for one and raises KafilaError."""

    server: Address
    token: Callable[[], Awaitable[Token]]
    open_stream: OpenStream


@dataclass(frozen=True, slots=True)
class ChannelUser:
    """Who uses a channel: `bound` gets its candidate whenever the relay has bound it, `udp_back` a call when UDP, which
    had brought nothing, reaches the relay again."""

    bound: Callable[[Candidate], None]
    udp_back: Callable[[], None]


@dataclass(slots=True)
class _Channel:
    access: RelayAccess
    user: ChannelUser
    carriage: Carriage
    asking: asyncio.Task[None] | None = None


class Relaying:
    """All channels of a node. `send` puts datagrams on the node's UDP socket; `deliver` takes what a stream brings."""

    def __init__(self, send: SendTo, deliver: Callable[[bytes, Address], None]) -> None:
        self._send_udp = send
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._client = RelayClient(lambda: os.urandom(8))
        self._channels: dict[Address, _Channel] = {}
        self._streams: dict[Address, tuple[RelayTransport, asyncio.Task[None]]] = {}  # by the made-up address of each
        self._stream_of: dict[Address, Address] = {}  # the relay's address -> its stream's
        self._timer: asyncio.TimerHandle | None = None
        self.sent_bytes = 0  # of peers' datagrams, as they are before they are wrapped
        self.received_bytes = 0

    def open(self, access: RelayAccess, user: ChannelUser, *, udp: bool) -> Address:
        """A channel for one link, and its path. `udp` false: the network is known to carry none."""
        now = self._loop.time()
        path = self._client.open(access.server if udp else self._stream(access), now)
        self._channels[path] = _Channel(access, user, Carriage(by_stream=not udp, now=now))
        self._on_timer()
        return path

    def close(self, path: Address) -> None:
        """The link is over."""
        channel = self._channels.pop(path, None)
        if channel is None:
            return
        self._client.close(path)
        if channel.asking:
            channel.asking.cancel()
        self._close_unused_streams()

    def doubt(self, path: Address) -> None:
        """Nothing comes back on the path that a link uses: the relay is asked whether it is still reached, and how."""
        channel, now = self._channels.get(path), self._loop.time()
        if channel is not None and channel.carriage.doubt(now):
            self._act(self._client.ask(path, now))
        self._arm()

    def send(self, datagrams: Sequence[bytes], path: Address) -> None:
        """To the peer at the other end; lost while the channel is not bound."""
        if wrapped := self._client.wrap(datagrams, path):
            self.sent_bytes += sum(map(len, datagrams))
            self._send(*wrapped)

    def receive(self, datagram: bytes, source: Address) -> list[tuple[bytes, Address]]:
        """Takes a datagram of the relay's protocol; what a peer sent comes back. Raises BadDatagram."""
        outputs = self._client.receive(datagram, source, self._loop.time())
        self._act(outputs)
        delivered = [(output.datagram, output.path) for output in outputs if isinstance(output, Deliver)]
        self.received_bytes += sum(len(carried) for carried, _ in delivered)
        return delivered

    def network_changed(self) -> None:
        """Binds every channel again, from wherever this node is now, and by UDP where it may have been blocked."""
        now = self._loop.time()
        self._act(self._client.bind_again(now))
        for path, channel in self._channels.items():
            was_by_stream = channel.carriage.by_stream
            channel.carriage.start_over(now)
            if was_by_stream:
                self._act(self._client.move(path, channel.access.server, now))
        self._close_unused_streams()
        self._arm()

    def describe(self, path: Address) -> str:
        """How a channel stands, for people."""
        return self._client.describe(path)

    def close_all(self) -> None:
        for path in list(self._channels):
            self.close(path)
        if self._timer:
            self._timer.cancel()

    # ---- Private

    def _act(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            match output:
                case Send(datagram, server):
                    self._send((datagram,), server)
                case ChannelBound(path):
                    self._bound(path)
                case NeedToken(path):
                    self._ask(path)
                case RelayHeard(path):
                    self._channels[path].carriage.heard()
                case RelayProved(path):
                    self._udp_answered(path)
        self._arm()

    def _send(self, datagrams: Sequence[bytes], server: Address) -> None:
        if not is_stream(server):
            self._send_udp(datagrams, server)
        elif server in self._streams:
            self._streams[server][0].send(datagrams)

    def _bound(self, path: Address) -> None:
        self._channels[path].carriage.heard()
        self._channels[path].user.bound(candidate(path))

    def _ask(self, path: Address) -> None:
        channel = self._channels[path]
        if channel.asking is None or channel.asking.done():
            channel.asking = self._loop.create_task(self._fetch_token(path, channel.access), name="relay token")

    async def _fetch_token(self, path: Address, access: RelayAccess) -> None:
        """A token that can't be had now is wished for again after a while."""
        try:
            token = await access.token()
        except KafilaError as error:
            log.info("relay_token_missing code=%s", error.code)
            return
        self._act(self._client.use(path, token, self._loop.time()))

    # ---- Streams

    def _carry(self, path: Address, now: float) -> None:
        """What is due about the way to the relay."""
        channel = self._channels[path]
        match channel.carriage.handle_timer(now):
            case Due.FALL_BACK:
                log.info("relay_by_stream reason=no_udp")
                self._act(self._client.move(path, self._stream(channel.access), now))
            case Due.PROBE:
                self._act(self._client.probe(path, channel.access.server))

    def _udp_answered(self, path: Address) -> None:
        channel, now = self._channels[path], self._loop.time()
        if channel.carriage.proved(now):
            log.info("relay_by_udp reason=udp_is_back")
            self._act(self._client.move(path, channel.access.server, now))
            self._close_unused_streams()
            channel.user.udp_back()

    def _stream(self, access: RelayAccess) -> Address:
        """The stream to a relay, opened if there is none yet."""
        known = self._stream_of.get(access.server)
        if known is not None:
            return known
        number = 1 + max((int(server[0].rpartition(":")[2], 16) for server in self._streams), default=0)
        server = stream_server(number)
        stream = access.open_stream(
            lambda datagram: self._deliver(datagram, server),
            lambda: self._opened_stream(server),
        )
        self._stream_of[access.server] = server
        self._streams[server] = stream, self._loop.create_task(stream.run(), name="relay stream")
        return server

    def _opened_stream(self, server: Address) -> None:
        """The relay knows nothing of those who came by an earlier stream."""
        self._act(self._client.bind_anew(server, self._loop.time()))

    def _close_unused_streams(self) -> None:
        wanted = {channel.access.server for channel in self._channels.values() if channel.carriage.by_stream}
        for address in set(self._stream_of) - wanted:
            _, task = self._streams.pop(self._stream_of.pop(address))
            task.cancel()

    # ---- Time

    def _arm(self) -> None:
        """A timer that is set too early just looks again."""
        timers = (self._client.next_timer(), *(channel.carriage.next_timer() for channel in self._channels.values()))
        due = min((timer for timer in timers if timer is not None), default=None)
        if due is None or (self._timer is not None and self._timer.when() <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._loop.time()
        for path in list(self._channels):
            self._carry(path, now)
        self._act(self._client.handle_timer(now))
