"""A rendezvous that answers with any bytes: typed errors, places that make sense, and nothing that grows."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar, cast

import grpc
import pytest
from google.protobuf.message import DecodeError

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import ring_pb2
from kafila_sidecar.errors import KafilaError, Unavailable
from kafila_sidecar.session.admission.host import MOST_EXCHANGES
from kafila_sidecar.session.admission.newcomer import Newcomer
from kafila_sidecar.session.admission.versions import Versions
from kafila_sidecar.session.channel.channel import Channel
from kafila_sidecar.session.channel.replica import Replica
from kafila_sidecar.session.join import HostMailbox
from kafila_sidecar.session.opening import keeper_of
from kafila_sidecar.session.rendezvous.address import RendezvousAddress
from kafila_sidecar.session.rendezvous.code import LARGEST_ROOM, Code
from kafila_sidecar.session.rendezvous.elsewhere import nowhere
from kafila_sidecar.session.rendezvous.mailbox import (
    LONGEST_TOKEN_S,
    MOST_ATTENDING,
    MOST_TOKEN_BYTES,
    Mailbox,
    MailboxPlace,
    enter_room,
    open_room,
)
from tests.sidecar.net.nat.test_stun_servers import NO_PLACES
from tests.sidecar.session.rendezvous.evil_rendezvous import listening
from tests.sidecar.session.trust_world import MemoryStore, entropy, go, new_host, newcomer
from tests.support.fuzz import INPUTS, fuzz, mutations

ADDRESS = RendezvousAddress("127.0.0.1", 1, insecure=True)
SECRET = bytes(32)
PRESENT = pb.Present(
    mailboxes=[2, 3],
    observed_address="192.0.2.1:7",
    udp=pb.UdpPlace(host="192.0.2.7", port=7770, alternate_port=7771, alternate_host="192.0.2.8"),
)
CALLS = max(1, INPUTS // 100)  # each costs a connection

Result = TypeVar("Result")


def finish(steps: Coroutine[Any, Any, Result]) -> Result:
    """What a coroutine returns that has nothing to wait for."""
    try:
        steps.send(None)
    except StopIteration as end:
        return cast(Result, end.value)
    steps.close()
    raise AssertionError("it waits")


class HostileStub:
    """In place of a channel to a rendezvous: whatever is asked, `said` is the answer, read as gRPC reads it."""

    def __init__(self) -> None:
        self.said: list[bytes] = []

    def unary_unary(self, _method: str, *, response_deserializer: Callable[[bytes], object], **_: Any) -> Any:
        return lambda _request, timeout: self._answer(response_deserializer)

    def unary_stream(self, _method: str, *, response_deserializer: Callable[[bytes], object], **_: Any) -> Any:
        return lambda _request: ReadingMail(lambda: self._answer(response_deserializer))

    stream_stream = unary_stream

    async def _answer(self, deserialize: Callable[[bytes], object]) -> object:
        if not self.said:
            return grpc.aio.EOF
        try:
            return deserialize(self.said.pop(0))
        except DecodeError:
            return None


class ReadingMail:
    """A stream of answers."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self.read = read

    def cancel(self) -> None: ...


async def attended() -> tuple[HostileStub, Mailbox]:
    hostile = HostileStub()
    hostile.said = [pb.Event(present=PRESENT).SerializeToString()]
    mailbox = Mailbox(cast(grpc.aio.Channel, hostile), ADDRESS, MailboxPlace(7, 1, 1, SECRET))
    await mailbox.attend()
    return hostile, mailbox


def check_place(udp: pb.UdpPlace) -> None:
    assert udp.port <= 65535
    assert udp.alternate_port <= 65535
    for host in (udp.host, udp.alternate_host):
        assert not host or not (ip_address(host).is_unspecified or ip_address(host).is_multicast)


@pytest.mark.parametrize("udp", NO_PLACES)
async def test_present_when_its_udp_place_makes_no_sense_then_there_is_none(udp: pb.UdpPlace) -> None:
    hostile, mailbox = await attended()
    assert mailbox.udp == PRESENT.udp
    hostile.said = [pb.Event(present=pb.Present(udp=udp)).SerializeToString()]
    await mailbox.next()
    assert mailbox.udp == pb.UdpPlace()


GOOD_TOKEN = pb.RelayReply(token=bytes(37), key=bytes(32), ttl_s=3600.0, bytes_per_s=10**7)


@pytest.mark.parametrize(
    "changed",
    [
        *({"ttl_s": ttl_s} for ttl_s in (0.0, -5.0, math.nan, math.inf, -math.inf, 1e300)),
        *({"token": bytes(size)} for size in (0, 100_000)),
        *({"key": bytes(size)} for size in (0, 31, 33)),
    ],
)
async def test_relay_token_when_it_makes_no_sense_then_unavailable(changed: dict[str, Any]) -> None:
    hostile, mailbox = await attended()
    hostile.said = [GOOD_TOKEN.SerializeToString()]
    assert (await mailbox.relay_token(2)).ttl_s == 3600.0
    bad = pb.RelayReply()
    bad.CopyFrom(GOOD_TOKEN)
    for name, value in changed.items():
        setattr(bad, name, value)
    hostile.said = [bad.SerializeToString()]
    with pytest.raises(Unavailable, match="makes no sense"):
        await mailbox.relay_token(2)


async def test_answers_when_they_can_not_be_read_then_unavailable() -> None:
    hostile, mailbox = await attended()
    for ask in (lambda: mailbox.relay_token(2), mailbox.next):
        hostile.said = [b"\xff"]
        with pytest.raises(Unavailable):
            await cast(Callable[[], Any], ask)()


@pytest.mark.fuzz
async def test_events_when_hostile_then_typed_and_what_is_kept_makes_sense() -> None:
    hostile, mailbox = await attended()

    def read(data: bytes) -> None:
        hostile.said = [data]
        finish(mailbox.next())
        check_place(mailbox.udp)
        assert len(mailbox.attending) <= MOST_ATTENDING

    samples = [pb.Event(present=PRESENT), pb.Event(arrived=4), pb.Event(departed=2)]
    samples += [pb.Event(mail=pb.Mail(sender=2, body=b"12345678"))]
    assert fuzz(read, [event.SerializeToString() for event in samples]) >= len(samples)


@pytest.mark.fuzz
async def test_relay_tokens_when_hostile_then_typed_or_as_a_relay_could_take_them() -> None:
    hostile, mailbox = await attended()

    def read(data: bytes) -> None:
        hostile.said = [data]
        token = finish(mailbox.relay_token(2))
        assert 0 < token.ttl_s <= LONGEST_TOKEN_S
        assert len(token.key) == 32
        assert 0 < len(token.token) <= MOST_TOKEN_BYTES

    assert fuzz(read, [GOOD_TOKEN.SerializeToString()]) >= 1


class HostileServer(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Speaks gRPC, and sends any bytes; `said` by the method's name."""

    def __init__(self) -> None:
        self.said: dict[str, bytes] = {}

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        name = details.method.rpartition("/")[2]
        if name == "Attend":
            return grpc.unary_stream_rpc_method_handler(self._stream)

        async def answer(_request: bytes, _context: grpc.aio.ServicerContext) -> bytes:
            return self.said[name]

        return grpc.unary_unary_rpc_method_handler(answer)

    async def _stream(self, _request: bytes, _context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        yield self.said["Attend"]
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[HostileServer, RendezvousAddress]]:
    answers, server = HostileServer(), grpc.aio.server()
    server.add_generic_rpc_handlers((answers,))
    async with listening(server) as address:
        yield answers, address


ROOM = {
    "Create": pb.CreateReply(room=7, secret=SECRET, mailbox=1, idle_ttl_s=60),
    "Join": pb.JoinReply(secret=SECRET, mailbox=2, admitter=1, idle_ttl_s=60),
    "Attend": pb.Event(present=PRESENT),
}


def opening(address: RendezvousAddress, method: str) -> Coroutine[Any, Any, Mailbox]:
    return open_room(address) if method == "Create" else enter_room(address, 7)


@pytest.mark.parametrize(
    ("method", "reply"),
    [
        ("Create", pb.CreateReply(room=0, secret=SECRET, mailbox=1)),
        ("Create", pb.CreateReply(room=LARGEST_ROOM + 1, secret=SECRET, mailbox=1)),
        ("Create", pb.CreateReply(room=7, secret=SECRET)),
        ("Create", pb.CreateReply(room=7, secret=bytes(100_000), mailbox=1)),
        ("Join", pb.JoinReply(secret=b"", mailbox=2, admitter=1)),
        ("Join", pb.JoinReply(secret=SECRET, admitter=1)),
    ],
)
async def test_room_when_its_place_makes_no_sense_then_unavailable(method: str, reply: Any) -> None:
    async with serving() as (server, address):
        server.said = {name: message.SerializeToString() for name, message in ROOM.items()}
        await (await opening(address, method)).aclose()
        server.said[method] = reply.SerializeToString()
        with pytest.raises(Unavailable, match="makes no sense"):
            await opening(address, method)


@pytest.mark.fuzz
@pytest.mark.parametrize("method", ["Create", "Join"])
@pytest.mark.parametrize("hostile", ["the reply", "the first event"])
async def test_room_when_its_rendezvous_is_hostile_then_typed_or_a_place_that_makes_sense(
    method: str, hostile: str
) -> None:
    changed = method if hostile == "the reply" else "Attend"
    taken = 0
    async with serving() as (server, address):
        for number, data in enumerate(mutations([ROOM[changed].SerializeToString()], seed=3, inputs=CALLS)):
            server.said = {name: message.SerializeToString() for name, message in ROOM.items()} | {changed: data}
            try:
                mailbox = await opening(address, method)
            except KafilaError:
                continue
            taken += 1
            assert 1 <= mailbox.place.room <= LARGEST_ROOM, (number, data.hex())
            check_place(mailbox.udp)
            await mailbox.aclose()
    assert 0 < taken < CALLS


def two_members() -> tuple[Replica, Replica]:
    host = new_host()
    anna = newcomer(host, "anna")
    return host, anna


def mail(sender: int, parcel: ring_pb2.Parcel) -> pb.Event:
    return pb.Event(mail=pb.Mail(sender=sender, body=parcel.SerializeToString()))


@pytest.mark.fuzz
@pytest.mark.parametrize("layer", ["event", "parcel"])
@pytest.mark.parametrize("reader", ["host", "anna"])
async def test_mail_when_hostile_then_nobody_joins_or_goes_and_nothing_grows(
    layer: str, reader: str, tmp_path: Path
) -> None:
    _, mailbox = await attended()
    replicas = dict(zip(("host", "anna"), two_members(), strict=True))
    writer = replicas["anna" if reader == "host" else "host"]
    channel = Channel(
        mailbox=mailbox,
        replica=replicas[reader],
        guesses=MemoryStore(),
        versions=Versions("1", 1, "1"),
        keeper=keeper_of(tmp_path, mailbox, replicas[reader]),
        elsewhere=nowhere,
    )
    start = Newcomer(Code(7, ("ocean", "velvet", "lamp")), entropy("start")).start()
    parcels = [
        ring_pb2.Parcel(envelope=ring_pb2.Sealed.FromString(writer.write(go(1)))),
        ring_pb2.Parcel(admission=start),
    ]
    samples = [mail(9, parcel) for parcel in parcels] + [pb.Event(arrived=4), pb.Event(departed=4)]
    number = 0

    def read(data: bytes) -> None:
        nonlocal number
        number += 1
        if number % 1000 == 0 and reader == "host":
            channel.new_code()  # it would be paused for good after the first few guesses
        event = pb.Event(mail=pb.Mail(sender=number % 50 + 10, body=data))
        if layer == "event":
            event = pb.Event.FromString(data)
        mailbox._note(event)
        finish(channel._on_event(event))
        while channel._events._unread:
            finish(channel._events.next())
        assert len(channel._delivery.outbox._waiting) <= 256
        if channel._reception._admission is not None:
            assert channel._reception._admission.exchanges <= MOST_EXCHANGES

    whole = samples if layer == "event" else parcels
    taken = fuzz(read, [message.SerializeToString() for message in whole], errors=(DecodeError,))
    assert taken >= len(whole)
    assert [member.name for member in channel.members] == ["host", "anna"]
    assert (channel.host, channel._fault, channel._closing.is_set()) == ("host", None, False)


@pytest.mark.fuzz
async def test_hosts_answer_when_the_mail_is_hostile_then_typed() -> None:
    hostile, mailbox = await attended()
    host = HostMailbox(mailbox, answer_s=10.0)
    answer = Newcomer(Code(7, ("ocean", "velvet", "lamp")), entropy("start")).start()

    def read(data: bytes) -> None:
        hostile.said = [pb.Event(mail=pb.Mail(sender=1, body=data)).SerializeToString()]
        assert isinstance(finish(host._answer([1])), ring_pb2.Admission)

    assert fuzz(read, [ring_pb2.Parcel(admission=answer).SerializeToString()]) >= 1
