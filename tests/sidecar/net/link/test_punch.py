"""Two punch cores joined by a simulated network with a hand-moved clock."""

import os
from collections.abc import Callable

import pytest
from aioice.stun import Class, Message, Method

from kafila_sidecar.net import stun
from kafila_sidecar.net.candidates import (
    HOST,
    PEER_REFLEXIVE,
    RELAYED,
    SERVER_REFLEXIVE,
    Address,
    Candidate,
    priority,
)
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.link.pathsize import PROBED_BYTES, SAFE_BYTES
from kafila_sidecar.net.link.punch import PATIENCE_S, Datagram, Punch
from tests.sidecar.net.wire import DatagramWire
from tests.support.hand_clock import Clocked

A: Address = ("10.0.0.1", 1000)
B: Address = ("10.0.0.2", 2000)
NEAR: Address = ("10.0.0.2", 2)  # the listener, directly
RELAY: Address = ("30.0.0.2", 2)  # and by way of the relay
AWAY: Address = ("30.0.0.1", 1)  # the dialler, by way of the relay
SECRET = stun.pair_secret(b"session", b"k" * 32, b"a" * 32, b"b" * 32)
OTHER = stun.pair_secret(b"session", b"j" * 32, b"a" * 32, b"b" * 32)


class PunchEnd:
    """One punch core with the addresses that it has; it sends from the one that suits the target."""

    def __init__(
        self,
        wire: DatagramWire,
        *,
        dials: bool,
        addresses: list[Address],
        sizes: tuple[int, ...] = (),
        transactions: Callable[[], bytes] = lambda: os.urandom(12),
    ) -> None:
        self.wire = wire
        self.addresses = addresses
        self.refused = 0
        self.known: list[Candidate] = []
        self.punch = Punch(secret=SECRET, dials=dials, until=wire.now + 10, transactions=transactions, sizes=sizes)
        self.clocked = Clocked(wire, self.punch.next_timer, lambda: self.out(self.punch.handle_timer(wire.now)))
        for address in addresses:
            wire.attach(address, self.receive)

    def receive(self, data: bytes, source: Address) -> None:
        try:
            self.out(self.punch.receive(stun.parse(data), source, self.wire.now))
        except BadDatagram:
            self.refused += 1

    def out(self, datagrams: list[Datagram]) -> None:
        for data, target in datagrams:
            self.wire.send(data, self._source_for(target), target)
        self.clocked.arm()

    def add(self, *candidates: Candidate) -> None:
        self.known += candidates
        self.out(self.punch.know(self.known, self.wire.now))

    @property
    def target(self) -> Address | None:
        return self.punch.selected.target if self.punch.selected else None

    def _source_for(self, target: Address) -> Address:
        """The address in the same network (the same first number), else the first one."""
        network = target[0].partition(".")[0]
        return next((a for a in self.addresses if a[0].partition(".")[0] == network), self.addresses[0])


def candidate(address: Address, kind: str = HOST, local: int = 65535) -> Candidate:
    return Candidate(kind, *address, priority(kind, local))


def two_ends(wire: DatagramWire, sizes: tuple[int, ...] = ()) -> tuple[PunchEnd, PunchEnd]:
    return PunchEnd(wire, dials=True, addresses=[A], sizes=sizes), PunchEnd(
        wire, dials=False, addresses=[B], sizes=sizes
    )


def both_selected(a: PunchEnd, b: PunchEnd) -> bool:
    return a.target is not None and b.target is not None


@pytest.mark.parametrize(
    ("delay_s", "jitter_s", "loss"),
    [
        pytest.param(0.0005, 0.0, 0.0, id="lan"),
        pytest.param(0.05, 0.04, 0.0, id="reordered"),
        pytest.param(0.075, 0.02, 0.1, id="lossy"),
        pytest.param(0.15, 0.0, 0.3, id="bad"),
    ],
)
def test_path_when_both_check_then_both_select_it(delay_s: float, jitter_s: float, loss: float) -> None:
    for seed in range(20):
        wire = DatagramWire(delay_s=delay_s, jitter_s=jitter_s, loss=loss, seed=seed)
        a, b = two_ends(wire)
        a.add(candidate(B))
        b.add(candidate(A))
        assert wire.run(10, until=lambda a=a, b=b: both_selected(a, b))  # type: ignore[misc]
        assert (a.target, b.target) == (B, A)


def test_path_when_nothing_is_lost_then_it_takes_one_and_a_half_round_trips() -> None:
    wire = DatagramWire(delay_s=0.05)
    a, b = two_ends(wire)
    a.add(candidate(B))
    b.add(candidate(A))
    start = wire.now
    assert wire.run(1, until=lambda: both_selected(a, b))
    assert wire.now - start <= 0.151
    assert a.punch.selected is not None
    assert a.punch.selected.rtt_s == pytest.approx(0.1)


def test_path_when_one_end_knows_no_candidate_then_it_learns_the_others_address() -> None:
    wire = DatagramWire()
    a, b = two_ends(wire)
    b.add()
    a.add(candidate(B))
    assert wire.run(1, until=lambda: both_selected(a, b))
    assert b.punch.selected is not None
    assert (b.target, b.punch.selected.kind) == (A, PEER_REFLEXIVE)


def test_path_when_only_our_own_checks_get_through_then_nothing_is_selected() -> None:
    wire = DatagramWire()
    a, b = two_ends(wire)
    wire.cut.add((B, A))  # B hears A and answers into the void
    a.add(candidate(B))
    b.add(candidate(A))
    wire.run(12)
    assert a.target is None
    assert b.target is None
    assert "no answer" in a.punch.describe()


def test_path_when_several_answer_then_host_wins_over_reflexive_over_relayed() -> None:
    wire = DatagramWire()
    far, near, relay = ("20.0.0.2", 2), ("10.0.0.2", 2), ("30.0.0.2", 2)
    a = PunchEnd(wire, dials=True, addresses=[A, ("20.0.0.1", 1), ("30.0.0.1", 1)])
    b = PunchEnd(wire, dials=False, addresses=[far, near, relay])
    a.add(candidate(relay, RELAYED), candidate(far, SERVER_REFLEXIVE), candidate(near, HOST))
    b.add(candidate(A))
    wire.run(1)
    assert (a.target, b.target) == (near, A)
    wire.cut |= {(A, near), (near, A)}
    wire.run(1.9)  # three checks unanswered; no need to search
    assert a.target == far
    assert b.target == ("20.0.0.1", 1)
    wire.cut |= {(far, ("20.0.0.1", 1))}
    wire.run(6)
    assert a.target == relay
    assert b.target == ("30.0.0.1", 1)


def beside_a_relay(wire: DatagramWire, *known: Candidate) -> tuple[PunchEnd, PunchEnd]:
    """Two ends whose direct path is cut while the relayed one works; the listener knows of `known`."""
    a, b = PunchEnd(wire, dials=True, addresses=[A, AWAY]), PunchEnd(wire, dials=False, addresses=[NEAR, RELAY])
    wire.cut |= {(A, NEAR), (NEAR, A)}
    a.add(candidate(RELAY, RELAYED), candidate(NEAR, HOST))
    b.add(*known)
    return a, b


def test_path_when_relayed_at_first_and_direct_later_then_a_search_finds_the_direct_one() -> None:
    wire = DatagramWire()
    a, b = beside_a_relay(wire, candidate(A))
    wire.run(15)
    assert a.target == RELAY
    wire.cut.clear()
    wire.run(17)  # the searches begin 2, 6, 14 and 30 s after the relayed path was taken
    assert (a.target, b.target) == (NEAR, A)


def test_searches_when_the_path_stays_relayed_then_they_become_rare_and_never_end() -> None:
    wire = DatagramWire()
    a, b = beside_a_relay(wire, candidate(A), candidate(AWAY, RELAYED))
    wire.run(200)
    tried = wire.record(NEAR)
    before = wire.sent
    wire.run(600)
    assert tried == []  # cut
    kept = 4 * 600  # a request and its answer, each way, each second
    assert 0 < wire.sent - before - kept < 2 * 12 * 10  # ten searches of a few checks from each end
    wire.cut.clear()
    wire.run(66)
    assert (a.target, b.target) == (NEAR, A)


def test_path_when_the_relayed_one_answers_first_then_direct_ones_have_their_chance() -> None:
    wire = DatagramWire(delay_s=0.05)
    a, b = beside_a_relay(wire, candidate(A), candidate(AWAY, RELAYED))
    wire.run(0.15)
    wire.cut.clear()
    assert not both_selected(a, b)
    assert wire.run(0.4, until=lambda: both_selected(a, b))
    assert (a.target, b.target) == (NEAR, A)


def test_path_when_only_the_relay_answers_then_it_is_taken_after_a_moment() -> None:
    wire = DatagramWire(delay_s=0.01)
    relay = ("30.0.0.2", 2)
    a = PunchEnd(wire, dials=True, addresses=[("30.0.0.1", 1)])
    b = PunchEnd(wire, dials=False, addresses=[relay])
    a.add(candidate(relay, RELAYED))
    b.add(candidate(("30.0.0.1", 1), RELAYED))
    start = wire.now
    assert wire.run(1, until=lambda: both_selected(a, b))
    assert PATIENCE_S <= wire.now - start < PATIENCE_S + 0.1


def test_path_when_its_round_trip_is_long_then_it_is_not_taken_for_dead_between_check_and_answer() -> None:
    wire = DatagramWire(delay_s=0.25)
    slow, relay = ("10.0.0.2", 2), ("30.0.0.2", 2)
    a = PunchEnd(wire, dials=True, addresses=[A, ("30.0.0.1", 1)])
    b = PunchEnd(wire, dials=False, addresses=[slow, relay])
    a.add(candidate(relay, RELAYED), candidate(slow, HOST))
    b.add(candidate(A), candidate(("30.0.0.1", 1), RELAYED))
    wire.run(3)
    targets = set()
    for _ in range(100):
        wire.run(0.1)
        targets.add(a.target)
    assert targets == {slow}


def test_path_when_the_peers_quic_comes_from_a_new_address_then_it_is_checked_at_once() -> None:
    wire = DatagramWire()
    a, b = two_ends(wire)
    a.add(candidate(B))
    b.add(candidate(A))
    wire.run(2)
    new = ("192.0.2.1", 9)
    wire.translate(B, new)
    wire.attach(B, lambda data, source: None)
    wire.attach(new, b.receive)
    a.out(a.punch.heard_from(new, wire.now))
    wire.run(0.021)
    assert "192.0.2.1 port 9 (peer-reflexive): answered" in a.punch.describe()


def test_candidates_when_the_peer_announces_others_then_the_old_ones_are_forgotten_except_the_path_in_use() -> None:
    wire = DatagramWire()
    a, b = two_ends(wire)
    old, new = ("10.0.0.7", 7), ("10.0.0.8", 8)
    a.out(a.punch.know([candidate(B), candidate(old)], wire.now))
    b.add(candidate(A))
    wire.run(2)
    a.out(a.punch.know([candidate(new)], wire.now))
    assert a.target == B
    assert [line.partition(" ")[0] for line in a.punch.describe().split("; ")] == [B[0], new[0]]


def test_path_when_it_dies_and_the_others_were_given_up_long_ago_then_they_are_checked_again() -> None:
    wire = DatagramWire()
    near, far = ("10.0.0.2", 2), ("20.0.0.2", 2)
    a = PunchEnd(wire, dials=True, addresses=[A, ("20.0.0.1", 1)])
    b = PunchEnd(wire, dials=False, addresses=[near, far])
    wire.cut |= {(A, near), (near, A)}
    a.add(candidate(near), candidate(far))
    b.add(candidate(A))
    wire.run(30)
    assert a.target == far
    wire.cut = {(("20.0.0.1", 1), far), (far, ("20.0.0.1", 1))}
    wire.run(5)
    assert (a.target, b.target) == (near, A)


def test_path_when_one_end_comes_late_then_its_first_check_is_answered_by_a_check_at_once() -> None:
    wire = DatagramWire(delay_s=0.02)
    a, b = two_ends(wire)
    wire.attach(A, lambda data, source: None)
    b.add(candidate(A))
    wire.run(4.0)  # by now b checks every 0.8 s
    wire.attach(A, a.receive)
    a.add(candidate(B))
    assert wire.run(0.11, until=lambda: both_selected(a, b))


@pytest.mark.parametrize("moved", ["dialler", "listener"])
def test_path_when_a_nat_rebinds_on_either_side_then_the_other_end_follows(moved: str) -> None:
    wire = DatagramWire(delay_s=0.02)
    a, b = two_ends(wire)
    inside, outside = (A, ("192.0.2.1", 7)) if moved == "dialler" else (B, ("192.0.2.1", 7))
    wire.translate(inside, outside)
    a.add(candidate(outside if moved == "listener" else B))
    b.add(candidate(outside if moved == "dialler" else A))
    assert wire.run(1, until=lambda: both_selected(a, b))
    wire.run(3)
    # A new mapping: the old outside address leads nowhere any more.
    again = ("192.0.2.1", 8)
    wire.translate(inside, again)
    wire.attach(outside, lambda data, source: None)
    start = wire.now
    follower = b if moved == "dialler" else a
    assert wire.run(5, until=lambda: follower.target == again)
    assert wire.now - start < 3
    wire.run(3)
    assert a.punch.selected is not None
    assert a.punch.selected.is_alive


def test_checks_when_nobody_answers_then_they_end_and_stay_few() -> None:
    wire = DatagramWire()
    a, _ = two_ends(wire)
    a.add(candidate(("10.0.0.9", 9)))
    wire.run(60)
    assert wire.sent <= 16  # 0.1, 0.2, 0.4, then every 0.8 s until the deadline of 10 s
    assert a.punch.next_timer() is None


def test_checks_when_the_path_stands_then_one_a_second_keeps_it() -> None:
    wire = DatagramWire()
    a, b = two_ends(wire)
    a.add(candidate(B))
    b.add(candidate(A))
    wire.run(2)
    before = wire.sent
    wire.run(10)
    assert 36 <= wire.sent - before <= 44  # a request and its answer, each way, each second


def test_answer_when_it_comes_from_another_address_then_it_counts_for_nothing() -> None:
    wire = DatagramWire()
    a, _ = two_ends(wire)
    asked = a.punch.know([candidate(B)], wire.now)
    forged = stun.answer(SECRET, stun.parse(asked[0][0]), A)
    with pytest.raises(BadDatagram):
        a.punch.receive(stun.parse(forged), ("10.6.6.6", 6), wire.now)
    assert a.target is None


@pytest.mark.parametrize(
    "datagram",
    [
        pytest.param(stun.request(OTHER, "l", 1, bytes(12), 1), id="another-key"),
        pytest.param(stun.request(SECRET, "d", 1, bytes(12), 1), id="our-own-role"),
        pytest.param(bytes(Message(Method.BINDING, Class.REQUEST, bytes(12))), id="unsigned"),
        pytest.param(stun.answer(SECRET, Message(Method.BINDING, Class.REQUEST, b"x" * 12), A), id="unasked-answer"),
    ],
)
def test_message_when_not_the_peers_then_bad_datagram_and_no_growth(datagram: bytes) -> None:
    wire = DatagramWire()
    a, _ = two_ends(wire)
    with pytest.raises(BadDatagram):
        a.punch.receive(stun.parse(datagram), ("10.6.6.6", 6), wire.now)
    assert a.punch.describe() == "no candidate of it is known"


def test_choice_when_an_old_one_is_replayed_then_the_listener_does_not_follow() -> None:
    wire = DatagramWire()
    far, near, a_far = ("20.0.0.2", 2), ("10.0.0.2", 2), ("20.0.0.1", 1)
    a = PunchEnd(wire, dials=True, addresses=[A, a_far])
    b = PunchEnd(wire, dials=False, addresses=[far, near])
    recorded = wire.record(far)
    a.add(candidate(far, SERVER_REFLEXIVE))
    b.add(candidate(a_far))
    wire.run(2)
    assert b.target == a_far
    a.add(candidate(near))
    wire.run(2)
    assert b.target == A
    old = [data for data in recorded if b"\x80\x2a\x00\x08" in data]
    assert old
    for data in old:
        b.punch.receive(stun.parse(data), a_far, wire.now)  # still a path that answers
        assert b.target == A


@pytest.mark.parametrize(
    ("path_bytes", "found_bytes"), [(65_507, 8900), (8999, 8900), (1500, 1452), (1451, SAFE_BYTES)]
)
def test_size_when_the_path_carries_less_or_more_then_the_largest_that_fits_is_found(
    path_bytes: int, found_bytes: int
) -> None:
    wire = DatagramWire()
    wire.largest_bytes = path_bytes
    a, b = two_ends(wire, PROBED_BYTES)
    a.add(candidate(B))
    b.add(candidate(A))
    wire.run(3)
    assert a.punch.datagram_bytes == b.punch.datagram_bytes == found_bytes


def test_size_when_the_path_starts_to_carry_less_then_the_safe_size_is_used_again() -> None:
    wire = DatagramWire()
    a, b = two_ends(wire, PROBED_BYTES)
    a.add(candidate(B))
    b.add(candidate(A))
    wire.run(2)
    wire.largest_bytes = 1400
    wire.run(4)
    assert a.punch.datagram_bytes == b.punch.datagram_bytes == SAFE_BYTES
    assert (a.target, b.target) == (B, A)
