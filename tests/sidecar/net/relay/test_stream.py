"""The relay client over the rendezvous' TLS connection, and what happens when that breaks."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import grpc

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import rendezvous_pb2_grpc as pb_grpc
from kafila_rendezvous.config import RendezvousConfig
from kafila_rendezvous.server import serve
from kafila_sidecar.errors import Unavailable
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.relay.client import Deliver, Output, RelayClient, Send, stream_server
from kafila_sidecar.net.relay.end import Token
from kafila_sidecar.net.relay.stream import Redial, RelayStream

OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100)]


async def dialled(port: int) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS)


async def never() -> grpc.aio.Channel:
    raise Unavailable("there is no other connection to be had")


class Cable:
    """A TCP port that leads to another. Those who are on it when it is cut hear nothing any more, and nobody hears
    them; who comes later gets through."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._moving: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def laid(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._plug, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            self.cut()
            for writer in self._writers:
                writer.transport.abort()
            server.close()

    def cut(self) -> None:
        for task in self._moving:
            task.cancel()

    async def _plug(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, far_writer]
        for one, other in ((reader, far_writer), (far_reader, writer)):
            self._moving.add(asyncio.create_task(self._move(one, other)))

    async def _move(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)


class StreamMember:
    """One end of a channel, by stream only."""

    def __init__(self, channel: grpc.aio.Channel, redial: Redial, token: Token) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.answered = asyncio.Event()
        self.dials = 0
        self._loop = asyncio.get_running_loop()
        self._core = RelayClient(lambda: os.urandom(8))
        self._redial = redial
        self.path: Address = self._core.open(stream_server(1), self._loop.time())
        self._stream = RelayStream(channel, redial=self._dial, deliver=self._deliver, opened=self._opened)
        self._act(self._core.use(self.path, token, self._loop.time()))
        self._task = asyncio.create_task(self._stream.run())

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(3):
            while (wrapped := self._core.wrap([data], self.path)) is None:
                await asyncio.sleep(0.01)
                self._act(self._core.handle_timer(self._loop.time()))
        self._stream.send(wrapped[0])

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _dial(self) -> grpc.aio.Channel:
        self.dials += 1
        return await self._redial()

    def _opened(self) -> None:
        self._act(self._core.bind_anew(stream_server(1), self._loop.time()))

    def _deliver(self, datagram: bytes) -> None:
        self.answered.set()
        self._act(self._core.receive(datagram, stream_server(1), self._loop.time()))

    def _act(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Send(datagram, _):
                    self._stream.send([datagram])
                case Deliver(datagram, _):
                    self.heard.put_nowait(datagram)


async def talk(one: StreamMember, other: StreamMember, said: bytes) -> None:
    """Until it came through, in both directions."""
    silent = {one, other}
    async with asyncio.timeout(15):
        while silent:
            for member in (one, other):
                await member.send(said)
            await asyncio.sleep(0.05)
            for member in list(silent):
                while not member.heard.empty():
                    if member.heard.get_nowait() == said:
                        silent.discard(member)


@contextlib.asynccontextmanager
async def two_members(port: int) -> AsyncIterator[tuple[StreamMember, StreamMember]]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        stub = pb_grpc.RendezvousStub(channel)  # type: ignore[no-untyped-call]
        room = await stub.Create(pb.CreateRequest(protocol=1))
        guest = await stub.Join(pb.JoinRequest(protocol=1, room=room.room))
        members = []
        for mailbox, secret, peer in ((1, room.secret, guest.mailbox), (guest.mailbox, guest.secret, 1)):
            reply = await stub.Relay(pb.RelayRequest(room=room.room, mailbox=mailbox, secret=secret, peer=peer))
            members.append(StreamMember(channel, lambda: dialled(port), Token(reply.token, reply.key, reply.ttl_s)))
        try:
            yield members[0], members[1]
        finally:
            for member in members:
                await member.close()


class Garbler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A server that sends the same bytes to whoever opens a stream, messages or not."""

    def __init__(self, *messages: bytes) -> None:
        self._messages = messages

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.stream_stream_rpc_method_handler(self._answer)

    async def _answer(self, requests: AsyncIterator[bytes], _: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        for message in self._messages:
            yield message
        async for _request in requests:
            pass


@contextlib.asynccontextmanager
async def garbling(*messages: bytes) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to such a server."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Garbler(*messages),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        yield channel
    await server.stop(0)


async def test_stream_when_both_members_have_no_udp_then_datagrams_pass_in_order() -> None:
    async with serve(RendezvousConfig(port=0)) as serving, two_members(serving.port) as (alice, bob):
        await alice.send(b"wait for bob")
        await bob.send(b"0")
        async with asyncio.timeout(3):
            assert await alice.heard.get() == b"0"
            for i in range(100):
                await alice.send(bytes([i]) * 1200)
            while (first := await bob.heard.get()) == b"wait for bob":
                pass
            rest = [await bob.heard.get() for _ in range(99)]
        assert [first, *rest] == [bytes([i]) * 1200 for i in range(100)]


async def test_stream_when_the_server_goes_and_comes_back_then_opened_again() -> None:
    async with contextlib.AsyncExitStack() as stack:
        first = contextlib.AsyncExitStack()
        serving = await first.enter_async_context(serve(RendezvousConfig(port=0)))
        alice, _ = await stack.enter_async_context(two_members(serving.port))
        await alice.send(b"x")
        await first.aclose()
        alice.answered.clear()
        await stack.enter_async_context(serve(RendezvousConfig(port=serving.port)))
        await asyncio.wait_for(alice.answered.wait(), 10)


async def test_stream_when_its_connection_falls_silent_then_another_one_carries_on() -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        cable = Cable(serving.port)
        async with cable.laid() as port, two_members(port) as (alice, bob):
            await talk(alice, bob, b"before")
            cable.cut()
            await talk(alice, bob, b"after")
        assert alice.dials
        assert bob.dials


async def test_stream_when_the_peer_is_silent_then_the_relay_answers_and_the_connection_stays() -> None:
    async with serve(RendezvousConfig(port=0)) as serving, two_members(serving.port) as (alice, bob):
        await alice.send(b"x")
        await bob.close()
        alice.answered.clear()
        for _ in range(8):
            await alice.send(b"y")
            await asyncio.sleep(0.4)
        assert alice.answered.is_set()
        assert alice.dials == 0


async def test_stream_when_a_datagram_can_not_be_handled_then_it_alone_is_lost() -> None:
    heard, failed = asyncio.Queue[bytes](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context["exception"]))

    def deliver(datagram: bytes) -> None:
        if datagram[0] == 1:
            raise RuntimeError("a bug")
        heard.put_nowait(datagram)

    async with garbling(b"\x0a\x01\x01", b"\xff\xff", b"\x0a\x01\x02") as channel:
        stream = RelayStream(channel, redial=never, deliver=deliver, opened=lambda: None)
        task = asyncio.create_task(stream.run())
        assert await asyncio.wait_for(heard.get(), 5) == b"\x02"
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
    assert [str(error) for error in failed] == ["a bug"]
