"""A link: the driver of one neighbour's checks and QUIC connection, with the streams on it.

Everything here runs on the event loop's thread. The endpoint feeds datagrams in and calls `pump` once per batch.
"""

import asyncio
import logging
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from aioice.stun import Message

from kafila_sidecar.net.candidates import RELAYED, Address, Candidate
from kafila_sidecar.net.errors import BadDatagram, LinkLost
from kafila_sidecar.net.link.pathsize import SAFE_BYTES
from kafila_sidecar.net.link.punch import Datagram, Punch
from kafila_sidecar.net.link.speed import DEADLINE_S, MESSAGE_BYTES, Burst, send_burst
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.net.link.streams import OnStream, Streams
from kafila_sidecar.net.quic import neighbour as quic
from kafila_sidecar.net.quic.connection import TlsIdentity
from kafila_sidecar.net.quic.neighbour import Ended, Established, Neighbour, StreamData, StreamGone
from kafila_sidecar.net.relay.client import is_path
from kafila_sidecar.net.stun import PairSecret

log = logging.getLogger(__name__)

Send = Callable[[Sequence[bytes], Address], None]

EARLY_S = 0.01  # that a timer may come too early: to set it anew for each frame costs more, and so does looking often

DIRECT = "direct"
RELAY = "relay"


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """Why a link is over. `kind`: "closed here", "closed", "silent", "unpinned", "failed"; `sentence` is for people."""

    kind: str
    sentence: str


class Link:
    """One neighbour. Made by `Endpoint.connect`; `on_stream` runs as a task for each stream that the peer opens.

    `closed` gets its LinkEnd once and never an exception; wait for it through `asyncio.shield` or `asyncio.wait`.
    """

    def __init__(
        self,
        *,
        me: TlsIdentity,
        peer: str,
        peer_fingerprint: bytes,
        secret: PairSecret,
        on_stream: OnStream,
        send: Send,
        silent: Callable[[], None],
        until: float,
        sizes: Sequence[int],
    ) -> None:
        self.peer = peer
        self.closed: asyncio.Future[LinkEnd] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._core = Neighbour(me=me, peer_fingerprint=peer_fingerprint, pair_name=secret.name)
        self._punch = Punch(
            secret=secret, dials=self._core.dials, until=until, transactions=lambda: os.urandom(12), sizes=sizes
        )
        self.ready: asyncio.Future[None] = self._loop.create_future()  # both ends know that the link stands
        self._send = send
        self._silent = silent  # hears when nothing comes back on the path in use
        self._announced: tuple[Candidate, ...] = ()  # by the peer
        self._relayed: tuple[Candidate, ...] = ()  # our own channel at the relay, once it is bound
        self._streams = Streams(
            self._core, peer=peer, serve=self._serve, send_now=self._send_now, send_soon=self._pump_soon
        )
        self._timer: asyncio.TimerHandle | None = None
        self._pump_is_due = False
        self._look_is_due = False
        self._path_used: tuple[Address | None, int] = (None, SAFE_BYTES)
        self._moved: asyncio.Future[None] = self._loop.create_future()  # done when the path turns direct or relayed
        self.bytes_per_s = 0.0  # that come from the peer, as `measure` found last; 0: not known
        self._burst = Burst()  # the peer's latest
        self._burst_is_here = asyncio.Event()
        self._on_stream = on_stream
        self._began_at = self._path_at = self._ready_at = self._loop.time()

    @property
    def path(self) -> str:
        """How datagrams travel now: "direct" or "relay"."""
        selected = self._punch.selected
        return RELAY if selected is not None and selected.kind == RELAYED else DIRECT

    @property
    def remote_address(self) -> Address | None:
        """Where the peer is reached now."""
        return self._punch.selected.target if self._punch.selected else None

    @property
    def rtt_s(self) -> float:
        """Round trip of the path in use: the least of the last eight checks, of which there is one a second."""
        selected = self._punch.selected
        return selected.rtt_s if selected is not None and selected.rtt_s is not None else 0.0

    @property
    def punch_s(self) -> float:
        """From the call to connect until a path stood."""
        return self._path_at - self._began_at

    @property
    def handshake_s(self) -> float:
        """From then until both ends knew that the link stands."""
        return self._ready_at - self._path_at

    async def measure(self) -> None:
        """Finds out how many bytes a second come from the peer on the path in use, while it does so for the other
        direction; returns soon where it does not."""
        with suppress(LinkLost, TimeoutError):
            send_burst(await self.open(StreamKind.BURST))
            async with asyncio.timeout(DEADLINE_S):
                await self._burst_is_here.wait()
        self.bytes_per_s = self._burst.bytes_per_s

    async def moved(self) -> None:
        """Returns when the path has changed from direct to relayed or back, or the link is over."""
        await asyncio.wait((self._moved, self.closed), return_when=asyncio.FIRST_COMPLETED)

    @property
    def routes(self) -> set[bytes]:
        """The connection ids whose datagrams belong here."""
        return self._core.routes

    def silent_s(self, now: float | None = None) -> float:
        """Seconds since the peer last proved to be there; 0 before it has. `now` is the loop's time."""
        heard_at = self._core.heard_at
        return 0.0 if heard_at is None else max(0.0, (self._loop.time() if now is None else now) - heard_at)

    @property
    def quiet_s(self) -> float:
        """Seconds since a frame of a ring went or came over this link; infinite before the first."""
        frames_at = self._streams.frames_at
        return math.inf if frames_at is None else self._loop.time() - frames_at

    async def open(self, kind: int) -> Stream:
        """A new stream to the peer; its `on_stream` gets it with this kind, 0–255. Raises LinkLost."""
        if self.closed.done():
            raise LinkLost(self.closed.result().sentence)
        return self._streams.open(kind)

    async def close(self, reason: str = "") -> None:
        """Tells the peer, ends every stream here, and returns when the handlers have ended."""
        self.abandon(quic.CLOSED, reason)
        await self._streams.stop()

    # ---- For the endpoint.

    def announced(self, candidates: Sequence[Candidate]) -> None:
        """The peer's candidates, in place of those announced before; the first call starts everything."""
        self._announced = tuple(candidates)
        self._know()

    def use_relay(self, candidate: Candidate) -> None:
        """Our channel at the relay is bound, perhaps anew: it is one more address to check."""
        self._relayed = (candidate,)
        self._send_checks(self._punch.reached_anew(candidate.target, self._loop.time()))
        self._know()

    def network_changed(self) -> None:
        """This node has other addresses now, or other mappings."""
        self._send_checks(self._punch.search(self._loop.time()))
        self.pump()

    def awaits(self, transaction: bytes) -> bool:
        return self._punch.awaits(transaction)

    def receive_check(self, message: Message, source: Address) -> None:
        """Raises BadDatagram."""
        self._send_checks(self._punch.receive(message, source, self._loop.time()))

    def receive_quic(self, datagrams: Sequence[bytes], source: Address) -> None:
        """Until the link stands, only from where the peer announced itself or a check that it signed came from: nobody
        else begins a handshake here."""
        if not self._core.is_established and not self._punch.knows(source):
            raise BadDatagram(f"a handshake from {source[0]}, from where the peer sent no check")
        now, heard_at, rtt_s = self._loop.time(), self._core.heard_at, self.rtt_s
        for datagram in datagrams:
            self._core.receive(datagram, now, rtt_s)
        if self._core.is_established and source != self.remote_address and self._core.heard_at != heard_at:
            self._send_checks(self._punch.heard_from(source, now))

    @property
    def refusal(self) -> Ended | None:
        """How the peer's latest attempt at this link failed, while it does not stand."""
        return self._core.refusal

    def describe(self) -> str:
        """What was tried, for people."""
        tried = self._punch.describe()
        if self.refusal is not None:
            return f"{tried}; the handshake failed: {self.refusal.detail}"
        return f"{tried}; the handshake did not finish" if self._core.is_started else tried

    def came(self) -> None:
        """Hands out what has come. Whoever waited for it acts first; then acknowledgements and timers are seen to."""
        if self.closed.done():
            return
        self._hand_out()
        if not self._look_is_due:
            self._look_is_due = True
            self._loop.call_soon(self._look)

    def pump(self) -> None:
        """Acts on everything that has come: starts the handshake, hands out events, sends, sets the timer."""
        self._pump_is_due = False
        if self.closed.done():
            return
        self._hand_out()
        self._flush()
        self._arm()

    def abandon(self, code: int, reason: str) -> None:
        """Ends the link from this side without waiting for anybody."""
        self._core.close(code, reason)
        self._flush()
        self._end(LinkEnd("closed here", reason or f"the link to {self.peer} was closed here"))

    # ---- Private.

    async def _serve(self, stream: Stream) -> None:
        if stream.kind != StreamKind.BURST:
            await self._on_stream(stream)
            return
        burst = self._burst = Burst()
        while await stream.receive(most_bytes=MESSAGE_BYTES) is not None:
            if burst.came(self._loop.time()):
                self._burst_is_here.set()

    def _look(self) -> None:
        """Sends what has to be sent after something has come, most often nothing."""
        self._look_is_due = False
        if self.closed.done():
            return
        if self._core.has_to_send(self._loop.time()):
            self._flush()
        self._arm()

    def _hand_out(self) -> None:
        now = self._loop.time()
        if self._punch.take_silence() and self._core.is_established:
            self._silent()
        self._follow_path()
        if self._punch.selected is not None and self._core.dials and not self._core.is_started:
            self._core.dial(now, self.rtt_s)
        while (event := self._core.next_event()) is not None:
            self._handle(event)
        self._streams.acknowledged()

    def _handle(self, event: quic.Event) -> None:
        match event:
            case Established():
                self._ready_at = self._loop.time()
                self.ready.set_result(None)
            case StreamData():
                self._streams.came(event)
            case StreamGone():
                self._streams.gone(event)
            case Ended(kind, detail):
                self._flush()  # a close that the core decided on
                self._end(LinkEnd(kind, f"the link to {self.peer} is lost: {detail}"))

    def _know(self) -> None:
        self._send_checks(self._punch.know((*self._announced, *self._relayed), self._loop.time()))
        self.pump()

    def _send_checks(self, checks: Sequence[Datagram]) -> None:
        for datagram, target in checks:
            self._send((datagram,), target)

    def _follow_path(self) -> None:
        """Tells QUIC when the path below it has changed, or works again."""
        now_used, is_back = (self.remote_address, self._punch.datagram_bytes), self._punch.take_return()
        before, self._path_used = self._path_used, now_used
        if now_used == before and not is_back:
            return
        is_new = now_used[0] != before[0]
        is_other = is_new and before[0] is not None
        self._core.follow_path(is_new=is_other or is_back, datagram_bytes=now_used[1])
        if is_new:
            self._tell_path(before[0])

    def _tell_path(self, before: Address | None) -> None:
        """Lets those know who wait for it; `before` is the address that was used until now."""
        log.info("path_chosen peer=%s path=%s rtt_s=%.4f", self.peer, self.path, self.rtt_s)
        if before is None:
            self._path_at = self._loop.time()
        elif is_path(before) != (self.path == RELAY):
            self._burst_is_here.clear()
            self._moved.set_result(None)
            self._moved = self._loop.create_future()
            if self.path == RELAY:
                self._silent()

    def _flush(self) -> None:
        selected = self._punch.selected
        if selected is None or not self._core.is_started:
            return
        if datagrams := self._core.datagrams(self._loop.time()):
            self._send(datagrams, selected.target)

    def _send_now(self) -> None:
        self._flush()
        self._arm()

    def _pump_soon(self) -> None:
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self.pump)

    def _arm(self) -> None:
        """One timer for checks and connection; one that is set a little too early just looks again."""
        # Without a path nothing can be sent, and the connection's timers would stay due.
        at, core_at = self._punch.next_timer(), self._core.next_timer() if self._punch.selected else None
        if at is None or (core_at is not None and core_at < at):
            at = core_at
        if at is None or (self._timer is not None and at - EARLY_S <= self._timer.when() <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        now = self._loop.time()
        self._send_checks(self._punch.handle_timer(now))
        was_due = self._core.handle_timer(now)
        if self.closed.done():
            return
        self._hand_out()
        if was_due or self._core.has_to_send(now):  # else it was set for what was acknowledged meanwhile
            self._flush()
        self._arm()

    def _end(self, ending: LinkEnd) -> None:
        if self.closed.done():
            return
        self.closed.set_result(ending)
        if self._timer is not None:
            self._timer.cancel()
        self._streams.fail(LinkLost(ending.sentence))
        log.info("link_ended peer=%s kind=%s", self.peer, ending.kind)
