"""The relay over the rendezvous' TLS connection, where the network carries no UDP at all."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence

import grpc

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import rendezvous_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

WAITING_DATAGRAMS = 256  # to send; more are lost, as they would be on UDP
FIRST_RETRY_S = 0.2
LARGEST_RETRY_S = 5.0  # for as long as the stream is wanted: the rendezvous may come back


class RelayStream:
    """`deliver` gets each datagram of the relay's, `opened` a call at each (re)opening: channels bind again then.

    `deliver` runs as a callback of the loop, as for a socket: an error in it costs that one datagram.
    """

    def __init__(
        self, channel: grpc.aio.Channel, *, deliver: Callable[[bytes], None], opened: Callable[[], None]
    ) -> None:
        self._stub = pb_grpc.RendezvousStub(channel)  # type: ignore[no-untyped-call]
        self._deliver = deliver
        self._opened = opened
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(WAITING_DATAGRAMS)

    def send(self, datagrams: Sequence[bytes]) -> None:
        """In order; what finds no place is lost."""
        for datagram in datagrams:
            with contextlib.suppress(asyncio.QueueFull):
                self._waiting.put_nowait(datagram)

    async def run(self) -> None:
        """Until cancelled; a stream that breaks is opened again."""
        loop, retry_s = asyncio.get_running_loop(), FIRST_RETRY_S
        while True:
            try:
                call = self._stub.RelayStream(self._requests())
                self._opened()
                async for reply in call:
                    retry_s = FIRST_RETRY_S
                    if reply is not None:  # gRPC's way to say that the message can't be read
                        loop.call_soon(self._deliver, reply.datagram)
            except grpc.aio.AioRpcError as error:
                log.info("relay_stream_broken code=%s", error.code().name)
            except grpc.aio.UsageError:
                return  # the connection was closed here, for another rendezvous
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, LARGEST_RETRY_S)

    async def _requests(self) -> AsyncIterator[pb.RelayDatagram]:
        while True:
            yield pb.RelayDatagram(datagram=await self._waiting.get())
