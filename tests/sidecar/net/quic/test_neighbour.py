"""Two QUIC cores joined by a simulated network with a hand-moved clock."""

import os
import random
import struct
from dataclasses import replace

import pytest

from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.quic import neighbour as core
from kafila_sidecar.net.quic.connection import IDLE_TIMEOUT_S
from kafila_sidecar.net.quic.credit import LINK_WINDOW_BYTES, STREAM_WINDOW_BYTES
from kafila_sidecar.net.quic.neighbour import Ended, Established, Event, Neighbour, StreamData, StreamGone
from tests.sidecar.net.people import LinkPerson, person, two_people
from tests.sidecar.net.wire import DatagramWire
from tests.support import fuzz
from tests.support.hand_clock import Clocked

NAME = b"pairname"
A: Address = ("10.0.0.1", 1)
B: Address = ("10.0.0.2", 2)
LOW, HIGH = two_people()


class QuicEnd:
    """One core on the wire, with everything that it said and got."""

    def __init__(
        self, wire: DatagramWire, me: LinkPerson, peer: LinkPerson, here: Address, there: Address, name: bytes = NAME
    ) -> None:
        self.wire, self.here, self.there = wire, here, there
        self.core = Neighbour(me=me, peer_fingerprint=peer.fingerprint, pair_name=name)
        self.events: list[Event] = []
        self.largest_sent = 0
        self.sent = 0
        self.clocked = Clocked(wire, self.core.next_timer, self.fire)
        wire.attach(here, self.receive)

    def receive(self, data: bytes, source: Address) -> None:
        self.core.receive(data, self.wire.now, 0.02)
        may_send = self.core.has_to_send(self.wire.now)
        assert self.pump() == 0 or may_send, "a link would not have looked"

    def fire(self) -> None:
        self.core.handle_timer(self.wire.now)
        self.pump()

    def dial(self) -> None:
        self.core.dial(self.wire.now, 0.02)
        self.pump()

    def write(self, stream_id: int, data: bytes, *, is_last: bool = False) -> None:
        self.core.connection.send_stream_data(stream_id, data, is_last)
        self.pump()

    def pump(self) -> int:
        """How many datagrams that makes."""
        while (event := self.core.next_event()) is not None:
            self.events.append(event)
        datagrams = self.core.datagrams(self.wire.now)
        for datagram in datagrams:
            self.largest_sent = max(self.largest_sent, len(datagram))
            self.wire.send(datagram, self.here, self.there)
        self.sent += len(datagrams)
        self.clocked.arm()
        return len(datagrams)

    def got(self, stream_id: int) -> bytes:
        return b"".join(e.data for e in self.events if isinstance(e, StreamData) and e.stream_id == stream_id)

    @property
    def is_established(self) -> bool:
        return any(isinstance(event, Established) for event in self.events)

    @property
    def ended(self) -> Ended | None:
        return next((event for event in self.events if isinstance(event, Ended)), None)


def two_ends(wire: DatagramWire, dialler: LinkPerson = LOW, listener: LinkPerson = HIGH) -> tuple[QuicEnd, QuicEnd]:
    """Each end expects LOW and HIGH, whoever is really there."""
    a, b = QuicEnd(wire, dialler, HIGH, A, B), QuicEnd(wire, listener, LOW, B, A)
    return a, b


def established(wire: DatagramWire) -> tuple[QuicEnd, QuicEnd]:
    a, b = two_ends(wire)
    a.dial()
    assert wire.run(10, until=lambda: a.is_established and b.is_established)
    return a, b


def wide(wire: DatagramWire) -> tuple[QuicEnd, QuicEnd]:
    """Established on a path with large datagrams, so that a flood costs few packets."""
    a, b = established(wire)
    for end in (a, b):
        end.core.follow_path(is_new=False, datagram_bytes=8900)
    return a, b


def test_handshake_when_nothing_is_lost_then_both_stand_after_one_and_a_half_round_trips() -> None:
    wire = DatagramWire(delay_s=0.05)
    start = wire.now
    established(wire)
    assert wire.now - start == pytest.approx(0.2, abs=0.01)  # the dialler waits for the welcome: two round trips


@pytest.mark.parametrize(("loss", "jitter_s"), [(0.05, 0.0), (0.1, 0.03), (0.2, 0.05)])
def test_bytes_when_datagrams_are_lost_and_reordered_then_they_arrive_whole_and_in_order(
    loss: float, jitter_s: float
) -> None:
    for seed in range(4):
        wire = DatagramWire(delay_s=0.02, jitter_s=jitter_s, loss=loss, seed=seed)
        a, b = established(wire)
        there, back = random.Random(seed).randbytes(100_000), random.Random(-seed).randbytes(50_000)
        a.write(0, there, is_last=True)
        b.write(1, back, is_last=True)
        assert wire.run(60, until=lambda a=a, b=b: len(b.got(0)) == 100_000 and len(a.got(1)) == 50_000)  # type: ignore[misc]
        assert (b.got(0), a.got(1)) == (there, back)


def test_welcome_when_data_of_the_listener_overtakes_it_then_established_still_comes_first() -> None:
    for seed in range(20):
        wire = DatagramWire(delay_s=0.02, jitter_s=0.03, loss=0.2, seed=seed)
        a, b = two_ends(wire)
        a.dial()
        assert wire.run(10, until=lambda b=b: b.is_established)  # type: ignore[misc]
        b.write(1, b"early")
        assert wire.run(10, until=lambda a=a: a.got(1) == b"early")  # type: ignore[misc]
        assert isinstance(a.events[0], Established)


@pytest.mark.parametrize("liar", ["dialler", "listener"])
def test_certificate_when_not_the_rosters_then_both_ends_end_unpinned(liar: str) -> None:
    wire = DatagramWire()
    stranger = person()
    if liar == "dialler":
        a, b = two_ends(wire, dialler=replace(stranger, fingerprint=LOW.fingerprint))
    else:
        a, b = two_ends(wire, listener=replace(stranger, fingerprint=HIGH.fingerprint))
    a.dial()
    wire.run(2)
    assert not a.is_established
    assert not b.is_established
    assert a.ended is not None
    assert b.core.refusal is not None
    assert (a.ended.kind, b.core.refusal.kind) == ("unpinned", "unpinned")


def test_listener_when_a_stranger_has_dialled_before_then_the_member_still_gets_through() -> None:
    wire = DatagramWire()
    stranger, b = (
        QuicEnd(wire, replace(person(), fingerprint=LOW.fingerprint), HIGH, A, B),
        QuicEnd(wire, HIGH, LOW, B, A),
    )
    stranger.dial()
    wire.run(1)
    assert stranger.ended is not None
    member = QuicEnd(wire, LOW, HIGH, A, B)
    member.dial()
    assert wire.run(2, until=lambda: member.is_established and b.is_established)


def test_dialler_when_it_tries_again_then_the_listener_takes_the_new_attempt() -> None:
    wire = DatagramWire()
    first, b = two_ends(wire)
    first.dial()
    wire.run(0.012)  # the first flight has arrived, the answer is under way
    again = QuicEnd(wire, LOW, HIGH, A, B)
    again.dial()
    assert wire.run(2, until=lambda: again.is_established and b.is_established)


def test_listener_when_the_first_packet_names_another_pair_then_it_does_not_answer() -> None:
    wire = DatagramWire()
    a, b = QuicEnd(wire, LOW, HIGH, A, B, name=b"another!"), QuicEnd(wire, HIGH, LOW, B, A)
    a.dial()
    wire.run(1)
    assert not b.core.is_started


def test_peer_when_it_falls_silent_then_the_connection_ends_after_the_idle_timeout() -> None:
    wire = DatagramWire()
    a, _ = established(wire)
    wire.run(3)
    wire.cut |= {(A, B), (B, A)}
    wire.run(2)
    heard_at = a.core.heard_at
    assert heard_at is not None
    assert 1.4 < wire.now - heard_at < 2.6
    assert a.ended is None
    wire.run(IDLE_TIMEOUT_S + 1)
    assert a.ended is not None
    assert a.ended.kind == "silent"


def test_peers_when_nobody_says_anything_then_few_keepalives_hold_the_silence_under_a_second() -> None:
    wire = DatagramWire()
    a, b = established(wire)
    wire.run(1)
    before, longest_s = wire.sent, 0.0
    for _ in range(100):
        wire.run(0.1)
        for end in (a, b):
            longest_s = max(longest_s, wire.now - (end.core.heard_at or 0.0))
    assert longest_s < 1.0
    assert wire.sent - before < 100  # of ten seconds, both ends together


@pytest.mark.parametrize("delay_s", [0.0005, 0.05])
def test_peers_when_nobody_says_anything_then_one_end_asks_and_the_other_answers(delay_s: float) -> None:
    """Two that ask each other wake both for twice as many datagrams, a tenth of a slow machine with a few links."""
    wire = DatagramWire(delay_s=delay_s)
    established(wire)
    wire.run(2)
    before = wire.sent
    wire.run(10)
    assert wire.sent - before <= 2 * 10 / 0.5 + 2


def test_peer_when_it_closes_then_the_other_end_learns_the_reason_at_once() -> None:
    wire = DatagramWire()
    a, b = established(wire)
    a.core.close(core.CLOSED, "going home")
    a.pump()
    assert wire.run(1, until=lambda: b.ended is not None)
    assert b.ended == Ended("closed", "going home")
    assert a.ended is None


def test_peer_when_its_reason_commands_the_terminal_then_it_is_only_shown() -> None:
    wire = DatagramWire()
    a, b = established(wire)
    a.core.close(core.CLOSED, "\x1b[2Jgoing\nhome")
    a.pump()
    assert wire.run(1, until=lambda: b.ended is not None)
    assert b.ended == Ended("closed", "\ufffd[2Jgoing home")


def test_stream_when_given_up_then_the_peer_learns_it_and_credit_comes_back() -> None:
    wire = DatagramWire()
    a, b = wide(wire)
    for stream_id in range(0, 80, 4):  # together far over the link's window
        b.core.credit.consume(stream_id, 0)
        a.write(stream_id, bytes(1 << 20))
        wire.run(0.3)
        b.core.connection.stop_quietly(stream_id, core.GIVEN_UP)
        b.core.credit.drop(stream_id)
        b.pump()
        wire.run(0.3)
        assert StreamGone(stream_id, is_reset=False) in a.events
    last = 400
    a.write(last, b"x" * 1000, is_last=True)
    assert wire.run(2, until=lambda: len(b.got(last)) == 1000)


def test_unread_stream_when_flooded_then_the_peer_stops_at_one_window() -> None:
    wire = DatagramWire(delay_s=0.002)
    a, b = wide(wire)
    b.core.credit.consume(0, 0)
    for _ in range(12):
        a.write(0, bytes(1 << 20))
    wire.run(3)
    assert len(b.got(0)) == STREAM_WINDOW_BYTES
    b.core.credit.consume(0, STREAM_WINDOW_BYTES)
    b.pump()
    wire.run(3)
    assert len(b.got(0)) == 2 * STREAM_WINDOW_BYTES


def test_unread_streams_when_many_are_flooded_then_the_peer_stops_at_the_links_window() -> None:
    wire = DatagramWire(delay_s=0.002)
    a, b = wide(wire)
    for stream_id in range(0, 32, 4):
        b.core.credit.consume(stream_id, 0)
        a.write(stream_id, bytes(3 << 20))
    wire.run(5)
    assert sum(len(b.got(stream_id)) for stream_id in range(0, 32, 4)) == LINK_WINDOW_BYTES


def test_path_when_it_changes_then_round_trip_and_window_start_again_and_no_byte_is_lost() -> None:
    wire = DatagramWire(delay_s=0.002)
    a, b = established(wire)
    a.core.follow_path(is_new=False, datagram_bytes=8900)
    message = os.urandom(3_000_000)
    a.write(0, message[:1_500_000])
    wire.run(0.02)
    assert a.largest_sent == 8900
    a.core.follow_path(is_new=True, datagram_bytes=1200)
    assert not a.core.connection._loss._rtt_initialized
    a.largest_sent = 0
    a.write(0, message[1_500_000:], is_last=True)
    assert wire.run(20, until=lambda: len(b.got(0)) == len(message))
    assert b.got(0) == message
    assert a.largest_sent == 1200
    wire.run(1)
    assert a.core.connection._loss.bytes_in_flight == 0


def test_first_frame_when_the_path_is_long_then_it_needs_no_more_than_one_way() -> None:
    wire = DatagramWire(delay_s=0.05)
    a, b = established(wire)
    wire.run(1)
    start = wire.now
    a.write(0, bytes(8192))
    assert wire.run(1, until=lambda: len(b.got(0)) == 8192)
    assert wire.now - start < 0.052


FRAME = bytes(8192)
"""Of one token of 4,096 elements."""


def frames_sent(wire: DatagramWire, end: QuicEnd, other: QuicEnd, *, count: int, every_s: float) -> tuple[int, float]:
    """One frame after another: datagrams that the other end sent meanwhile, and the longest that a frame was
    unacknowledged."""
    before, longest_s = other.sent, 0.0
    for number in range(count):
        end.write(0, FRAME)
        sent_at, held = wire.now, end.core.connection.unacknowledged(0)
        wire.run(every_s, until=lambda held=held: end.core.connection.unacknowledged(0) < held)  # type: ignore[misc]
        longest_s = max(longest_s, wire.now - sent_at)
        wire.run(sent_at + every_s - wire.now)
        assert len(other.got(0)) == len(FRAME) * (number + 1)
    return other.sent - before, longest_s


@pytest.mark.parametrize(("every_s", "most"), [(0.05, 40), (0.005, 15), (0.002, 8)])
def test_frames_when_they_come_one_after_another_then_those_of_20_ms_are_acknowledged_together(
    every_s: float, most: int
) -> None:
    wire = DatagramWire(delay_s=0.0005)
    a, b = wide(wire)
    wire.run(1)
    datagrams, longest_s = frames_sent(wire, a, b, count=40, every_s=every_s)
    assert datagrams <= most + 2  # and keepalives
    assert longest_s < 0.025
    assert a.core.connection._loss._pto_count == 0


def test_frames_when_an_answer_goes_the_other_way_then_that_acknowledges_them() -> None:
    wire = DatagramWire(delay_s=0.0005)
    a, b = wide(wire)
    wire.run(1)
    before = wire.sent
    for number in range(50):
        a.write(0, FRAME)
        wire.run(0.005)
        b.write(1, FRAME)
        wire.run(0.005)
        assert (len(b.got(0)), len(a.got(1))) == (len(FRAME) * (number + 1),) * 2
    assert wire.sent - before <= 2 * 50 + 2


def test_frame_when_one_of_its_datagrams_is_lost_then_it_is_told_of_at_once() -> None:
    wire = DatagramWire(delay_s=0.0005)
    a, b = established(wire)
    wire.run(1)
    lost: list[bytes] = []

    def lose_one(data: bytes, source: Address) -> None:
        if len(data) > 1000 and not lost:
            lost.append(data)
        else:
            b.receive(data, source)

    wire.attach(B, lose_one)
    began = wire.now
    a.write(0, FRAME)
    assert wire.run(1, until=lambda: len(b.got(0)) == len(FRAME))
    assert lost
    assert wire.now - began < 0.005


@pytest.mark.fuzz
def test_core_when_fed_hostile_datagrams_then_nothing_raises_or_grows_and_the_connection_stands() -> None:
    wire = DatagramWire()
    a, b = two_ends(wire)
    recorded = wire.record(B)
    a.dial()
    assert wire.run(5, until=lambda: a.is_established and b.is_established)
    a.write(0, b"x" * 5000)
    wire.run(1)

    def read(data: bytes) -> None:
        b.core.receive(data, wire.now, 0.02)
        assert len(b.core.routes) <= 10

    assert fuzz.fuzz(read, list(recorded), errors=()) > fuzz.INPUTS
    b.pump()
    a.write(0, b"y", is_last=True)
    assert wire.run(5, until=lambda: b.got(0) == b"x" * 5000 + b"y")


def test_listener_when_fed_forged_first_packets_then_nothing_raises_and_the_real_one_gets_through() -> None:
    chance = random.Random(f"{fuzz.SEED} 5")
    wire = DatagramWire()
    a, b = two_ends(wire)
    first: list[bytes] = []
    wire.attach(B, lambda data, source: first.append(data))
    a.dial()
    wire.run(0.1)
    for _ in range(2_000):
        data = bytearray(first[0])
        start = 6 if chance.random() < 0.5 else 14
        struct.pack_into("!Q", data, start, chance.getrandbits(64))
        data[chance.randrange(len(data))] = chance.randrange(256)
        b.core.receive(bytes(data), wire.now, 0.02)
        assert len(b.core.routes) <= 3
    wire.attach(B, b.receive)
    assert wire.run(10, until=lambda: a.is_established and b.is_established)


@pytest.mark.parametrize("ranked", [True, False])
def test_frame_when_weights_wait_on_the_same_link_then_it_overtakes_all_that_was_not_sent_yet(ranked: bool) -> None:
    wire = DatagramWire(delay_s=0.02)
    a, b = established(wire)
    connection = a.core.connection
    a.write(0, b"w" * 3_000_000)
    if ranked:
        connection.send_last(0)
    sent_bytes = connection._streams[0].sender.highest_offset
    assert 0 < sent_bytes < 3_000_000
    frame = random.Random(1).randbytes(400_000)
    a.write(4, frame)
    assert wire.run(10, until=lambda: len(b.got(4)) == len(frame))
    assert b.got(4) == frame
    overtaken = len(b.got(0)) <= sent_bytes + 1200  # what is left of a datagram is filled up
    assert overtaken is ranked
    assert wire.run(60, until=lambda: len(b.got(0)) == 3_000_000)
