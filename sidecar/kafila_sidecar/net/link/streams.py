"""The streams of one link that live, and the tasks that serve those which the peer opened."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kafila_sidecar.errors import KafilaError
from kafila_sidecar.net.link.stream import Carrier, Stream

log = logging.getLogger(__name__)

OnStream = Callable[[Stream], Awaitable[None]]


class Streams:
    """`serve` runs as a task for each stream that the peer opens, once its kind has come."""

    def __init__(self, carrier: Carrier, serve: OnStream) -> None:
        self.live: dict[int, Stream] = {}
        self._carrier = carrier
        self._serve = serve
        self._loop = asyncio.get_running_loop()
        self._handlers: set[asyncio.Task[None]] = set()

    def add(self, stream_id: int) -> Stream:
        stream = self.live[stream_id] = Stream(self._carrier, stream_id)
        self._carrier.consumed(stream_id, 0)
        return stream

    def feed(self, stream: Stream, data: bytes, *, is_last: bool) -> None:
        """Bytes from the peer, in order."""
        stream.feed(data, is_last=is_last)
        if stream.kind is None and stream.take_kind():
            task = self._loop.create_task(self._run(stream), name=f"stream {stream.stream_id} from {stream.peer}")
            self._handlers.add(task)
            task.add_done_callback(self._handlers.discard)

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
