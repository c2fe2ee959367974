"""Bytes through the relay: who has many ends, or many addresses of one network, gets no more than its share, and what
others send goes on."""

from collections.abc import Callable

import pytest

from kafila_rendezvous.udp.relay import Source
from tests.rendezvous.relay_world import ALICE, BOB, BYTES_PER_S, RelayWorld

SIZE = 995  # and 5 bytes of header
SHARE = 3 * BYTES_PER_S
ENDS = 20


def from_one_address(end: int) -> Source:
    return "203.0.113.7", 1000 + end


def from_one_64(end: int) -> Source:
    return f"2001:db8:0:0:{end:x}::1", 1000, 0, 0


def from_one_48(end: int) -> Source:
    return f"2001:db8:0:{end << 8:x}::1", 1000, 0, 0


def flooded(world: RelayWorld, source: Callable[[int], Source], seconds: float) -> float:
    """Bytes a second that pass when so many ends all send as much as each of them may."""
    ends = []
    for number in range(ENDS):
        serial = 100 + number
        here, there = source(number), ("192.0.2.9", 2000 + number)
        channel = world.bind(world.member(1, 2, serial=serial), here)
        assert channel is not None
        assert world.bind(world.member(2, 1, serial=serial), there) == channel
        ends.append((channel, here))
    passed = 0
    for step in range(int(seconds * BYTES_PER_S / 1000)):
        now = step * 1000 / BYTES_PER_S
        passed += sum(world.carried(channel, bytes(SIZE), here, now) is not None for channel, here in ends)
    return passed * (SIZE + 5) / seconds


@pytest.mark.parametrize(
    ("source", "share"), [(from_one_address, 1), (from_one_64, 1), (from_one_48, 4)], ids=["address", "64", "48"]
)
def test_relay_when_one_network_has_many_ends_then_they_carry_its_share_and_others_go_on(
    source: Callable[[int], Source], share: int
) -> None:
    world = RelayWorld(relay_bytes_per_address_and_s=SHARE)
    honest = world.bind(world.member(1, 2), ALICE)
    assert honest is not None
    world.bind(world.member(2, 1), BOB)
    rate = flooded(world, source, seconds=2.0)
    assert SHARE * share <= rate <= SHARE * share * 1.3  # half a second's worth came at once
    assert world.carried(honest, bytes(SIZE), ALICE, now=2.0) is not None
    assert world.carried(honest, bytes(SIZE), BOB, now=2.0) is not None


def test_relay_when_an_end_binds_again_or_moves_then_its_address_gets_no_more() -> None:
    world = RelayWorld(relay_bytes_per_address_and_s=BYTES_PER_S // 2)
    alice, bob = world.member(1, 2), world.member(2, 1)
    number = world.bind(alice, ALICE)
    assert number is not None
    world.bind(bob, BOB)
    passed = 0
    for port in range(50):
        source = (ALICE[0], 3000 + port)
        world.bind(alice, source)
        while world.carried(number, bytes(SIZE), source) is not None:
            passed += SIZE + 5
    assert passed <= BYTES_PER_S / 4


def test_rates_when_ends_come_and_go_then_none_are_kept_of_addresses_without_any() -> None:
    world = RelayWorld(relay_idle_s=45)
    alice = world.member(1, 2)
    for end in range(300):
        world.bind(alice, from_one_48(end % 256), now=end)
        assert len(world.relay._rates) <= 5  # of the last two, which have a /48 in common
    world.relay.handle_timer(1000.0)
    world.bind(alice, ALICE, now=1001.0)
    assert len(world.relay._rates) == 1


def test_relay_when_an_end_goes_to_and_fro_between_addresses_then_neither_is_filled_up() -> None:
    world = RelayWorld(relay_bytes_per_address_and_s=BYTES_PER_S // 2)
    alice, passed = world.member(1, 2), 0
    world.bind(world.member(2, 1), BOB)
    for turn in range(40):
        source = from_one_address(0) if turn % 2 else ALICE
        number = world.bind(alice, source)
        assert number is not None
        while world.carried(number, bytes(SIZE), source) is not None:
            passed += SIZE + 5
    assert passed <= 2 * BYTES_PER_S / 4
