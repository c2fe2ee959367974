"""Links between machines: the product's own streams over a played QUIC, which keeps its promises (in order, once) for
as long as a path carries it, moves to the relay and back, and ends after 15 s of silence.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net.candidates import HOST, Candidate
from kafila_sidecar.net.errors import LinkLost
from kafila_sidecar.net.link.link import DIRECT, RELAY, LinkEnd
from kafila_sidecar.net.link.stream import Stream
from kafila_sidecar.net.link.streams import OnStream, Streams
from kafila_sidecar.net.quic.connection import IDLE_TIMEOUT_S
from kafila_sidecar.net.quic.neighbour import Neighbour, StreamData, StreamGone
from tests.sim.clock import Life, SimLoop, SimProcess
from tests.sim.internet import SimInternet, address_of, place_of

TO_RELAY_S = 3.0  # from a path's death to the relay's stream in its place
TO_DIRECT_S = 1.0
HANDSHAKE_TRIPS = 3
KEEPALIVE_S = 0.5  # a peer that is there is never silent for longer

PairKey = tuple[bytes, frozenset[bytes]]


class SimConnection:
    """What streams need of a QUIC connection."""

    def __init__(self, link: "SimLink", *, dials: bool) -> None:
        self._link = link
        self._next, self._parity = (0, 0) if dials else (1, 1)

    def get_next_available_stream_id(self) -> int:
        self._next += 4
        return self._next - 4

    def is_ours(self, stream_id: int) -> bool:
        return stream_id % 2 == self._parity

    def send_stream_data(self, stream_id: int, data: bytes | memoryview, is_last: bool = False) -> None:
        self._link.put(StreamData(stream_id, bytes(data), is_last))

    def stop_quietly(self, stream_id: int, error_code: int) -> None:
        self._link.put(StreamGone(stream_id, is_reset=True))

    def send_last(self, stream_id: int) -> None: ...

    def unacknowledged(self, stream_id: int) -> int:
        return self._link.held_bytes


class NoCredit:
    """Nobody is ever a window ahead."""

    def consume(self, stream_id: int, total: int) -> bool:
        return False

    def drop(self, stream_id: int) -> None: ...


class SimCore:
    """What `Streams` needs of a neighbour."""

    def __init__(self, link: "SimLink", *, dials: bool) -> None:
        self.connection = SimConnection(link, dials=dials)
        self.credit = NoCredit()


@dataclass(slots=True)
class SimDirection:
    """One direction of a pair's link: nothing overtakes on it."""

    last_at: float = 0.0


class SimLink:
    """One end of a link that stands; as `Link` to those who use it."""

    def __init__(
        self, *, net: "SimLinks", me: SimProcess, peer: str, on_stream: OnStream, dials: bool, began_at: float
    ) -> None:
        self.me = me
        self.peer = peer
        self.other: SimLink
        self._net = net
        self._loop = net.loop
        self.closed: asyncio.Future[LinkEnd] = self._loop.create_future()
        self.is_relayed = False
        self._networks = (0, 0)  # which both ends are in on the direct path
        self._moved: asyncio.Future[None] = self._loop.create_future()
        self._streams = Streams(
            cast(Neighbour, SimCore(self, dials=dials)),
            peer=peer,
            serve=on_stream,
            send_now=self._flush_soon,
            send_soon=self._flush_soon,
        )
        self._out: list[StreamData | StreamGone] = []
        self._held: list[Sequence[StreamData | StreamGone]] = []  # what no path carries now
        self.held_bytes = 0
        self._flush_is_due = False
        self._way = SimDirection()
        self._hears = True
        self._heard_at = self._loop.now
        self._idle: asyncio.TimerHandle | None = None
        self._moving: asyncio.TimerHandle | None = None
        self.punch_s, self.handshake_s = 0.05, self._loop.now - began_at
        self.bytes_per_s = 0.0  # nobody measures it here

    # ---- As `Link`

    @property
    def path(self) -> str:
        return RELAY if self.is_relayed else DIRECT

    @property
    def rtt_s(self) -> float:
        return round(2 * self._net.steady_delay_s(self.me.name, self.other.me.name, relayed=self.is_relayed), 6)

    @property
    def quiet_s(self) -> float:
        at = self._streams.frames_at
        return math.inf if at is None else self._loop.now - at

    def silent_s(self, now: float | None = None) -> float:
        if self.me.is_deaf:
            return self._loop.now - self.me.stopped_at
        silence_s = self._loop.now - self._heard_at
        return min(KEEPALIVE_S / 2, silence_s) if self._hears else silence_s

    async def measure(self) -> None:
        """It carries whatever there is at once."""

    async def moved(self) -> None:
        await asyncio.wait((self._moved, self.closed), return_when=asyncio.FIRST_COMPLETED)

    async def open(self, kind: int) -> Stream:
        if self.closed.done():
            raise LinkLost(self.closed.result().sentence)
        return self._streams.open(kind)

    async def close(self, reason: str = "") -> None:
        self.abandon(reason)
        await self._streams.stop()

    def abandon(self, reason: str) -> None:
        if self.closed.done():
            return
        if self._carries():
            self._bring(self.other.end, LinkEnd("closed", f"the link to {self.me.name} is lost: {reason or 'closed'}"))
        self.end(LinkEnd("closed here", reason or f"the link to {self.peer} was closed here"))

    # ---- For the other end and the net

    def put(self, item: StreamData | StreamGone) -> None:
        self._out.append(item)
        self._flush_soon()

    def end(self, ending: LinkEnd) -> None:
        if self.closed.done():
            return
        self.closed.set_result(ending)
        for timer in (self._idle, self._moving):
            if timer is not None:
                timer.cancel()
        self._net.ended(self)
        self._streams.fail(LinkLost(ending.sentence))
        self.other.look()

    def look(self) -> None:
        """Something changed: a path, or whether the other end is there."""
        if self.closed.done():
            return
        self._follow_path()
        hears = self._is_heard()
        if hears and not self._hears:
            self._bring_here(self._hears_again)
        elif self._hears and not hears:
            self._hears, self._heard_at = False, self._loop.now
            self._watch_silence()
        if self._held and self._carries():
            held, self._held, self.held_bytes = self._held, [], 0
            for batch in held:
                self._bring(self.other.take, batch)
            self._streams.acknowledged()

    def take(self, batch: Sequence[StreamData | StreamGone]) -> None:
        """What the other end sent."""
        if self.closed.done():
            return
        self._net.carried += 1
        for item in batch:
            if isinstance(item, StreamData):
                self._streams.came(item)
            else:
                self._streams.gone(item)

    # ---- Private

    def _is_heard(self) -> bool:
        """Whether what the other end sends every half second comes here."""
        return self.other.me.life is Life.RUNS and not self.other.closed.done() and self.other._carries()

    def _hears_again(self) -> None:
        if self.closed.done() or not self._is_heard():
            return
        self._hears, self._heard_at = True, self._loop.now
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _watch_silence(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._loop.call_at(self._heard_at + IDLE_TIMEOUT_S, self._was_silent, context=self.me.context)

    def _was_silent(self) -> None:
        if not self._hears:
            self.end(LinkEnd("silent", f"the link to {self.peer} is lost: nothing came for {IDLE_TIMEOUT_S:g} s"))

    def _carries(self) -> bool:
        """Whether what this end sends now comes to the other."""
        one, other = self.me.name, self.other.me.name
        internet = self._net.internet
        if self.is_relayed:
            return internet.is_relayed(one, other)
        return internet.is_direct(one, other) and self._networks == self._networks_now

    @property
    def _networks_now(self) -> tuple[int, int]:
        return self._net.internet.network_of(self.me.name), self._net.internet.network_of(self.other.me.name)

    def take_path(self, *, relayed: bool) -> None:
        """This one, as it is now."""
        self.is_relayed, self._networks = relayed, self._networks_now

    def _follow_path(self) -> None:
        one, other = self.me.name, self.other.me.name
        internet = self._net.internet
        is_direct = internet.is_direct(one, other) and internet.is_direct(other, one)
        wants = not is_direct if internet.is_relayed(one, other) else self.is_relayed and not is_direct
        if wants == self.is_relayed and (wants or not is_direct or self._networks == self._networks_now):
            if self._moving is not None:
                self._moving.cancel()
                self._moving = None
        elif self._moving is None:
            after = TO_RELAY_S if wants else TO_DIRECT_S
            self._moving = self._loop.call_later(after, self._move, wants, context=self.me.context)

    def _move(self, relayed: bool) -> None:
        self._moving = None
        self.take_path(relayed=relayed)
        self._moved.set_result(None)
        self._moved = self._loop.create_future()
        self._net.found(self)
        self.look()
        self.other.look()

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self.closed.done() or not self._out:
            return
        batch, self._out = self._out, []
        if self._carries() and not self._held:
            self._bring(self.other.take, batch)
            return
        self._held.append(batch)
        self.held_bytes += sum(len(item.data) for item in batch if isinstance(item, StreamData))

    def _bring(self, call: Callable[..., object], *arguments: object) -> None:
        """To the other end, behind all that went before."""
        delay_s = self._net.internet.delay_s(self.me.name, self.other.me.name, relayed=self.is_relayed)
        self._way.last_at = max(self._way.last_at + 1e-7, self._loop.now + delay_s)
        self.other.me.call_at(self._way.last_at, call, *arguments)

    def _bring_here(self, call: Callable[..., object]) -> None:
        delay_s = self._net.internet.delay_s(self.me.name, self.other.me.name)
        self.me.call_at(self._loop.now + delay_s, call)


@dataclass(eq=False, slots=True)
class Dial:
    """One end that wants a link."""

    me: SimProcess
    peer: str
    on_stream: OnStream
    began_at: float
    outcome: "asyncio.Future[SimLink]"


class SimLinks:
    """All links and dials of a world."""

    def __init__(self, internet: SimInternet, loop: SimLoop) -> None:
        self.internet = internet
        self.loop = loop
        self.carried = 0  # batches
        self.names: dict[int, str] = {}  # of machines, by their numbers
        self._dials: dict[PairKey, list[Dial]] = {}
        self._up: dict[SimLink, None] = {}
        internet.listen(self.look)

    def look(self) -> None:
        """Something changed somewhere."""
        for link in list(self._up):
            link.look()
        for key in list(self._dials):
            self._try(key)

    def found(self, link: SimLink) -> None:
        """Whoever gets something directly sees from where."""
        if not link.is_relayed:
            one, other = link.me.name, link.other.me.name
            self.internet.learn(one, other, self.internet.network_of(other))
            self.internet.learn(other, one, self.internet.network_of(one))

    def ended(self, link: SimLink) -> None:
        self._up.pop(link, None)

    def steady_delay_s(self, one: str, other: str, *, relayed: bool) -> float:
        pair = frozenset((one, other))
        self.internet.delay_s(one, other)
        return self.internet._delays[pair] + (0.02 if relayed else 0.0)

    async def dial(self, key: PairKey, dial: Dial, deadline_s: float) -> SimLink:
        """Raises Unavailable when the other end does not dial too, or no path carries, for so long."""
        self._dials.setdefault(key, []).append(dial)
        self._try(key)
        try:
            async with asyncio.timeout(deadline_s):
                return await dial.outcome
        except TimeoutError:
            raise Unavailable(f"no link to {dial.peer} within {deadline_s:g} s: nothing answered") from None
        except asyncio.CancelledError:
            if dial.outcome.done() and not dial.outcome.cancelled():
                dial.outcome.result().abandon("the link was given up")
            raise
        finally:
            self._dials[key].remove(dial)
            if not self._dials[key]:
                del self._dials[key]

    @property
    def count(self) -> int:
        return sum(link.me.life is not Life.DEAD for link in self._up)

    def _try(self, key: PairKey) -> None:
        waiting = [d for d in self._dials.get(key, ()) if not d.outcome.done() and d.me.life is Life.RUNS]
        by_name = {dial.me.name: dial for dial in waiting}
        if len(by_name) < 2:
            return
        one, other = (by_name[name] for name in sorted(by_name)[:2])
        if self.internet.is_joined(one.me.name, other.me.name):
            trip_s = 2 * self.internet.delay_s(one.me.name, other.me.name)
            self.loop.outside(HANDSHAKE_TRIPS * trip_s, self._stand, one, other)

    def _stand(self, one: Dial, other: Dial) -> None:
        """Both ends know it, unless something came between."""
        ends = (one, other)
        if any(end.outcome.done() or end.me.life is not Life.RUNS for end in ends):
            return
        if not self.internet.is_joined(one.me.name, other.me.name):
            return
        links = [
            end.me.context.copy().run(
                SimLink,
                net=self,
                me=end.me,
                peer=end.peer,
                on_stream=end.on_stream,
                dials=end is one,
                began_at=end.began_at,
            )
            for end in ends
        ]
        links[0].other, links[1].other = links[1], links[0]
        direct = self.internet.is_direct(one.me.name, other.me.name) and self.internet.is_direct(
            other.me.name, one.me.name
        )
        for link, end in zip(links, ends, strict=True):
            link.take_path(relayed=not direct)
            self._up[link] = None
            end.outcome.set_result(link)


class SimEndpoint:
    """What `Reaching` needs of a machine's socket."""

    def __init__(self, links: SimLinks, process: SimProcess, number: int) -> None:
        self._links = links
        self._process = process
        self._number = number
        links.names[number] = process.name

    def candidates(self) -> list[Candidate]:
        network = self._links.internet.network_of(self._process.name)
        return [Candidate(HOST, *address_of(self._number, network), 1)]

    def announced(self, *, candidates: Sequence[Candidate], **_: Any) -> None:
        for candidate in candidates:
            number, network = place_of(candidate.address)
            self._links.internet.learn(self._process.name, self._links.names[number], network)

    async def connect(
        self,
        *,
        session: bytes,
        me: Any,
        peer_name: str,
        peer_fingerprint: bytes,
        candidates: Sequence[Candidate],
        deadline_s: float,
        on_stream: OnStream,
        **_: Any,
    ) -> SimLink:
        self.announced(candidates=candidates)
        loop = self._links.loop
        key = (session, frozenset((me.fingerprint, peer_fingerprint)))
        outcome: asyncio.Future[SimLink] = loop.create_future()
        return await self._links.dial(key, Dial(self._process, peer_name, on_stream, loop.now, outcome), deadline_s)
