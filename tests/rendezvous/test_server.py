"""The gRPC driver on loopback."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from kafila_proto import rendezvous_pb2 as pb
from kafila_proto import rendezvous_pb2_grpc as pb_grpc
from kafila_rendezvous.address import limited, networks, plain, spoken
from kafila_rendezvous.certificate import fingerprint, keep_key_pair, make_key_pair, read_key_pair
from kafila_rendezvous.config import RendezvousConfig, RendezvousLimits
from kafila_rendezvous.errors import CannotServe
from kafila_rendezvous.server import serve


def channel(port: int) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])


def stub_of(connection: grpc.aio.Channel) -> pb_grpc.RendezvousStub:
    return pb_grpc.RendezvousStub(connection)  # type: ignore[no-untyped-call]


async def test_attend_when_a_connection_dies_then_others_hear_of_it() -> None:
    async with (
        serve(RendezvousConfig(port=0)) as serving,
        channel(serving.port) as mine,
        channel(serving.port) as theirs,
    ):
        host, guest = stub_of(mine), stub_of(theirs)
        room = await host.Create(pb.CreateRequest(protocol=1))
        place = await guest.Join(pb.JoinRequest(protocol=1, room=room.room))
        stream = host.Attend(pb.AttendRequest(room=room.room, mailbox=room.mailbox, secret=room.secret))
        first = await stream.read()
        assert first.present.observed_address.startswith("127.0.0.1:")
        guest_stream = guest.Attend(pb.AttendRequest(room=room.room, mailbox=place.mailbox, secret=place.secret))
        assert list((await guest_stream.read()).present.mailboxes) == [room.mailbox]
        assert (await stream.read()).arrived == place.mailbox
        await host.Post(
            pb.PostRequest(room=room.room, mailbox=room.mailbox, secret=room.secret, to=[place.mailbox], body=b"hi")
        )
        mail = (await guest_stream.read()).mail
        assert (mail.sender, mail.body) == (room.mailbox, b"hi")
        await theirs.close()
        assert (await asyncio.wait_for(stream.read(), 2)).departed == place.mailbox


async def test_attend_when_idle_ttl_passes_then_mailbox_is_gone() -> None:
    async with (
        serve(RendezvousConfig(port=0, limits=RendezvousLimits(idle_ttl_s=0.05))) as serving,
        channel(serving.port) as mine,
    ):
        stub = stub_of(mine)
        room = await stub.Create(pb.CreateRequest(protocol=1))
        await asyncio.sleep(0.2)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Leave(pb.LeaveRequest(room=room.room, mailbox=room.mailbox, secret=room.secret))
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_serve_when_it_stops_then_who_attends_hears_that_in_order(caplog: pytest.LogCaptureFixture) -> None:
    async with channel_of_its_own() as (mine, stop):
        room = await stub_of(mine).Create(pb.CreateRequest(protocol=1))
        stream = stub_of(mine).Attend(pb.AttendRequest(room=room.room, mailbox=room.mailbox, secret=room.secret))
        await stream.read()
        await stop()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "stops" in str(caught.value.details())
    assert not [record for record in caplog.records if record.exc_info]


@asynccontextmanager
async def channel_of_its_own() -> AsyncIterator[tuple[grpc.aio.Channel, Callable[[], Awaitable[None]]]]:
    """A connection to a server that can be stopped before it."""
    stack = AsyncExitStack()
    serving = await stack.enter_async_context(serve(RendezvousConfig(port=0)))
    async with channel(serving.port) as mine:
        yield mine, stack.aclose


async def test_post_when_body_is_over_the_wire_limit_then_refused() -> None:
    async with serve(RendezvousConfig(port=0)) as serving, channel(serving.port) as mine:
        stub = stub_of(mine)
        room = await stub.Create(pb.CreateRequest(protocol=1))
        request = pb.PostRequest(room=room.room, mailbox=1, secret=room.secret, to=[2], body=bytes(10**6))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Post(request)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_serve_when_port_is_taken_then_cannot_serve() -> None:
    async with serve(RendezvousConfig(port=0)) as serving:
        with pytest.raises(CannotServe, match="taken"):
            async with serve(RendezvousConfig(port=serving.port)):
                pass


@pytest.mark.parametrize(
    ("peer", "observed", "owner", "wider"),
    [
        (("192.0.2.7", 4711), "192.0.2.7:4711", "192.0.2.7", ()),
        (
            ("2001:db8:1:2:3::1", 4711),
            "[2001:db8:1:2:3::1]:4711",
            "2001:db8:1:2::/64",
            ("2001:db8:1::/56", "2001:db8:1::/48"),
        ),
        (("::ffff:192.0.2.7", 4711), "192.0.2.7:4711", "192.0.2.7", ()),
        (("fe80::1%eth0", 4711), "[fe80::1]:4711", "fe80::/64", ("fe80::/56", "fe80::/48")),
    ],
)
def test_peer_when_named_by_its_socket_then_address_is_read(
    peer: tuple[str, int], observed: str, owner: str, wider: tuple[str, ...]
) -> None:
    assert spoken(plain(peer[0]), peer[1]) == observed
    assert limited(peer[0]) == owner
    assert networks(owner) == (owner, *wider)


def test_key_pair_when_kept_then_same_fingerprint_and_private_files(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first, second = keep_key_pair(folder), keep_key_pair(folder)
    assert first.fingerprint == second.fingerprint
    assert len(first.fingerprint) == 20
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "key.pem").stat().st_mode & 0o777 == 0o600
    assert make_key_pair().fingerprint != first.fingerprint


def test_key_pair_when_file_is_no_certificate_then_cannot_serve(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"nonsense")
    with pytest.raises(CannotServe):
        read_key_pair(tmp_path / "c", tmp_path / "c")


def test_fingerprint_when_certificate_is_known_then_base32_of_its_sha256() -> None:
    # SHA-256 of "abc" (FIPS 180-2 B.1): ba7816bf 8f01cfea 414140de ...
    assert fingerprint(b"abc") == "xj4bnp4pahh6uqkbidpf"
