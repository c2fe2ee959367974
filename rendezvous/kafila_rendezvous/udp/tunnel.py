"""The relay over a gRPC stream, for members whose network carries no UDP: each message is one datagram."""

import asyncio
from collections.abc import AsyncIterator, Callable

from kafila_proto import rendezvous_pb2 as pb
from kafila_rendezvous.udp.datagrams import Datagrams

WAITING_DATAGRAMS = 256  # for a slow reader; more are lost, as they would be on UDP
WAITING_BYTES = 512 * 1024  # the same, should they be large


class RelayTunnel:
    """One caller's. Raises LimitReached when its address has too many; `close` it in the end."""

    def __init__(self, datagrams: Datagrams, host: str, *, took: Callable[[int], None], idle_s: float) -> None:
        """`took` hears the size of each datagram that came; a stream on which none comes for `idle_s` ends."""
        self._datagrams = datagrams
        self._took = took
        self._idle_s = idle_s
        self._waiting_bytes = 0
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING_DATAGRAMS)
        self._source = datagrams.open_stream(host, self._offer)
        self._reading: asyncio.Task[None] | None = None

    async def run(self, requests: AsyncIterator[pb.RelayDatagram]) -> AsyncIterator[pb.RelayDatagram]:
        """What the relay has for this caller, until it ends its side."""
        self._reading = asyncio.create_task(self._read(requests))
        while (datagram := await self._waiting.get()) is not None:
            self._waiting_bytes -= len(datagram)
            yield pb.RelayDatagram(datagram=datagram)
        await self._reading

    def close(self) -> None:
        self._datagrams.close_stream(self._source)
        if self._reading:
            self._reading.cancel()

    async def _read(self, requests: AsyncIterator[pb.RelayDatagram]) -> None:
        coming = aiter(requests)
        try:
            while True:
                async with asyncio.timeout(self._idle_s):
                    request = await anext(coming)
                self._took(len(request.datagram))
                self._datagrams.receive(request.datagram, self._source)
        except (StopAsyncIteration, TimeoutError):
            return
        finally:
            if self._waiting.full():
                self._waiting.get_nowait()
            self._waiting.put_nowait(None)

    def _offer(self, datagram: bytes) -> None:
        if self._waiting_bytes + len(datagram) > WAITING_BYTES or self._waiting.full():
            return
        self._waiting.put_nowait(datagram)
        self._waiting_bytes += len(datagram)
