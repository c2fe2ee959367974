"""The relay over the rendezvous' TLS connection, where the network carries no UDP at all.

After an outage TCP waits as long again as it lasted before it tries, up to a minute. So a stream in which nothing comes
back is asked, and if it stays silent another connection is made, which goes through as soon as the network does.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import grpc

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import rendezvous_pb2_grpc as pb_grpc
from kafila_sidecar.errors import KafilaError
from kafila_sidecar.net.relay.silence import Silence

log = logging.getLogger(__name__)

WAITING_DATAGRAMS = 256  # to send; more are lost, as they would be on UDP
FIRST_RETRY_S = 0.2
LARGEST_RETRY_S = 2.0  # for as long as the stream is wanted: the rendezvous may come back


Redial = Callable[[], Awaitable[grpc.aio.Channel]]
"""Another connection to the same rendezvous; raises KafilaError."""


class RelayStream:
    """`deliver` gets each datagram of the relay's, `opened` a call when channels have to bind (again), which the relay
    answers: at each opening, and when nothing comes back.

    `deliver` runs as a callback of the loop, as for a socket: an error in it costs that one datagram.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        redial: Redial,
        deliver: Callable[[bytes], None],
        opened: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._redial = redial
        self._own: grpc.aio.Channel | None = None  # a connection that was made for this stream alone
        self._deliver = deliver
        self._opened = opened
        self._silence = Silence(asyncio.get_running_loop(), ask=opened)
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(WAITING_DATAGRAMS)

    def send(self, datagrams: Sequence[bytes]) -> None:
        """In order; what finds no place is lost."""
        self._silence.asked()
        for datagram in datagrams:
            with contextlib.suppress(asyncio.QueueFull):
                self._waiting.put_nowait(datagram)

    async def run(self) -> None:
        """Until cancelled; a stream that breaks, or in which nothing comes back, is opened again."""
        retry_s = FIRST_RETRY_S
        try:
            while True:
                try:
                    if await self._converse():
                        log.info("relay_stream_silent")
                        await self._dial_again()
                        continue
                except grpc.aio.UsageError:
                    return  # the connection was closed here, for another rendezvous
                except (grpc.aio.AioRpcError, KafilaError) as error:
                    reason = error.code if isinstance(error, KafilaError) else error.code().name
                    log.info("relay_stream_broken code=%s", reason)
                if self._silence.heard_once:
                    retry_s = FIRST_RETRY_S
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, LARGEST_RETRY_S)
        finally:
            self._silence.end()
            if self._own is not None:
                await self._own.close()

    async def _converse(self) -> bool:
        """One stream, until it ends; whether it does so because nothing comes back."""
        self._silence.begin()
        call = pb_grpc.RendezvousStub(self._channel).RelayStream(_each(self._waiting))  # type: ignore[no-untyped-call]
        self._opened()
        reading = asyncio.create_task(self._read(call), name="read a relay stream")
        silent = asyncio.create_task(self._silence.wait(), name="wait for a relay stream's silence")
        try:
            await asyncio.wait([reading, silent], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return True
            reading.result()
            return False
        finally:
            self._silence.end()
            for task in (reading, silent):
                task.cancel()
            call.cancel()
            await asyncio.wait([reading, silent])
            self._waiting = asyncio.Queue(WAITING_DATAGRAMS)  # the old one's reader may take one more

    async def _read(self, call: grpc.aio.StreamStreamCall) -> None:
        loop = asyncio.get_running_loop()
        async for reply in call:
            self._silence.heard()
            if reply is not None:  # gRPC's way to say that the message can't be read
                loop.call_soon(self._deliver, reply.datagram)

    async def _dial_again(self) -> None:
        """Raises KafilaError."""
        channel, before = await self._redial(), self._own
        self._channel = self._own = channel
        if before is not None:
            await before.close()


async def _each(waiting: asyncio.Queue[bytes]) -> AsyncIterator[pb.RelayDatagram]:
    while True:
        yield pb.RelayDatagram(datagram=await waiting.get())
