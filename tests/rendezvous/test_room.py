"""Rooms with a hand-moved clock: who gets what, what is refused, what expires."""

import contextlib
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafila_rendezvous.config import RendezvousLimits
from kafila_rendezvous.errors import (
    Full,
    LimitReached,
    Malformed,
    RendezvousError,
    Superseded,
    Unknown,
    WrongProtocol,
    WrongSecret,
)
from kafila_rendezvous.rooms.events import Arrived, Departed, Event, Mail, Present
from kafila_rendezvous.rooms.living import LivingMailbox, RestChange, living_in
from kafila_rendezvous.rooms.room import RUN_BITS, Key, Rooms
from kafila_rendezvous.rooms.secret import Secrets

ADDRESS = "192.0.2.1"


SECRETS = Secrets(b"the server's own")
WRONG = SECRETS.make(serial=0, room=1, mailbox=1)
SERIALS = itertools.count(2**63)


def fresh(limits: RendezvousLimits | None = None, **run: Any) -> Rooms:
    return Rooms(limits or RendezvousLimits(), SECRETS, **run)


def create(rooms: Rooms, now: float = 0.0, *, address: str = ADDRESS, capacity: int = 0) -> Key:
    return rooms.create(protocol=1, address=address, capacity=capacity, serial=next(SERIALS), now=now)


def join(rooms: Rooms, room: int, now: float = 0.0, *, address: str = ADDRESS) -> Key:
    return rooms.join(protocol=1, address=address, room=room, now=now)


def attend(rooms: Rooms, key: Key, now: float = 0.0) -> int:
    return rooms.attend(key, rooms.secret(key), address=ADDRESS, now=now)


def take(rooms: Rooms, key: Key, stream: int) -> list[Event]:
    """All that waits, each sent before the next."""
    events = []
    while (event := rooms.first(key, stream)) is not None:
        events.append(event)
        rooms.sent(key, stream)
    return events


def living(rooms: Rooms) -> frozenset[LivingMailbox]:
    """What the next run of the server would read."""
    return living_in(map(str, rooms.take_changes()), 1000)


def test_attend_when_others_come_and_go_then_each_is_told_once() -> None:
    rooms = fresh()
    host = create(rooms)
    guest = join(rooms, host.room)
    host_stream = attend(rooms, host)
    assert take(rooms, host, host_stream) == [Present(())]
    guest_stream = attend(rooms, guest)
    assert take(rooms, guest, guest_stream) == [Present((1,))]
    assert rooms.take_woken() == {host_stream}
    assert take(rooms, host, host_stream) == [Arrived(2)]
    rooms.detach(guest, guest_stream, 1.0)
    assert take(rooms, host, host_stream) == [Departed(2)]
    rooms.leave(guest, rooms.secret(guest), 2.0)
    assert take(rooms, host, host_stream) == []


def test_post_when_mailbox_is_unattended_then_mail_waits_and_comes_after_present() -> None:
    rooms = fresh()
    host = create(rooms)
    guest = join(rooms, host.room)
    assert rooms.post(host, rooms.secret(host), to=[2, 3], body=b"one", now=0.0) == [3]
    assert rooms.post(host, rooms.secret(host), to=[2], body=b"two", now=0.0) == []
    stream = attend(rooms, guest)
    assert take(rooms, guest, stream) == [Present(()), Mail(1, b"one"), Mail(1, b"two")]
    assert take(rooms, guest, stream) == []
    assert rooms.queued_bytes == 0


def test_attend_when_a_newer_stream_takes_over_then_old_one_ends_and_others_say_again_what_it_may_have_missed() -> None:
    rooms = fresh()
    host = create(rooms)
    guest = join(rooms, host.room)
    host_stream = attend(rooms, host)
    old = attend(rooms, guest)
    take(rooms, host, host_stream)
    rooms.take_woken()
    new = attend(rooms, guest)
    assert old in rooms.take_woken()
    with pytest.raises(Superseded):
        take(rooms, guest, old)
    rooms.detach(guest, old, 1.0)
    assert take(rooms, host, host_stream) == [Arrived(guest.mailbox)]
    assert take(rooms, guest, new) == [Present((1,))]


def test_timer_when_mailbox_is_idle_then_it_and_its_room_go() -> None:
    rooms = fresh(RendezvousLimits(idle_ttl_s=60.0))
    host = create(rooms, 0.0)
    guest = join(rooms, host.room, 10.0)
    stream = attend(rooms, host)
    take(rooms, host, stream)
    assert rooms.next_timer() == 70.0
    rooms.handle_timer(69.9)
    rooms.post(host, rooms.secret(host), to=[2], body=b"x", now=69.9)
    rooms.handle_timer(70.0)
    with pytest.raises(Unknown):
        attend(rooms, guest)
    assert rooms.queued_bytes == 0
    assert rooms.next_timer() is None
    rooms.detach(host, stream, 100.0)
    assert len(rooms) == 1
    rooms.handle_timer(160.0)
    assert len(rooms) == 0


def test_room_when_everybody_was_lost_then_who_had_a_mailbox_opens_it_again_under_its_number() -> None:
    rooms = fresh(RendezvousLimits(idle_ttl_s=60.0, rest_ttl_s=1000.0, cool_down_s=10.0))
    host = create(rooms)
    guest = join(rooms, host.room)
    host_secret, guest_secret = rooms.secret(host), rooms.secret(guest)
    rooms.handle_timer(60.0)
    assert len(rooms) == 0
    with pytest.raises(Unknown):
        join(rooms, host.room, 61.0)
    assert create(rooms, 700.0).room != host.room  # though it would have cooled down
    rooms.attend(guest, guest_secret, address=ADDRESS, now=900.0)
    assert join(rooms, host.room, 900.0).mailbox == 3
    rooms.leave(guest, guest_secret, 901.0)
    rooms.leave(Key(host.room, 3), rooms.secret(Key(host.room, 3)), 901.0)
    with pytest.raises(Unknown):  # it was lost, and is given up now
        rooms.leave(host, host_secret, 901.0)
    with pytest.raises(Unknown):  # the last one has given it up
        rooms.attend(host, host_secret, address=ADDRESS, now=902.0)


@pytest.mark.parametrize("shown", ["a stranger's", "late", "too many"])
def test_room_when_it_rests_then_nobody_else_opens_it_and_not_for_ever(shown: str) -> None:
    most = 1 if shown == "too many" else 10
    rooms = fresh(RendezvousLimits(idle_ttl_s=60.0, rest_ttl_s=1000.0, cool_down_s=10.0, rooms_per_address=most))
    if shown == "too many":
        other = create(rooms)
        secret = rooms.secret(other)
        rooms.handle_timer(60.0)
    host = create(rooms, 61.0)
    host_secret = rooms.secret(host)
    rooms.handle_timer(121.0)
    secret, now = {
        "a stranger's": (Secrets(b"a stranger").make(serial=1, room=host.room, mailbox=1), 130.0),
        "late": (host_secret, 1121.0),
        "too many": (host_secret, 130.0),
    }[shown]
    with pytest.raises(Unknown):
        rooms.attend(host, secret, address=ADDRESS, now=now)
    create(rooms, 1200.0)
    assert create(rooms, 1300.0).room <= 2 if most > 1 else True


def test_timer_when_mailbox_is_attended_again_then_it_stays() -> None:
    rooms = fresh(RendezvousLimits(idle_ttl_s=60.0))
    host = create(rooms)
    stream = attend(rooms, host)
    rooms.detach(host, stream, 50.0)
    attend(rooms, host)
    rooms.handle_timer(1000.0)
    assert len(rooms) == 1


def test_create_when_numbers_are_free_then_lowest_is_taken_and_reused_after_cooling() -> None:
    rooms = fresh(RendezvousLimits(cool_down_s=600.0))
    first, second, third = (create(rooms) for _ in range(3))
    assert [key.room for key in (first, second, third)] == [1, 2, 3]
    rooms.leave(second, rooms.secret(second), 10.0)
    rooms.leave(first, rooms.secret(first), 20.0)
    assert create(rooms, 609.0).room == 4
    assert create(rooms, 620.0).room == 1
    assert create(rooms, 620.0).room == 2


def test_restart_when_members_show_their_secrets_then_they_have_room_and_mailboxes_again() -> None:
    before = fresh()
    host = create(before)
    guest = join(before, host.room)
    host_secret, guest_secret = before.secret(host), before.secret(guest)
    after = fresh(run=3, recall_until=60.0, living=living(before))
    guest_stream = after.attend(guest, guest_secret, address=ADDRESS, now=1.0)
    assert take(after, guest, guest_stream) == [Present(())]
    assert after.pair(guest, guest_secret, host.mailbox, address=ADDRESS, now=1.0) >= 2**63
    host_stream = after.attend(host, host_secret, address=ADDRESS, now=5.0)
    assert take(after, host, host_stream) == [Present((guest.mailbox,))]
    assert take(after, guest, guest_stream) == [Arrived(host.mailbox)]
    assert after.secret(host) == host_secret
    assert join(after, host.room).mailbox == 3 << RUN_BITS
    assert after.post(guest, guest_secret, to=[host.mailbox], body=b"x", now=6.0) == []
    assert create(after).room != host.room


def test_restart_when_a_secret_is_late_or_anothers_then_nothing_comes_back() -> None:
    before = fresh()
    host = create(before)
    secret, forged = before.secret(host), Secrets(b"a stranger").make(serial=1, room=1, mailbox=1)
    known = living(before)
    for shown, now in ((secret, 60.0), (forged, 1.0), (WRONG[:-1], 1.0), (b"", 1.0)):
        after = fresh(run=3, recall_until=60.0, living=known)
        with pytest.raises(Unknown):
            after.attend(host, shown, address=ADDRESS, now=now)
        assert len(after) == 0


BRIEF_REST = RendezvousLimits(idle_ttl_s=60.0, rest_ttl_s=1000.0, cool_down_s=10.0, resting_rooms=2)


def rests(rooms: Rooms, passed_s: float = 0.0) -> list[RestChange]:
    """What the next run of the server would read, so long after."""
    changes = {one.room: one for one in rooms.take_changes() if isinstance(one, RestChange)}
    return [replace(one, for_s=one.for_s - passed_s) for one in changes.values() if one.for_s > passed_s]


def test_restart_when_nobody_was_quick_then_the_room_rests_and_its_member_opens_it_under_its_number() -> None:
    before = fresh(BRIEF_REST)
    host = create(before)
    secret = before.secret(host)
    after = fresh(BRIEF_REST, run=3, recall_until=60.0, living=living(before))
    after.handle_timer(60.0)
    assert create(after, 900.0).room != host.room
    after.attend(host, secret, address=ADDRESS, now=1059.0)
    assert join(after, host.room, 1059.0).mailbox == 3 << RUN_BITS


@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
def test_restart_when_a_room_rested_then_it_rests_on_and_no_longer_than_it_would_have(late: bool) -> None:
    before = fresh(BRIEF_REST)
    host = create(before)
    secret = before.secret(host)
    before.handle_timer(60.0)
    after = fresh(BRIEF_REST, run=3, recall_until=60.0, resting=rests(before, passed_s=800.0))
    assert create(after, 1.0).room != host.room
    with pytest.raises(Unknown) if late else contextlib.nullcontext():
        after.attend(host, secret, address=ADDRESS, now=200.0 if late else 199.0)
    if not late:
        assert rests(after) == []  # it was opened, and the run after that hears it


def test_restart_when_a_room_was_given_up_then_its_secrets_open_nothing() -> None:
    before = fresh(BRIEF_REST)
    host = create(before)
    secret = before.secret(host)
    before.leave(host, secret, 1.0)
    after = fresh(BRIEF_REST, run=3, recall_until=60.0, living=living(before), resting=rests(before))
    after.handle_timer(60.0)
    with pytest.raises(Unknown):
        after.attend(host, secret, address=ADDRESS, now=61.0)


def test_restart_when_too_many_rooms_did_not_come_back_then_no_more_rest_than_may() -> None:
    before = fresh(BRIEF_REST)
    for _ in range(3):
        create(before)
    after = fresh(BRIEF_REST, run=3, recall_until=60.0, living=living(before))
    after.handle_timer(60.0)
    assert len(rests(after)) == 2


def test_restart_when_a_room_number_was_given_away_meanwhile_then_its_new_owners_keep_it() -> None:
    before = fresh()
    first, second = create(before), create(before)
    kept = [one for one in living(before) if one.room == second.room]  # no word of the first one reached the disk
    after = fresh(run=3, recall_until=60.0, living=kept)
    assert create(after, 1.0).room == first.room
    with pytest.raises(WrongSecret):
        after.attend(first, before.secret(first), address=ADDRESS, now=2.0)
    assert after.attend(second, before.secret(second), address=ADDRESS, now=2.0)
    assert [create(after, 3.0).room for _ in range(2)] == [3, 4]


def test_restart_when_the_server_is_full_then_nobody_comes_back_beyond_its_limits() -> None:
    before = fresh()
    keys = [create(before) for _ in range(3)]
    after = fresh(RendezvousLimits(rooms_per_address=2), run=3, recall_until=60.0, living=living(before))
    for key in keys[:2]:
        after.attend(key, before.secret(key), address=ADDRESS, now=1.0)
    with pytest.raises(LimitReached):
        after.attend(keys[2], before.secret(keys[2]), address=ADDRESS, now=1.0)


REFUSALS: dict[str, tuple[type[RendezvousError], Callable[[Rooms, Key], object]]] = {
    "other protocol": (
        WrongProtocol,
        lambda rooms, key: rooms.join(protocol=2, address=ADDRESS, room=1, now=0),
    ),
    "no such room": (Unknown, lambda rooms, key: join(rooms, 99)),
    "no such mailbox": (Unknown, lambda rooms, key: rooms.attend(Key(1, 9), WRONG, address="", now=0)),
    "attend with a wrong secret": (WrongSecret, lambda rooms, key: rooms.attend(key, WRONG, address="", now=0)),
    "post with a wrong secret": (
        WrongSecret,
        lambda rooms, key: rooms.post(key, WRONG, to=[2], body=b"", now=0),
    ),
    "leave with a wrong secret": (WrongSecret, lambda rooms, key: rooms.leave(key, b"", 0)),
    "post to nobody": (Malformed, lambda rooms, key: rooms.post(key, rooms.secret(key), to=[1], body=b"", now=0)),
    "post to too many": (
        Malformed,
        lambda rooms, key: rooms.post(key, rooms.secret(key), to=range(2, 1000), body=b"", now=0),
    ),
    "post too much": (
        Malformed,
        lambda rooms, key: rooms.post(key, rooms.secret(key), to=[2], body=bytes(256 * 1024 + 1), now=0),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_request_when_wrong_then_typed_refusal_and_nothing_changes(name: str) -> None:
    error, request = REFUSALS[name]
    rooms = fresh()
    key = create(rooms)
    with pytest.raises(error):
        request(rooms, key)
    assert len(rooms) == 1
    assert rooms.queued_bytes == 0
    assert take(rooms, key, attend(rooms, key)) == [Present(())]


def test_join_when_room_is_full_then_refused_until_somebody_leaves() -> None:
    rooms = fresh()
    host = create(rooms, capacity=2)
    guest = join(rooms, host.room)
    with pytest.raises(Full):
        join(rooms, host.room)
    rooms.leave(guest, rooms.secret(guest), 0.0)
    assert join(rooms, host.room).mailbox == 3


def test_create_when_server_or_address_is_full_then_exhausted() -> None:
    rooms = fresh(RendezvousLimits(rooms=3, rooms_per_address=2))
    first = create(rooms)
    create(rooms)
    with pytest.raises(LimitReached, match="your address has 2 rooms"):
        create(rooms)
    create(rooms, address="192.0.2.2")
    with pytest.raises(LimitReached, match="all 3 rooms"):
        create(rooms, address="192.0.2.3")
    rooms.leave(first, rooms.secret(first), 0.0)
    create(rooms)


def test_join_when_numbers_are_tried_out_then_the_address_has_to_wait_a_minute() -> None:
    rooms = fresh(RendezvousLimits(joins_per_address_and_minute=5))
    host = create(rooms)
    for number in range(100, 105):
        with pytest.raises(Unknown):
            join(rooms, number, 0.0)
    with pytest.raises(LimitReached):
        join(rooms, host.room, 59.0)
    join(rooms, host.room, 59.0, address="192.0.2.9")
    join(rooms, host.room, 60.0)


def test_create_when_too_often_then_exhausted() -> None:
    rooms = fresh(RendezvousLimits(rooms_per_address_and_minute=2))
    create(rooms)
    create(rooms)
    with pytest.raises(LimitReached):
        create(rooms, 30.0)
    create(rooms, 61.0)


def test_post_when_queue_is_full_then_missed_and_others_get_it() -> None:
    rooms = fresh(RendezvousLimits(queued_bytes=1000, queued_events=100))
    host = create(rooms)
    slow, quick = join(rooms, 1), join(rooms, 1)
    stream = attend(rooms, quick)
    for _ in range(10):
        missed = rooms.post(host, rooms.secret(host), to=[slow.mailbox, quick.mailbox], body=bytes(300), now=0.0)
        assert quick.mailbox not in missed
        take(rooms, quick, stream)
    assert missed == [slow.mailbox]
    assert rooms.queued_bytes <= 1000


def test_post_when_all_queues_hold_too_much_then_missed() -> None:
    rooms = fresh(RendezvousLimits(queued_bytes_in_all=1000))
    host = create(rooms)
    join(rooms, 1)
    join(rooms, 1)
    assert rooms.post(host, rooms.secret(host), to=[2], body=bytes(700), now=0.0) == []
    assert rooms.post(host, rooms.secret(host), to=[3], body=bytes(700), now=0.0) == [3]


def test_post_when_too_often_then_exhausted() -> None:
    rooms = fresh(RendezvousLimits(posts_per_mailbox_and_minute=2))
    host = create(rooms)
    join(rooms, 1)
    for _ in range(2):
        rooms.post(host, rooms.secret(host), to=[2], body=b"", now=0.0)
    with pytest.raises(LimitReached):
        rooms.post(host, rooms.secret(host), to=[2], body=b"", now=1.0)


def test_take_when_reader_missed_news_then_stream_ends_and_present_tells() -> None:
    rooms = fresh(RendezvousLimits(queued_events=4))
    host = create(rooms)
    slow = attend(rooms, host)
    for _ in range(5):
        attend(rooms, join(rooms, 1))
    with pytest.raises(LimitReached):
        take(rooms, host, slow)
    again = attend(rooms, host)
    assert take(rooms, host, again) == [Present((2, 3, 4, 5, 6))]


@pytest.mark.parametrize("seed", range(20))
def test_rooms_when_used_at_random_then_mail_comes_once_in_order_and_nothing_stays(seed: int) -> None:
    chance = random.Random(seed)
    rooms = fresh(RendezvousLimits(posts_per_mailbox_and_minute=10**6, joins_per_address_and_minute=10**6))
    host = create(rooms)
    members = [host, *(join(rooms, host.room) for _ in range(4))]
    streams = {key: attend(rooms, key) for key in members}
    posted: dict[tuple[int, int], list[bytes]] = {}
    taken: dict[tuple[int, int], list[bytes]] = {}

    def read(key: Key) -> None:
        for event in take(rooms, key, streams[key]):
            if isinstance(event, Mail):
                taken.setdefault((event.sender, key.mailbox), []).append(event.body)

    for turn in range(300):
        key = chance.choice(members)
        own = rooms.secret(key)
        match chance.choice(["post", "take", "return"]):
            case "post":
                to = chance.choice([other.mailbox for other in members if other is not key])
                body = turn.to_bytes(2, "big")
                assert rooms.post(key, own, to=[to], body=body, now=float(turn)) == []
                posted.setdefault((key.mailbox, to), []).append(body)
            case "take":
                read(key)
            case "return":
                rooms.detach(key, streams[key], float(turn))
                streams[key] = attend(rooms, key)
    for key in members:
        read(key)
    assert taken == posted
    assert rooms.queued_bytes == 0
    for key in members:
        rooms.leave(key, rooms.secret(key), 300.0)
    assert len(rooms) == 0
    assert rooms.next_timer() is None
