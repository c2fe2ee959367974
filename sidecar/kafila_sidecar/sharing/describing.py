"""A folder that only others have: its small files and headers, taken from a member before anything can be planned."""

import asyncio
from pathlib import Path

from kafila_proto import ring_pb2
from kafila_sidecar.net.link.link import Link
from kafila_sidecar.net.link.stream import Stream, StreamKind
from kafila_sidecar.sharing.borrowing import told_by
from kafila_sidecar.weights.providers.folder import lay_down, take_description


async def take_down(link: Link, *, revision: str, folder: Path) -> None:
    """Into `folder`, what the revision's description lists. Raises Refused for anything else; KafilaError when the peer
    can't be asked, or vanishes."""
    stream = await link.open(StreamKind.WEIGHTS)
    try:
        await stream.send(ring_pb2.WeightsAsk(describe=ring_pb2.Describe()).SerializeToString())
        await asyncio.to_thread(written, DescriptionStream(stream), revision, folder)
    finally:
        stream.reset()


def written(told: "DescriptionStream", revision: str, folder: Path) -> None:
    """Blocks, on a thread of its own."""
    description = take_description(told.read, revision)
    lay_down(description, told.read, folder)


class DescriptionStream:
    """The bytes that a source sends, for a thread that reads them in order."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._arrived = bytearray()
        self._loop = asyncio.get_running_loop()

    def read(self, count: int) -> bytes:
        """The next so many bytes; waits for them, not on the loop's thread. Raises KafilaError if they don't come."""
        asyncio.run_coroutine_threadsafe(self._until(count), self._loop).result()
        content = bytes(self._arrived[:count])
        del self._arrived[:count]
        return content

    async def _until(self, count: int) -> None:
        while len(self._arrived) < count:
            self._arrived += (await told_by(self._stream)).data
