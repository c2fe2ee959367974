"""Streams in memory: what one end writes the other reads, a turn of the loop later."""

import asyncio
from collections.abc import Awaitable, Callable

from kafila_sidecar.net.errors import LinkLost
from kafila_sidecar.net.link.stream import Stream

OnStream = Callable[[Stream], Awaitable[None]]


class StreamEnd:
    """One end of a pair of streams: what a Stream needs of its link."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.other: StreamEnd
        self.stream: Stream
        self.stalled = False  # the other end takes nothing in
        self.writes = 0
        self.named = asyncio.Event()  # the opener's kind has come
        self._loop = asyncio.get_running_loop()

    def write(self, stream_id: int, data: bytes | memoryview, *, is_last: bool, flush: bool) -> None:
        self.writes += 1
        self._loop.call_soon(self.other.deliver, bytes(data), is_last)

    def deliver(self, data: bytes, is_last: bool) -> None:
        self.stream.feed(data, is_last=is_last)
        if self.stream.kind is None:
            self.stream.take_kind()
            self.named.set()

    def unacknowledged(self, stream_id: int) -> int:
        return 1 << 30 if self.stalled else 0

    def consumed(self, stream_id: int, total: int) -> None: ...

    def give_up(self, stream_id: int) -> None:
        self._loop.call_soon(self.other.given_up)

    def given_up(self) -> None:
        self.stream.peer_gave_up(is_reset=True)

    def retire(self, stream_id: int) -> None: ...


class StreamWire:
    """A link from `here` to `there` that opens such streams; `serve` runs for each, as a link's handlers do."""

    def __init__(self, here: str, there: str, serve: OnStream) -> None:
        self.ends: list[tuple[StreamEnd, StreamEnd]] = []
        self.down = False
        self.served: list[asyncio.Task[None]] = []
        self._here, self._there, self._serve = here, there, serve

    async def open(self, kind: int = 1) -> Stream:
        if self.down:
            raise LinkLost(f"the link to {self._there} is lost")
        ours, theirs = joined(self._here, self._there)
        self.ends.append((ours, theirs))
        ours.stream.announce(kind)
        self.served.append(asyncio.create_task(self._handle(theirs)))
        return ours.stream

    def cut(self) -> None:
        """The link is lost at both ends; it can be opened again when `down` is taken back."""
        self.down = True
        for ours, theirs in self.ends:
            ours.stream.fail(LinkLost(f"the link to {self._there} is lost"))
            theirs.stream.fail(LinkLost(f"the link to {self._here} is lost"))

    async def end(self) -> None:
        """Ends every handler."""
        for task in self.served:
            task.cancel()
        await asyncio.gather(*self.served, return_exceptions=True)

    async def _handle(self, end: StreamEnd) -> None:
        await end.named.wait()
        done = False
        try:
            await self._serve(end.stream)
            done = True
        finally:
            if done:
                end.stream.finish()
            else:
                end.stream.reset()


def joined(here: str, there: str) -> tuple[StreamEnd, StreamEnd]:
    """The two ends of one stream: that of `here`, whose peer is `there`, and the other."""
    ours, theirs = StreamEnd(there), StreamEnd(here)
    ours.other, theirs.other = theirs, ours
    ours.stream, theirs.stream = Stream(ours, 0), Stream(theirs, 0)
    return ours, theirs
