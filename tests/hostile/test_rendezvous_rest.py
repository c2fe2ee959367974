"""A room whose members sleep: nobody else ends it, and nobody but them opens it."""

import pytest

from kafila_rendezvous.config import PROTOCOL, RendezvousLimits
from kafila_rendezvous.errors import Unknown, WrongSecret
from kafila_rendezvous.rooms.room import Key, Rooms
from kafila_rendezvous.rooms.secret import Secrets

HOME, STRANGE = "192.0.2.7", "198.51.100.9"
LIMITS = RendezvousLimits(idle_ttl_s=60.0, rest_ttl_s=1000.0, cool_down_s=10.0)


def sleeping(rooms: Rooms) -> tuple[Key, bytes, Key]:
    """A session's mailbox that nobody attends any more, its secret, and that of a stranger who stays in the room."""
    host = rooms.create(protocol=PROTOCOL, address=HOME, capacity=0, serial=5, now=0.0)
    secret = rooms.secret(host)
    guest = rooms.join(protocol=PROTOCOL, address=STRANGE, room=host.room, now=0.0)
    rooms.attend(guest, rooms.secret(guest), address=STRANGE, now=0.0)
    rooms.handle_timer(60.0)
    with pytest.raises(Unknown):
        rooms.secret(host)
    return host, secret, guest


def test_room_when_a_stranger_outstays_its_members_and_leaves_then_they_open_it_again() -> None:
    rooms = Rooms(LIMITS, Secrets(b"key"))
    host, secret, guest = sleeping(rooms)
    rooms.leave(guest, rooms.secret(guest), 61.0)
    with pytest.raises(Unknown):
        rooms.join(protocol=PROTOCOL, address=STRANGE, room=host.room, now=62.0)
    assert rooms.create(protocol=PROTOCOL, address=STRANGE, capacity=0, serial=6, now=100.0).room != host.room
    rooms.attend(host, secret, address=HOME, now=101.0)


def test_room_when_somebody_who_was_in_it_opens_it_again_and_leaves_then_it_rests_for_the_others() -> None:
    rooms = Rooms(LIMITS, Secrets(b"key"))
    host, secret, guest = sleeping(rooms)
    guests = rooms.secret(guest)
    rooms.detach(guest, 1, 61.0)
    rooms.handle_timer(121.0)
    rooms.attend(guest, guests, address=STRANGE, now=130.0)
    rooms.leave(guest, guests, 130.0)
    rooms.attend(host, secret, address=HOME, now=200.0)


def test_room_when_one_who_was_in_it_looks_in_again_and_again_then_its_rest_ends_all_the_same() -> None:
    rooms = Rooms(LIMITS, Secrets(b"key"))
    host = rooms.create(protocol=PROTOCOL, address=HOME, capacity=0, serial=5, now=0.0)
    secret = rooms.secret(host)
    now = LIMITS.idle_ttl_s
    rooms.handle_timer(now)
    end, visits = now + LIMITS.rest_ttl_s, 0
    while visits < 50:
        now = min(now + 0.9 * LIMITS.rest_ttl_s, end - 1.0) if now < end - 1.0 else now + 2.0
        try:
            stream = rooms.attend(host, secret, address=HOME, now=now)
        except Unknown:
            break
        visits += 1
        rooms.detach(host, stream, now)
        now += LIMITS.idle_ttl_s
        rooms.handle_timer(now)
    assert visits <= 2
    assert now < end + 2 * LIMITS.idle_ttl_s + 2.0


@pytest.mark.parametrize("awake_s", [100.0, 400.0, 5000.0])
def test_room_when_its_members_were_back_for_a_while_then_it_rests_for_as_long_again(awake_s: float) -> None:
    rooms = Rooms(LIMITS, Secrets(b"key"))
    host = rooms.create(protocol=PROTOCOL, address=HOME, capacity=0, serial=5, now=0.0)
    secret = rooms.secret(host)
    rooms.handle_timer(LIMITS.idle_ttl_s)
    back = LIMITS.idle_ttl_s + LIMITS.rest_ttl_s - 1.0
    stream = rooms.attend(host, secret, address=HOME, now=back)
    rooms.detach(host, stream, back + awake_s)
    gone = back + awake_s + LIMITS.idle_ttl_s
    rooms.handle_timer(gone)
    rests_s = min(LIMITS.rest_ttl_s, awake_s)
    rooms.attend(host, secret, address=HOME, now=gone + rests_s - 1.0)


def test_lost_mailbox_when_somebody_else_gives_it_up_then_it_stays() -> None:
    rooms = Rooms(LIMITS, Secrets(b"key"))
    host, secret, guest = sleeping(rooms)
    with pytest.raises((Unknown, WrongSecret)):
        rooms.leave(host, rooms.secret(guest), 61.0)
    rooms.leave(guest, rooms.secret(guest), 61.0)
    rooms.attend(host, secret, address=HOME, now=62.0)


def test_room_when_strangers_come_and_go_while_its_members_sleep_then_what_is_kept_of_it_is_bounded() -> None:
    rooms = Rooms(LIMITS, Secrets(b"key"))
    host, secret, guest = sleeping(rooms)
    most = LIMITS.mailboxes_per_room
    for turn in range(1, 4 * most):
        rooms.join(protocol=PROTOCOL, address=f"203.0.113.{turn % 250}", room=host.room, now=61.0 * turn)
        rooms.handle_timer(61.0 * turn + 60.0)
    assert len(rooms._rooms[host.room].missed) <= most
    now = 61.0 * 4 * most
    rooms.leave(guest, rooms.secret(guest), now)
    rooms.attend(host, secret, address=HOME, now=now)
