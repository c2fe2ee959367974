"""Mail that nobody reads or that crowds out others', rooms that one network takes, secrets of rooms that are gone."""

import asyncio
import contextlib
import itertools
import sys
from pathlib import Path

import grpc
import pytest

from kafila_proto import rendezvous_pb2 as pb
from kafila_rendezvous.address import limited
from kafila_rendezvous.certificate import make_key_pair
from kafila_rendezvous.config import RendezvousConfig, RendezvousLimits
from kafila_rendezvous.errors import LimitReached, Unknown
from kafila_rendezvous.notes import Notes
from kafila_rendezvous.rooms.events import Present
from kafila_rendezvous.rooms.living import LifeChange, LivingMailbox, RestChange, living_in
from kafila_rendezvous.rooms.room import Key, Rooms
from kafila_rendezvous.rooms.secret import Secrets
from kafila_rendezvous.server import serve
from tests.hostile.rendezvous_world import channel, is_served, stub_of, target, tls_channel, until

MIB = 1 << 20
SECRETS = Secrets(b"the server's own")
LARGE = bytes(256 * 1024)


class Server:
    """The rooms' core, and whoever calls it."""

    def __init__(self, limits: RendezvousLimits | None = None, living: frozenset[LivingMailbox] = frozenset()) -> None:
        self.rooms = Rooms(limits or RendezvousLimits(), SECRETS, run=2, recall_until=60.0, living=living)
        self._serials = itertools.count(2**40)

    def create(self, host: str, now: float = 0.0) -> Key:
        serial = next(self._serials)
        return self.rooms.create(protocol=1, address=limited(host), capacity=0, serial=serial, now=now)

    def join(self, host: str, room: int, now: float = 0.0) -> Key:
        return self.rooms.join(protocol=1, address=limited(host), room=room, now=now)

    def post(self, key: Key, to: list[int], body: bytes, now: float = 0.0) -> list[int]:
        return self.rooms.post(key, self.rooms.secret(key), to=to, body=body, now=now)

    def living(self) -> frozenset[LivingMailbox]:
        return living_in(map(str, self.rooms.take_changes()), 100_000)


# ---- Unread streams


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and all of 127.0.0.0/8")
async def test_streams_when_nobody_reads_them_then_what_they_hold_is_bounded(tmp_path: Path) -> None:
    with target(tmp_path) as attacked:
        before = attacked.resident_bytes()
        async with contextlib.AsyncExitStack() as stack:
            await asyncio.gather(*(_fill_and_attend(stack, attacked.port, number) for number in range(7)))
            assert attacked.resident_bytes() - before < 150 * MIB
            assert await is_served(attacked.port)
        assert await until(lambda: attacked.resident_bytes() - before < 150 * MIB, 1)


async def _fill_and_attend(stack: contextlib.AsyncExitStack, port: int, number: int) -> None:
    """A mailbox is filled, attended by a stream that nobody reads, filled and attended again."""
    stub = stub_of(await stack.enter_async_context(channel(port)))
    streams = []
    with contextlib.suppress(grpc.aio.AioRpcError):
        room = await stub.Create(pb.CreateRequest(protocol=1))
        other = await stub.Join(pb.JoinRequest(protocol=1, room=room.room))
        for _ in range(10):
            for _ in range(16):
                request = pb.PostRequest(room=room.room, mailbox=room.mailbox, secret=room.secret, to=[other.mailbox])
                request.body = LARGE
                await stub.Post(request, timeout=5)
            streams.append(stub.Attend(pb.AttendRequest(room=room.room, mailbox=other.mailbox, secret=other.secret)))
            await asyncio.sleep(0.05)


async def test_stream_when_a_newer_one_has_its_mailbox_then_the_unread_one_ends_with_its_connection() -> None:
    async with serve(RendezvousConfig(port=0)) as serving, channel(serving.port) as deaf, channel(serving.port) as mine:
        room = await stub_of(mine).Create(pb.CreateRequest(protocol=1))
        other = await stub_of(mine).Join(pb.JoinRequest(protocol=1, room=room.room))
        attend = pb.AttendRequest(room=room.room, mailbox=other.mailbox, secret=other.secret)
        unread = stub_of(deaf).Attend(attend)
        assert (await unread.read()).WhichOneof("event") == "present"
        request = pb.PostRequest(room=room.room, mailbox=1, secret=room.secret, to=[other.mailbox], body=LARGE)
        for _ in range(12):
            await stub_of(mine).Post(request)
        newer = stub_of(mine).Attend(attend)
        assert (await newer.read()).WhichOneof("event") == "present"
        async with asyncio.timeout(5):
            assert await unread.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED)


async def test_stream_when_its_reader_takes_nothing_before_the_deadline_then_it_departs() -> None:
    limits = RendezvousLimits(send_deadline_s=0.5)
    config = RendezvousConfig(port=0, limits=limits)
    async with serve(config) as serving, channel(serving.port) as deaf, channel(serving.port) as mine:
        room = await stub_of(mine).Create(pb.CreateRequest(protocol=1))
        watching = stub_of(mine).Attend(pb.AttendRequest(room=room.room, mailbox=1, secret=room.secret))
        await watching.read()
        other = await stub_of(mine).Join(pb.JoinRequest(protocol=1, room=room.room))
        unread = stub_of(deaf).Attend(pb.AttendRequest(room=room.room, mailbox=other.mailbox, secret=other.secret))
        assert (await watching.read()).arrived == other.mailbox
        request = pb.PostRequest(room=room.room, mailbox=1, secret=room.secret, to=[other.mailbox], body=LARGE)
        for _ in range(12):
            await stub_of(mine).Post(request)
        async with asyncio.timeout(5):
            assert (await watching.read()).departed == other.mailbox
        unread.cancel()


def test_mail_when_it_is_being_sent_then_it_counts_and_the_next_stream_gets_it() -> None:
    server = Server()
    rooms, host = server.rooms, server.create("192.0.2.1")
    guest = server.join("192.0.2.2", host.room)
    server.post(host, [guest.mailbox], LARGE)
    for _ in range(50):
        stream = rooms.attend(guest, rooms.secret(guest), address="192.0.2.2", now=0.0)
        assert isinstance(rooms.first(guest, stream), Present)
        rooms.sent(guest, stream)
        assert rooms.first(guest, stream) is not None
        assert len(LARGE) < rooms.queued_bytes < len(LARGE) + 1000
    rooms.sent(guest, stream)
    assert rooms.queued_bytes == 0


# ---- Large mail


def test_mail_when_one_body_goes_to_a_hundred_then_it_counts_once() -> None:
    server = Server()
    host = server.create("192.0.2.1")
    guests = [server.join("192.0.2.1", host.room).mailbox for _ in range(100)]
    assert server.post(host, guests, LARGE) == []
    assert server.rooms.queued_bytes < len(LARGE) + 100 * 100


def test_mail_when_one_address_posts_all_it_can_then_others_large_mail_has_room() -> None:
    server = Server()
    for _ in range(20):
        room = server.create("192.0.2.1")
        other = server.join("192.0.2.1", room.room)
        for _ in range(16):
            server.post(room, [other.mailbox], LARGE)
    assert server.rooms.queued_bytes <= RendezvousLimits().queued_bytes_per_address
    host = server.create("192.0.2.9")
    guest = server.join("192.0.2.8", host.room)
    assert server.post(host, [guest.mailbox], LARGE) == []


def test_mail_when_a_hundred_addresses_post_all_they_can_then_others_small_mail_has_room() -> None:
    server = Server()
    for address in range(100):
        for body in (LARGE, bytes(4096)):
            for _ in range(8):
                room = server.create(f"198.51.100.{address}")
                other = server.join(f"198.51.100.{address}", room.room)
                for _ in range(16):
                    server.post(room, [other.mailbox], body)
    host = server.create("192.0.2.9")
    guest = server.join("192.0.2.8", host.room)
    assert server.post(host, [guest.mailbox], bytes(2000)) == []
    assert server.rooms.queued_bytes <= RendezvousLimits().queued_bytes_in_all


def test_mail_when_strangers_fill_a_room_then_its_members_small_mail_has_room() -> None:
    server = Server()
    host = server.create("192.0.2.9")
    guest = server.join("192.0.2.8", host.room)
    for address in range(12):
        sender = server.join(f"198.51.100.{address}", host.room)
        targets = [server.join(f"198.51.100.{address}", host.room) for _ in range(4)]
        for one in targets:
            for _ in range(16):
                server.post(sender, [one.mailbox], LARGE)
    assert server.post(host, [guest.mailbox], bytes(2000)) == []


def test_news_when_nobody_reads_it_then_it_is_bounded_by_the_readers_address() -> None:
    server = Server(RendezvousLimits(queued_bytes_per_address=10_000, joins_per_address_and_minute=10_000))
    rooms, deaf = server.rooms, "198.51.100.1"
    host = server.create(deaf)
    boxes = [server.join(deaf, host.room) for _ in range(20)]
    for _ in range(50):
        for box in boxes:
            rooms.attend(box, rooms.secret(box), address=deaf, now=0.0)
        for box in boxes:
            rooms.detach(box, max(1, rooms.attend(box, rooms.secret(box), address=deaf, now=0.0)), 0.0)
    assert rooms.queued_bytes < 10_000 + 20 * 64


# ---- Rooms


def test_rooms_when_one_48_of_ipv6_takes_all_it_can_then_others_find_some() -> None:
    server = Server()
    for network in range(20_000):
        with contextlib.suppress(LimitReached):
            server.create(f"2001:db8:7:{network:x}::1")
    assert len(server.rooms) == 4 * RendezvousLimits().rooms_per_address_and_minute
    assert server.create("2001:db8:8::1")


def test_rooms_when_many_networks_take_seven_eighths_then_the_rest_is_for_those_who_have_none() -> None:
    server = Server(RendezvousLimits(rooms=800, rooms_per_address_and_minute=1000))
    for address in range(11):
        for _ in range(100):
            with contextlib.suppress(LimitReached):
                server.create(f"198.51.100.{address}")
    assert len(server.rooms) == 700
    for address in range(99):
        server.create(f"203.0.113.{address}")
    with pytest.raises(LimitReached, match="all 800 rooms"):
        server.create("203.0.113.1")
    assert server.create("192.0.2.1")


@pytest.mark.parametrize("narrow", ["2001:db8:7:0:{:x}::1", "2001:db8:7:{:x}::1"], ids=["a /64", "a /48"])
def test_numbers_when_a_network_tries_them_out_then_it_soon_has_to_wait(narrow: str) -> None:
    server = Server()
    heard = 0
    for number in range(2_000):
        try:
            server.join(narrow.format(number), 5000 + number)
        except LimitReached:
            continue
        except Unknown:
            heard += 1
    assert heard <= 4 * RendezvousLimits().joins_per_address_and_minute


# ---- Secrets of rooms that are gone


def test_secret_when_its_room_is_gone_then_a_restart_gives_nothing_back() -> None:
    before = Server()
    gone = before.create("198.51.100.1")
    secret = before.rooms.secret(gone)
    before.rooms.leave(gone, secret, 1.0)
    owner = before.create("192.0.2.1", 700.0)
    assert owner == gone, "the number was given again"
    own_secret = before.rooms.secret(owner)
    after = Server(living=before.living())
    with pytest.raises(Unknown):
        after.rooms.attend(gone, secret, address="198.51.100.1", now=1.0)
    assert after.rooms.attend(owner, own_secret, address="192.0.2.1", now=2.0)


def test_secret_when_its_mailbox_was_given_up_then_a_restart_gives_it_back_to_nobody() -> None:
    before = Server()
    host = before.create("192.0.2.1")
    guest, secret = before.join("192.0.2.2", host.room), before.rooms.secret(host)
    before.rooms.leave(host, secret, 1.0)
    guest_secret = before.rooms.secret(guest)
    after = Server(living=before.living())
    assert after.rooms.attend(guest, guest_secret, address="192.0.2.2", now=1.0)
    with pytest.raises(Unknown):
        after.rooms.attend(host, secret, address="192.0.2.1", now=1.0)


def test_numbers_when_a_stranger_is_quick_after_a_restart_then_rooms_that_live_keep_theirs() -> None:
    before = Server()
    owners = [before.create(f"192.0.2.{number}") for number in range(1, 40)]
    secrets = [before.rooms.secret(owner) for owner in owners]
    after = Server(living=before.living())
    taken = {after.create("198.51.100.1").room for _ in range(60)}
    assert not taken & {owner.room for owner in owners}
    for owner, secret in zip(owners, secrets, strict=True):
        assert after.rooms.attend(owner, secret, address="192.0.2.1", now=59.0)
    after.rooms.handle_timer(60.0)


def test_numbers_when_their_owners_do_not_come_back_then_others_get_them_after_a_rest() -> None:
    before = Server()
    owner = before.create("192.0.2.1")
    after = Server(living=before.living())
    rested = 60.0 + RendezvousLimits().rest_ttl_s
    assert after.create("198.51.100.1", 1.0).room == 2
    assert after.rooms.next_timer() == 60.0
    after.rooms.handle_timer(60.0)
    assert after.create("198.51.100.1", 61.0).room == 3
    assert after.create("198.51.100.1", rested).room == 4
    assert after.create("198.51.100.1", rested + 600.0).room == owner.room
    changes = after.rooms.take_changes()
    ended = {one.mailbox for one in changes if isinstance(one, LifeChange) and not one.begins}
    assert LivingMailbox(1, 2**40, 1) in ended


def test_notes_when_a_room_rests_then_the_next_run_reads_for_how_long_by_any_clock(tmp_path: Path) -> None:
    path = tmp_path / "mailboxes"
    notes = Notes(path, most=10, most_resting=2, clock=lambda: 1000.0)
    notes.note([RestChange(room, 7, 500.0) for room in range(1, 5)])
    notes.note([RestChange(2, 7, 0.0)])
    for now, left_s in ((1100.0, 400.0), (0.0, 450.0)):  # a clock that was set back leaves no more than the limit
        read = Notes(path, most=10, most_resting=2, clock=lambda now=now: now).resting(450.0)  # type: ignore[misc]
        assert read == [RestChange(1, 7, left_s)]
    assert Notes(path, most=10, most_resting=2, clock=lambda: 1500.0).resting(450.0) == []


async def test_server_when_started_again_then_it_remembers_who_lived_and_not_who_left(tmp_path: Path) -> None:
    pair = make_key_pair()
    config = RendezvousConfig(port=0, key_pair=pair, notes=tmp_path / "data" / "mailboxes")
    async with serve(config) as serving, tls_channel(serving.port, pair) as mine:
        gone, room = [await stub_of(mine).Create(pb.CreateRequest(protocol=1)) for _ in range(2)]
        await stub_of(mine).Leave(pb.LeaveRequest(room=gone.room, mailbox=gone.mailbox, secret=gone.secret))
    async with serve(config) as serving, tls_channel(serving.port, pair) as mine:
        stub = stub_of(mine)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Attend(pb.AttendRequest(room=gone.room, mailbox=gone.mailbox, secret=gone.secret)).read()
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        back = stub.Attend(pb.AttendRequest(room=room.room, mailbox=room.mailbox, secret=room.secret))
        assert (await back.read()).WhichOneof("event") == "present"
        back.cancel()


def test_notes_when_the_file_is_torn_or_long_then_what_can_be_read_counts_and_no_more() -> None:
    lines = [str(LifeChange(LivingMailbox(1, 7, number), begins=True)) for number in range(5)]
    torn = ["+ 1 7", "nonsense", "+ 1 7 x\n", "- 1 7 4\n", "+ " + "9" * 5000]
    assert living_in([*lines, *torn], 3) == {LivingMailbox(1, 7, number) for number in range(3)}


def test_notes_when_the_last_line_is_torn_then_half_a_number_is_no_other_mailbox(tmp_path: Path) -> None:
    path = tmp_path / "mailboxes"
    living = {LivingMailbox(1, 7, 12345), LivingMailbox(1, 7, 6)}
    resting = RestChange(21, 7, 500.0)
    Notes(path, most=10, clock=lambda: 1000.0).note([*(LifeChange(one, begins=True) for one in living), resting])
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        again = Notes(path, most=10, most_resting=2, clock=lambda: 1000.0)
        assert again.before <= living
        assert set(again.resting(900.0)) <= {resting}


async def test_notes_when_they_can_not_be_written_then_the_server_serves(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    config = RendezvousConfig(port=0, key_pair=make_key_pair(), notes=tmp_path / "a file" / "mailboxes")
    assert config.key_pair
    async with serve(config) as serving, tls_channel(serving.port, config.key_pair) as mine:
        assert (await stub_of(mine).Create(pb.CreateRequest(protocol=1))).room == 1
