"""The relay on loopback: tokens over gRPC, datagrams over UDP and over a stream."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import rendezvous_pb2_grpc as pb_grpc
from kafila_rendezvous.config import RendezvousConfig, RendezvousLimits
from kafila_rendezvous.errors import CannotServe
from kafila_rendezvous.server import serve
from tests.rendezvous.relay_world import TokenHolder
from tests.rendezvous.test_server import channel, stub_of
from tests.rendezvous.test_udp import ask, caller

Ask = Callable[[bytes], Awaitable[bytes]]


async def tokens(stub: pb_grpc.RendezvousStub) -> tuple[pb.CreateReply, list[TokenHolder]]:
    room = await stub.Create(pb.CreateRequest(protocol=1))
    guest = await stub.Join(pb.JoinRequest(protocol=1, room=room.room))
    members = []
    for mailbox, secret, peer in ((room.mailbox, room.secret, guest.mailbox), (guest.mailbox, guest.secret, 1)):
        reply = await stub.Relay(pb.RelayRequest(room=room.room, mailbox=mailbox, secret=secret, peer=peer))
        assert reply.ttl_s == 3600
        assert reply.bytes_per_s > 0
        members.append(TokenHolder(reply.token, reply.key))
    return room, members


async def bind(member: TokenHolder, asks: Ask) -> int:
    challenge = await asks(member.request(bytes(16)))
    bound = await asks(member.request(challenge[9:]))
    assert bound[0] == 11
    return int.from_bytes(bound[9:13], "big")


async def test_relay_when_two_members_bind_over_udp_then_datagrams_pass() -> None:
    async with serve(RendezvousConfig(port=0)) as serving, channel(serving.port) as mine:
        _, members = await tokens(stub_of(mine))
        place = ("127.0.0.1", serving.udp_ports[0])
        with caller() as one, caller() as other:
            for sock, member in ((one, members[0]), (other, members[1])):
                number = await bind(member, lambda data, sock=sock: udp(sock, place, data))  # type: ignore[misc]
            relayed = struct.pack("!BI", 8, number) + b"hello" * 200
            one.sendto(relayed, place)
            assert await heard(other) == relayed
            other.sendto(relayed, place)
            assert await heard(one) == relayed


async def test_relay_when_one_member_has_ipv6_and_the_other_ipv4_then_datagrams_pass() -> None:
    try:
        async with serve(RendezvousConfig(host="::", port=0)) as serving, channel(serving.port) as mine:
            _, members = await tokens(stub_of(mine))
            with caller("::1") as six, caller("127.0.0.1") as four:
                for sock, host, member in ((six, "::1", members[0]), (four, "127.0.0.1", members[1])):
                    place = (host, serving.udp_ports[0])
                    number = await bind(member, lambda data, sock=sock, place=place: udp(sock, place, data))  # type: ignore[misc]
                relayed = struct.pack("!BI", 8, number) + b"hello"
                six.sendto(relayed, ("::1", serving.udp_ports[0]))
                assert await heard(four) == relayed
                four.sendto(relayed, ("127.0.0.1", serving.udp_ports[0]))
                assert await heard(six) == relayed
    except CannotServe:
        pytest.skip("no IPv6 here")


async def test_relay_when_one_member_has_no_udp_then_a_stream_carries_its_datagrams() -> None:
    async with serve(RendezvousConfig(port=0)) as serving, channel(serving.port) as mine:
        stub = stub_of(mine)
        _, members = await tokens(stub)
        place = ("127.0.0.1", serving.udp_ports[0])
        async with stream(stub) as (send, receive):

            async def over_stream(data: bytes) -> bytes:
                await send(data)
                return await receive()

            with caller() as sock:
                number = await bind(members[0], over_stream)
                assert await bind(members[1], lambda data: udp(sock, place, data)) == number
                relayed = struct.pack("!BI", 8, number) + b"hello"
                await send(relayed)
                assert await heard(sock) == relayed
                sock.sendto(relayed, place)
                assert await receive() == relayed


async def test_stream_when_an_address_has_too_many_then_exhausted_and_again_possible_later() -> None:
    limits = RendezvousLimits(relay_streams_per_address=1)
    async with serve(RendezvousConfig(port=0, limits=limits)) as serving, channel(serving.port) as mine:
        stub = stub_of(mine)
        _, members = await tokens(stub)
        async with stream(stub) as (send, receive):
            await send(members[0].request(bytes(16)))
            await receive()
            async with stream(stub) as (_, refused):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await refused()
                assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        await asyncio.sleep(0.05)
        async with stream(stub) as (send, receive):
            await send(members[0].request(bytes(16)))
            assert (await receive())[0] == 10


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"secret": b"x" * 32}, grpc.StatusCode.PERMISSION_DENIED),
        ({"peer": 99}, grpc.StatusCode.NOT_FOUND),
        ({"peer": 1}, grpc.StatusCode.NOT_FOUND),
        ({"room": 99}, grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_token_when_asked_for_wrongly_then_refused(change: dict[str, object], code: grpc.StatusCode) -> None:
    async with serve(RendezvousConfig(port=0)) as serving, channel(serving.port) as mine:
        stub = stub_of(mine)
        room = await stub.Create(pb.CreateRequest(protocol=1))
        await stub.Join(pb.JoinRequest(protocol=1, room=room.room))
        asked = {"room": room.room, "mailbox": 1, "secret": room.secret, "peer": 2, **change}
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Relay(pb.RelayRequest(**asked))
        assert caught.value.code() == code


async def test_greet_when_asked_then_address_and_clock_are_told() -> None:
    async with serve(RendezvousConfig(port=0)) as serving, channel(serving.port) as mine:
        before = time.time()
        reply = await stub_of(mine).Greet(pb.GreetRequest(protocol=1))
        assert reply.observed_address.startswith("127.0.0.1:")
        assert before <= reply.time_s <= time.time()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub_of(mine).Greet(pb.GreetRequest(protocol=2))
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION


async def udp(sock: socket.socket, place: tuple[str, int], data: bytes) -> bytes:
    return (await ask(sock, place, data))[0]


async def heard(sock: socket.socket) -> bytes:
    async with asyncio.timeout(2):
        return (await asyncio.get_running_loop().sock_recvfrom(sock, 65536))[0]


@contextlib.asynccontextmanager
async def stream(
    stub: pb_grpc.RendezvousStub,
) -> AsyncIterator[tuple[Callable[[bytes], Awaitable[None]], Callable[[], Awaitable[bytes]]]]:
    call = stub.RelayStream()

    async def receive() -> bytes:
        async with asyncio.timeout(2):
            reply = await call.read()
        assert isinstance(reply, pb.RelayDatagram)
        return reply.datagram

    try:
        yield lambda data: call.write(pb.RelayDatagram(datagram=data)), receive
    finally:
        call.cancel()
