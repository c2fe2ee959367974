"""The streams of one link that live, what they take from its connection, and the tasks that serve the peer's."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.net.quic.neighbour import GIVEN_UP, Neighbour, StreamData, StreamGone

log = logging.getLogger(__name__)

OnStream = Callable[[Stream], Awaitable[None]]


class Streams:
    """`serve` runs as a task for each stream that the peer opens, once its kind has come.

    `send_now` sends what the connection holds, `send_soon` sees to it before the loop waits again.
    """

    def __init__(
        self,
        core: Neighbour,
        *,
        peer: str,
        serve: OnStream,
        send_now: Callable[[], None],
        send_soon: Callable[[], None],
    ) -> None:
        self.peer = peer
        self.live: dict[int, Stream] = {}
        self.frames_at: float | None = None  # the loop's time when a frame last went or came
        self._core = core
        self._serve = serve
        self._send_now, self._send_soon = send_now, send_soon
        self._loop = asyncio.get_running_loop()
        self._handlers: set[asyncio.Task[None]] = set()

    def open(self, kind: int) -> Stream:
        """A new stream to the peer."""
        stream = self._add(self._core.connection.get_next_available_stream_id())
        stream.announce(kind)
        self._rank(stream)
        return stream

    def came(self, event: StreamData) -> None:
        """Bytes from the peer, in order."""
        stream = self.live.get(event.stream_id)
        if stream is None:
            if self._core.connection.is_ours(event.stream_id):
                return  # over already, on both sides
            stream = self._add(event.stream_id)
        stream.feed(event.data, is_last=event.is_last)
        self._note_frames(stream)
        if stream.kind is None and stream.take_kind():
            self._rank(stream)
            task = self._loop.create_task(self._run(stream), name=f"stream {stream.stream_id} from {stream.peer}")
            self._handlers.add(task)
            task.add_done_callback(self._handlers.discard)

    def gone(self, event: StreamGone) -> None:
        """The peer gave one up."""
        if stream := self.live.get(event.stream_id):
            stream.peer_gave_up(is_reset=event.is_reset)

    def acknowledged(self) -> None:
        """Senders that wait may look again."""
        for stream in list(self.live.values()):
            stream.acknowledged()

    def fail(self, error: KafilaError) -> None:
        """The link is over."""
        for stream in list(self.live.values()):
            stream.fail(error)
        self.live.clear()

    async def stop(self) -> None:
        """Ends the handlers, except the one that calls this."""
        handlers = [task for task in self._handlers if task is not asyncio.current_task()]
        for task in handlers:
            task.cancel()
        if handlers:
            await asyncio.wait(handlers)

    # ---- For each stream (`stream.Carrier`).

    def write(self, stream_id: int, data: bytes | memoryview, *, is_last: bool, flush: bool) -> None:
        self._core.connection.send_stream_data(stream_id, data, is_last)  # type: ignore[arg-type]  # it takes views
        (self._send_now if flush else self._send_soon)()
        if stream := self.live.get(stream_id):
            self._note_frames(stream)

    def unacknowledged(self, stream_id: int) -> int:
        return self._core.connection.unacknowledged(stream_id)

    def consumed(self, stream_id: int, total: int) -> None:
        if stream_id in self.live and self._core.credit.consume(stream_id, total):
            self._send_soon()

    def give_up(self, stream_id: int) -> None:
        self._core.connection.stop_quietly(stream_id, GIVEN_UP)
        self._core.credit.drop(stream_id)
        self._send_soon()

    def retire(self, stream_id: int) -> None:
        self.live.pop(stream_id, None)
        self._core.credit.drop(stream_id)

    # ---- Private.

    def _add(self, stream_id: int) -> Stream:
        stream = self.live[stream_id] = Stream(self, stream_id)
        self.consumed(stream_id, 0)
        return stream

    def _rank(self, stream: Stream) -> None:
        """Weights wait until nothing else is to be sent."""
        if stream.kind == StreamKind.WEIGHTS:
            self._core.connection.send_last(stream.stream_id)

    def _note_frames(self, stream: Stream) -> None:
        if stream.kind == StreamKind.ACTIVATIONS:
            self.frames_at = self._loop.time()

    async def _run(self, stream: Stream) -> None:
        """A handler that returns has finished its stream; one that fails, or is cancelled, resets it."""
        is_done = False
        try:
            await self._serve(stream)
            is_done = True
        except KafilaError as error:
            log.info("stream_failed peer=%s kind=%s code=%s", stream.peer, stream.kind, error.code)
        finally:
            if is_done:
                stream.finish()
            else:
                stream.reset()
