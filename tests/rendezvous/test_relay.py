"""The relay's core: who may bind, what is carried, and that nothing grows."""

import struct

import pytest

from kafila_rendezvous.errors import LimitReached, Malformed, RendezvousError
from kafila_rendezvous.udp.relay import BAD_TOKEN, NO_ROOM, OLD_NUMBER
from kafila_rendezvous.udp.token import Tokens
from tests.rendezvous.relay_world import ALICE, BOB, BYTES_PER_S, RelayWorld, TokenHolder
from tests.support import fuzz

ELSEWHERE = ("203.0.113.77", 9999)


def pair(world: RelayWorld) -> tuple[TokenHolder, TokenHolder, int]:
    alice, bob = world.member(1, 2), world.member(2, 1)
    number = world.bind(alice, ALICE)
    assert number is not None
    assert world.bind(bob, BOB) == number
    return alice, bob, number


def test_relay_when_both_ends_are_bound_then_datagrams_go_over_unchanged_both_ways() -> None:
    world = RelayWorld()
    _, _, number = pair(world)
    header = struct.pack("!BI", 8, number)
    assert world.carried(number, b"to bob", ALICE) == (header + b"to bob", BOB)
    assert world.carried(number, b"to alice", BOB) == (header + b"to alice", ALICE)


def test_relay_when_only_one_end_is_bound_then_its_datagrams_are_dropped() -> None:
    world = RelayWorld()
    number = world.bind(world.member(1, 2), ALICE)
    assert number is not None
    assert world.carried(number, b"early", ALICE) is None
    assert world.relay.dropped == 1


def test_relay_when_a_stranger_sends_into_a_channel_then_told_that_it_is_not_bound() -> None:
    world = RelayWorld()
    _, _, number = pair(world)
    for source in (ELSEWHERE, (ALICE[0], ALICE[1] + 1)):
        assert world.carried(number, b"x" * 100, source) == (struct.pack("!BI", 13, number), source)


def test_bind_when_no_cookie_is_shown_then_nothing_is_kept_and_the_answer_is_smaller() -> None:
    world = RelayWorld()
    request = world.member(1, 2).request(bytes(16))
    for port in range(1000):
        answer = world.ask(request, (ELSEWHERE[0], port))
        assert answer[0] == 10
        assert len(answer) < len(request)
    assert len(world.relay) == 0
    assert world.relay.next_timer() is None


def test_bind_when_the_cookie_is_another_addresss_or_old_then_challenged_again() -> None:
    world = RelayWorld()
    alice = world.member(1, 2)
    cookie = world.ask(alice.request(bytes(16)), ALICE)[9:]
    assert world.ask(alice.request(cookie), ELSEWHERE)[0] == 10
    assert world.ask(alice.request(cookie), (ALICE[0], ALICE[1] + 1))[0] == 10
    assert world.ask(alice.request(cookie), ALICE, now=61.0)[0] == 10
    assert world.ask(alice.request(cookie), ALICE, now=29.0)[0] == 11


@pytest.mark.parametrize("at", [0, 8, 16, 17, 30, 36])
def test_bind_when_a_byte_of_the_token_is_changed_then_refused(at: int) -> None:
    world = RelayWorld()
    alice = world.member(1, 2)
    token = bytearray(alice.token)
    token[at] ^= 1
    assert refused(world, TokenHolder(bytes(token), alice.key)) == BAD_TOKEN


def test_bind_when_signed_by_who_saw_the_token_only_then_refused() -> None:
    world = RelayWorld()
    assert refused(world, TokenHolder(world.member(1, 2).token, b"k" * 32)) == BAD_TOKEN


def test_bind_when_the_token_is_another_servers_then_refused() -> None:
    other = Tokens(secret=b"t" * 32, ttl_s=3600.0, bytes_per_s=BYTES_PER_S)
    assert refused(RelayWorld(), TokenHolder(*other.issue(serial=1, mailbox=1, peer=2, now=0.0))) == BAD_TOKEN


def test_bind_when_the_token_has_expired_then_refused() -> None:
    world = RelayWorld(ttl_s=100.0)
    alice = world.member(1, 2)
    assert refused(world, alice, now=100.0) == BAD_TOKEN
    assert world.bind(world.member(1, 2, now=100.0), ALICE, now=100.0) is not None


def refused(world: RelayWorld, member: TokenHolder, now: float = 0.0, source: tuple[str, int] = ALICE) -> int:
    cookie = world.ask(member.request(bytes(16)), source, now)[9:]
    answer = world.ask(member.request(cookie), source, now)
    assert answer[0] == 12, "it was not refused"
    return answer[9]


def test_bind_when_the_address_changes_then_the_channel_follows() -> None:
    world = RelayWorld()
    alice, _, number = pair(world)
    moved = (ALICE[0], 5555)
    assert world.bind(alice, moved) == number
    assert world.carried(number, b"x", BOB) == (struct.pack("!BI", 8, number) + b"x", moved)
    answer = world.carried(number, b"x", ALICE)
    assert answer is not None
    assert answer[0][0] == 13


def test_bind_when_an_old_request_is_sent_again_then_refused_and_the_channel_stays() -> None:
    world = RelayWorld()
    alice, _, number = pair(world)
    cookie = world.ask(alice.request(bytes(16)), ALICE)[9:]
    old = alice.request(cookie)
    world.ask(old, ALICE)
    moved = (ALICE[0], 5555)
    world.bind(alice, moved)
    answer = world.ask(old, ALICE)
    assert (answer[0], answer[9]) == (12, OLD_NUMBER)
    assert world.carried(number, b"x", BOB) == (struct.pack("!BI", 8, number) + b"x", moved)


def test_bind_when_a_newer_token_starts_counting_again_then_taken_and_the_older_is_not() -> None:
    world = RelayWorld()
    alice, _, number = pair(world)
    world.bind(alice, ALICE)
    newer = world.member(1, 2)
    assert world.bind(newer, ALICE) == number
    assert world.bind(alice, ELSEWHERE) is None


def test_bind_when_one_address_wants_both_ends_then_refused() -> None:
    world = RelayWorld()
    number = world.bind(world.member(1, 2), ALICE)
    assert number is not None
    assert world.bind(world.member(2, 1), ALICE) is None
    assert world.carried(number, b"x", ALICE) is None


def test_channels_when_pairs_or_rooms_differ_then_they_do_not_meet() -> None:
    world = RelayWorld()
    numbers = {
        world.bind(world.member(a, b, serial=serial), (f"198.51.100.{a}", 1000 + serial * 10 + b))
        for serial in (1, 2)
        for a, b in ((1, 2), (1, 3), (2, 3))
    }
    assert len(numbers) == 6
    assert None not in numbers


def test_budget_when_an_end_sends_too_much_then_the_rest_is_dropped_and_the_other_end_is_not_charged() -> None:
    world = RelayWorld()
    _, _, number = pair(world)
    carried = sum(world.carried(number, bytes(995), ALICE, now=i / 10_000) is not None for i in range(20_000))
    assert carried == pytest.approx(2 * BYTES_PER_S / 1000 + 500, rel=0.01)
    assert world.carried(number, bytes(995), BOB, now=2.0) is not None


def test_budget_when_an_end_binds_again_then_it_is_not_filled_up() -> None:
    world = RelayWorld()
    alice, _, number = pair(world)
    while world.carried(number, bytes(995), ALICE) is not None:
        pass
    world.bind(alice, ALICE)
    assert world.carried(number, bytes(995), ALICE) is None


def test_ends_when_not_bound_again_then_forgotten_one_by_one() -> None:
    world = RelayWorld(relay_idle_s=45)
    alice, _, number = pair(world)
    world.bind(alice, ALICE, now=30.0)
    assert world.relay.next_timer() == 45.0
    world.relay.handle_timer(45.0)
    assert world.carried(number, b"x", ALICE, now=45.0) is None
    answer = world.carried(number, b"x", BOB, now=45.0)
    assert answer is not None
    assert answer[0][0] == 13
    world.relay.handle_timer(75.0)
    assert len(world.relay) == 0
    assert not world.relay._routes
    assert not world.relay._by_owner
    assert not world.relay._by_room
    assert not world.relay._numbers


@pytest.mark.parametrize(
    ("limits", "fits"),
    [({"relay_channels": 3}, 3), ({"relay_channels_per_room": 4}, 4), ({"relay_ends_per_address": 5}, 5)],
)
def test_bind_when_a_limit_is_reached_then_no_room(limits: dict[str, int], fits: int) -> None:
    world = RelayWorld(**limits)
    for peer in range(2, 2 + fits):
        assert world.bind(world.member(1, peer), (ALICE[0], 4000 + peer)) is not None
    late = world.member(1, 99)
    assert refused(world, late, source=(ALICE[0], 4999)) == NO_ROOM
    assert world.bind(world.member(1, 2), (ALICE[0], 5000)) is not None, "who is bound may bind again"


def test_requests_when_they_come_too_fast_then_exhausted() -> None:
    world = RelayWorld(burst=3)
    request = world.member(1, 2).request(bytes(16))
    for _ in range(3):
        world.ask(request, ALICE)
    with pytest.raises(LimitReached):
        world.relay.receive(request, ALICE, 0.0)
    with pytest.raises(LimitReached):
        world.relay.receive(b"\x08\x00\x00\x00\x01x", ALICE, 0.0)


@pytest.mark.parametrize("datagram", [b"", b"\x08", b"\x08\x00\x00\x00\x01", b"\x09" * 20, b"\x0a" * 25, b"\x40" * 100])
def test_datagram_when_it_is_none_of_the_protocols_then_malformed(datagram: bytes) -> None:
    with pytest.raises(Malformed):
        RelayWorld().relay.receive(datagram, ALICE, 0.0)


@pytest.mark.fuzz
def test_datagrams_when_random_or_damaged_then_typed_errors_and_nothing_is_kept() -> None:
    world = RelayWorld(burst=10**9)
    alice = world.member(1, 2)
    cookie = world.ask(alice.request(bytes(16)), ALICE)[9:]
    good = [alice.request(bytes(16)), alice.request(cookie), b"\x08\x00\x00\x00\x01data"]

    def read(datagram: bytes) -> None:
        answer = world.relay.receive(datagram, ALICE, 0.0)
        assert answer is None or len(answer[0]) <= len(datagram)

    fuzz.fuzz(read, good, seed=4, errors=(RendezvousError,))
    assert len(world.relay) == 1  # by the good one
