"""Rooms with a hand-moved clock: who gets what, what is refused, what expires."""

import random
from collections.abc import Callable

import pytest

from rendezvous.config import Limits
from rendezvous.errors import (
    Exhausted,
    Full,
    Malformed,
    RendezvousError,
    Superseded,
    Unknown,
    WrongProtocol,
    WrongSecret,
)
from rendezvous.mailbox import Arrived, Departed, Mail, Present
from rendezvous.room import Key, Rooms

ADDRESS = "192.0.2.1"


def secret(number: int) -> bytes:
    return number.to_bytes(32, "big")


def create(rooms: Rooms, now: float = 0.0, *, address: str = ADDRESS, capacity: int = 0) -> Key:
    return rooms.create(protocol=1, address=address, capacity=capacity, secret=secret(1), now=now)


def join(rooms: Rooms, room: int, now: float = 0.0, *, address: str = ADDRESS) -> Key:
    return rooms.join(protocol=1, address=address, room=room, secret=secret(2), now=now)


def test_attend_when_others_come_and_go_then_each_is_told_once() -> None:
    rooms = Rooms(Limits())
    host = create(rooms)
    guest = join(rooms, host.room)
    host_stream = rooms.attend(host, secret(1))
    assert rooms.take(host, host_stream) == [Present(())]
    guest_stream = rooms.attend(guest, secret(2))
    assert rooms.take(guest, guest_stream) == [Present((1,))]
    assert rooms.take_woken() == {host_stream}
    assert rooms.take(host, host_stream) == [Arrived(2)]
    rooms.detach(guest, guest_stream, 1.0)
    assert rooms.take(host, host_stream) == [Departed(2)]
    rooms.leave(guest, secret(2), 2.0)
    assert rooms.take(host, host_stream) == []


def test_post_when_mailbox_is_unattended_then_mail_waits_and_comes_after_present() -> None:
    rooms = Rooms(Limits())
    host = create(rooms)
    guest = join(rooms, host.room)
    assert rooms.post(host, secret(1), to=[2, 3], body=b"one", now=0.0) == [3]
    assert rooms.post(host, secret(1), to=[2], body=b"two", now=0.0) == []
    stream = rooms.attend(guest, secret(2))
    assert rooms.take(guest, stream) == [Present(()), Mail(1, b"one"), Mail(1, b"two")]
    assert rooms.take(guest, stream) == []
    assert rooms.queued_bytes == 0


def test_attend_when_a_newer_stream_takes_over_then_old_one_ends_and_nobody_departs() -> None:
    rooms = Rooms(Limits())
    host = create(rooms)
    guest = join(rooms, host.room)
    host_stream = rooms.attend(host, secret(1))
    old = rooms.attend(guest, secret(2))
    rooms.take(host, host_stream)
    rooms.take_woken()
    new = rooms.attend(guest, secret(2))
    assert old in rooms.take_woken()
    with pytest.raises(Superseded):
        rooms.take(guest, old)
    rooms.detach(guest, old, 1.0)
    assert rooms.take(host, host_stream) == []
    assert rooms.take(guest, new) == [Present((1,))]


def test_timer_when_mailbox_is_idle_then_it_and_its_room_go() -> None:
    rooms = Rooms(Limits(idle_ttl_s=60.0))
    host = create(rooms, 0.0)
    guest = join(rooms, host.room, 10.0)
    stream = rooms.attend(host, secret(1))
    rooms.take(host, stream)
    assert rooms.next_timer() == 70.0
    rooms.handle_timer(69.9)
    rooms.post(host, secret(1), to=[2], body=b"x", now=69.9)
    rooms.handle_timer(70.0)
    with pytest.raises(Unknown):
        rooms.attend(guest, secret(2))
    assert rooms.queued_bytes == 0
    assert rooms.next_timer() is None
    rooms.detach(host, stream, 100.0)
    assert len(rooms) == 1
    rooms.handle_timer(160.0)
    assert len(rooms) == 0


def test_timer_when_mailbox_is_attended_again_then_it_stays() -> None:
    rooms = Rooms(Limits(idle_ttl_s=60.0))
    host = create(rooms)
    stream = rooms.attend(host, secret(1))
    rooms.detach(host, stream, 50.0)
    rooms.attend(host, secret(1))
    rooms.handle_timer(1000.0)
    assert len(rooms) == 1


def test_create_when_numbers_are_free_then_lowest_is_taken_and_reused_after_cooling() -> None:
    rooms = Rooms(Limits(cool_down_s=600.0))
    first, second, third = (create(rooms) for _ in range(3))
    assert [key.room for key in (first, second, third)] == [1, 2, 3]
    rooms.leave(second, secret(1), 10.0)
    rooms.leave(first, secret(1), 20.0)
    assert create(rooms, 609.0).room == 4
    assert create(rooms, 620.0).room == 1
    assert create(rooms, 620.0).room == 2


REFUSALS: dict[str, tuple[type[RendezvousError], Callable[[Rooms, Key], object]]] = {
    "other protocol": (
        WrongProtocol,
        lambda rooms, key: rooms.join(protocol=2, address=ADDRESS, room=1, secret=secret(2), now=0),
    ),
    "short secret": (Malformed, lambda rooms, key: rooms.join(protocol=1, address="", room=1, secret=b"", now=0)),
    "no such room": (Unknown, lambda rooms, key: join(rooms, 99)),
    "no such mailbox": (Unknown, lambda rooms, key: rooms.attend(Key(1, 9), secret(1))),
    "attend with a wrong secret": (WrongSecret, lambda rooms, key: rooms.attend(key, secret(9))),
    "post with a wrong secret": (
        WrongSecret,
        lambda rooms, key: rooms.post(key, secret(9), to=[2], body=b"", now=0),
    ),
    "leave with a wrong secret": (WrongSecret, lambda rooms, key: rooms.leave(key, b"", 0)),
    "post to nobody": (Malformed, lambda rooms, key: rooms.post(key, secret(1), to=[1], body=b"", now=0)),
    "post to too many": (
        Malformed,
        lambda rooms, key: rooms.post(key, secret(1), to=range(2, 1000), body=b"", now=0),
    ),
    "post too much": (
        Malformed,
        lambda rooms, key: rooms.post(key, secret(1), to=[2], body=bytes(256 * 1024 + 1), now=0),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_request_when_wrong_then_typed_refusal_and_nothing_changes(name: str) -> None:
    error, request = REFUSALS[name]
    rooms = Rooms(Limits())
    key = create(rooms)
    with pytest.raises(error):
        request(rooms, key)
    assert len(rooms) == 1
    assert rooms.queued_bytes == 0
    assert rooms.take(key, rooms.attend(key, secret(1))) == [Present(())]


def test_join_when_room_is_full_then_refused_until_somebody_leaves() -> None:
    rooms = Rooms(Limits())
    host = create(rooms, capacity=2)
    guest = join(rooms, host.room)
    with pytest.raises(Full):
        join(rooms, host.room)
    rooms.leave(guest, secret(2), 0.0)
    assert join(rooms, host.room).mailbox == 3


def test_create_when_server_or_address_is_full_then_exhausted() -> None:
    rooms = Rooms(Limits(rooms=3, rooms_per_address=2))
    first = create(rooms)
    create(rooms)
    with pytest.raises(Exhausted, match="your address has 2 rooms"):
        create(rooms)
    create(rooms, address="192.0.2.2")
    with pytest.raises(Exhausted, match="all 3 rooms"):
        create(rooms, address="192.0.2.3")
    rooms.leave(first, secret(1), 0.0)
    create(rooms)


def test_join_when_numbers_are_tried_out_then_the_address_has_to_wait_a_minute() -> None:
    rooms = Rooms(Limits(joins_per_address_and_minute=5))
    host = create(rooms)
    for number in range(100, 105):
        with pytest.raises(Unknown):
            join(rooms, number, 0.0)
    with pytest.raises(Exhausted):
        join(rooms, host.room, 59.0)
    join(rooms, host.room, 59.0, address="192.0.2.9")
    join(rooms, host.room, 60.0)


def test_create_when_too_often_then_exhausted() -> None:
    rooms = Rooms(Limits(rooms_per_address_and_minute=2))
    create(rooms)
    create(rooms)
    with pytest.raises(Exhausted):
        create(rooms, 30.0)
    create(rooms, 61.0)


def test_post_when_queue_is_full_then_missed_and_others_get_it() -> None:
    rooms = Rooms(Limits(queued_bytes=1000, queued_events=100))
    host = create(rooms)
    slow, quick = join(rooms, 1), join(rooms, 1)
    stream = rooms.attend(quick, secret(2))
    for _ in range(10):
        missed = rooms.post(host, secret(1), to=[slow.mailbox, quick.mailbox], body=bytes(300), now=0.0)
        assert quick.mailbox not in missed
        rooms.take(quick, stream)
    assert missed == [slow.mailbox]
    assert rooms.queued_bytes <= 1000


def test_post_when_all_queues_hold_too_much_then_missed() -> None:
    rooms = Rooms(Limits(queued_bytes_in_all=1000))
    host = create(rooms)
    join(rooms, 1)
    join(rooms, 1)
    assert rooms.post(host, secret(1), to=[2, 3], body=bytes(700), now=0.0) == [3]


def test_post_when_too_often_then_exhausted() -> None:
    rooms = Rooms(Limits(posts_per_mailbox_and_minute=2))
    host = create(rooms)
    join(rooms, 1)
    for _ in range(2):
        rooms.post(host, secret(1), to=[2], body=b"", now=0.0)
    with pytest.raises(Exhausted):
        rooms.post(host, secret(1), to=[2], body=b"", now=1.0)


def test_take_when_reader_missed_news_then_stream_ends_and_present_tells() -> None:
    rooms = Rooms(Limits(queued_events=4))
    host = create(rooms)
    slow = rooms.attend(host, secret(1))
    for _ in range(5):
        rooms.attend(join(rooms, 1), secret(2))
    with pytest.raises(Exhausted):
        rooms.take(host, slow)
    again = rooms.attend(host, secret(1))
    assert rooms.take(host, again) == [Present((2, 3, 4, 5, 6))]


@pytest.mark.parametrize("seed", range(20))
def test_rooms_when_used_at_random_then_mail_comes_once_in_order_and_nothing_stays(seed: int) -> None:
    chance = random.Random(seed)
    rooms = Rooms(Limits(posts_per_mailbox_and_minute=10**6, joins_per_address_and_minute=10**6))
    host = create(rooms)
    members = [host, *(join(rooms, host.room) for _ in range(4))]
    streams = {key: rooms.attend(key, secret(1 if key is host else 2)) for key in members}
    posted: dict[tuple[int, int], list[bytes]] = {}
    taken: dict[tuple[int, int], list[bytes]] = {}

    def take(key: Key) -> None:
        for event in rooms.take(key, streams[key]):
            if isinstance(event, Mail):
                taken.setdefault((event.sender, key.mailbox), []).append(event.body)

    for turn in range(300):
        key = chance.choice(members)
        own = secret(1 if key is host else 2)
        match chance.choice(["post", "take", "return"]):
            case "post":
                to = chance.choice([other.mailbox for other in members if other is not key])
                body = turn.to_bytes(2, "big")
                assert rooms.post(key, own, to=[to], body=body, now=float(turn)) == []
                posted.setdefault((key.mailbox, to), []).append(body)
            case "take":
                take(key)
            case "return":
                rooms.detach(key, streams[key], float(turn))
                streams[key] = rooms.attend(key, own)
    for key in members:
        take(key)
    assert taken == posted
    assert rooms.queued_bytes == 0
    for key in members:
        rooms.leave(key, secret(1 if key is host else 2), 300.0)
    assert len(rooms) == 0
    assert rooms.next_timer() is None
