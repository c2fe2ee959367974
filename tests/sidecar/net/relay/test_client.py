"""Both sides of the relay joined by a simulated internet with loss, routers that forget, and a server that restarts."""

import math
import random

import pytest

from kafila_planner.model.types import Filtering, Mapping
from kafila_rendezvous.config import RendezvousLimits
from kafila_sidecar.net.candidates import RELAYED, Address
from kafila_sidecar.net.relay.client import (
    FIRST_BYTES,
    ChannelBound,
    Deliver,
    NeedToken,
    RelayClient,
    candidate,
    is_path,
    is_stream,
    stream_server,
)
from kafila_sidecar.net.relay.end import BOUND, CHALLENGE, DATA, REFUSED, UNBOUND, Token
from tests.sidecar.net.relay.relay_people import SERVER, RelayMember, RelayServer
from tests.support import fuzz
from tests.support.hand_clock import HandClock
from tests.support.simnet import Box, Network


class Pair:
    """Two members behind the worst routers there are, with a channel between them."""

    def __init__(
        self,
        *,
        delay_s: float = 0.02,
        jitter_s: float = 0.0,
        loss: float = 0.0,
        seed: int = 1,
        ttl_s: float = 3600.0,
    ) -> None:
        self.clock = HandClock()
        self.network = Network(clock=self.clock, delay_s=delay_s, jitter_s=jitter_s, loss=loss, seed=seed)
        self.server = RelayServer(self.clock, self.network, ttl_s=ttl_s)
        self.routers = [
            Box(
                self.network.public,
                f"203.0.113.{i}",
                mapping=Mapping.ADDRESS_AND_PORT_DEPENDENT,
                filtering=Filtering.ADDRESS_AND_PORT_DEPENDENT,
            )
            for i in (1, 2)
        ]
        self.alice, self.bob = (
            RelayMember(self.clock, router.inner, "10.0.0.5", mailbox, self.server)
            for mailbox, router in enumerate(self.routers, start=1)
        )
        self.paths = self.alice.open(2), self.bob.open(1)

    def form(self) -> "Pair":
        assert self.clock.run(5, until=lambda: bool(self.alice.bound and self.bob.bound))
        return self

    def passes(self, data: bytes, within_s: float = 1.0) -> bool:
        """Whether a datagram gets over in both directions."""
        del self.alice.heard[:], self.bob.heard[:]
        self.alice.send(data, self.paths[0])
        self.bob.send(data, self.paths[1])
        wanted = [(data, self.paths[0])], [(data, self.paths[1])]
        return self.clock.run(within_s, until=lambda: (self.alice.heard, self.bob.heard) == wanted)


@pytest.mark.parametrize("delay_s", [0.0005, 0.1])
def test_channel_when_both_ends_open_it_then_stands_after_two_round_trips(delay_s: float) -> None:
    pair = Pair(delay_s=delay_s)
    started_at = pair.clock.now
    pair.form()
    assert pair.clock.now - started_at == pytest.approx(4 * delay_s, abs=0.001)
    assert pair.passes(b"hello")


@pytest.mark.parametrize("seed", range(8))
def test_channel_when_datagrams_are_lost_and_overtake_each_other_then_still_stands(seed: int) -> None:
    pair = Pair(delay_s=0.05, jitter_s=0.1, loss=0.2, seed=seed).form()
    assert any(pair.passes(bytes([i])) for i in range(50))
    pair.clock.run(120)
    assert pair.alice.asked == pair.bob.asked == 1


def test_channel_when_it_is_idle_for_minutes_then_kept_with_few_datagrams() -> None:
    pair = Pair().form()
    sent = pair.network.sent.total()
    pair.clock.run(300)
    assert pair.passes(b"still there")
    assert pair.network.sent.total() - sent < 300


def test_channel_when_a_router_forgets_its_mapping_then_the_first_datagram_heals_it() -> None:
    pair = Pair().form()
    pair.routers[0].rebind()
    assert not pair.passes(b"lost", within_s=0.2)
    assert pair.passes(b"healed")


def test_channel_when_a_router_forgets_and_only_the_other_end_sends_then_healed_by_the_next_keeping() -> None:
    pair = Pair().form()
    pair.routers[0].rebind()
    pair.clock.run(11)
    assert pair.passes(b"healed")


def test_channel_when_the_relay_restarts_then_new_tokens_bring_it_back() -> None:
    pair = Pair().form()
    pair.server.restart()
    pair.clock.run(12)
    assert pair.passes(b"back")
    assert (pair.alice.asked, pair.bob.asked) == (2, 2)


def test_channel_when_the_relay_is_away_for_a_while_then_few_requests_and_back_soon() -> None:
    pair = Pair().form()
    pair.server.is_up = False
    pair.clock.run(20)
    assert pair.alice.core.describe(pair.paths[0]) == "the relay does not answer"
    sent = pair.network.sent.total()
    pair.clock.run(60)
    assert pair.network.sent.total() - sent < 40
    pair.server.is_up = True
    pair.clock.run(6)
    assert pair.passes(b"back")


def test_channel_when_its_token_grows_old_then_a_newer_one_is_asked_for_and_nothing_stops() -> None:
    pair = Pair(ttl_s=100.0).form()
    for i in range(100):
        pair.clock.run(10)
        assert pair.passes(bytes([i]))
    assert 15 < pair.alice.asked < 30


def test_channel_when_the_relay_is_away_for_hours_then_back_soon_after_it() -> None:
    pair = Pair().form()
    pair.server.is_up = False
    pair.clock.run(3 * 3600)
    pair.server.is_up = True
    pair.clock.run(6)
    assert pair.passes(b"back")


@pytest.mark.parametrize("ttl_s", [0.0, -5.0, 0.001])
def test_channel_when_tokens_are_stale_at_once_then_asked_for_once_a_second_at_most(ttl_s: float) -> None:
    pair = Pair(ttl_s=ttl_s)
    pair.clock.run(30)
    assert 5 <= pair.alice.asked <= 32


def test_wrap_when_the_channel_is_not_bound_or_closed_then_none() -> None:
    pair = Pair()
    assert pair.alice.core.wrap([b"x"], pair.paths[0]) is None
    pair.form()
    pair.alice.core.close(pair.paths[0])
    assert pair.alice.core.wrap([b"x"], pair.paths[0]) is None
    assert pair.alice.core.next_timer() is None
    pair.bob.send(b"to nobody", pair.paths[1])
    pair.clock.run(1)
    assert pair.alice.heard == []
    assert pair.alice.refused == 1


def test_move_when_the_relay_is_reached_elsewhere_then_bound_there() -> None:
    pair = Pair().form()
    pair.alice.act(pair.alice.core.move(pair.paths[0], stream_server(7), pair.clock.now))
    assert pair.alice.core.wrap([b"x"], pair.paths[0]) is None
    pair.alice.act(pair.alice.core.move(pair.paths[0], SERVER, pair.clock.now))
    pair.clock.run(1)
    assert pair.passes(b"hello")


def test_refusal_when_the_relay_has_no_room_then_said_and_tried_again() -> None:
    pair = Pair()
    pair.server.keep(RendezvousLimits(relay_channels=0))
    pair.clock.run(3)
    assert "no room" in pair.alice.core.describe(pair.paths[0])
    pair.server.keep(RendezvousLimits())
    pair.form()
    assert pair.passes(b"hello")


@pytest.mark.parametrize(
    ("address", "path", "stream"),
    [(("192.0.2.1", 1), False, False), (stream_server(300), False, True), (("100::12c", 1), True, False)],
)
def test_address_when_looked_at_then_paths_and_streams_are_told_apart(
    address: Address, path: bool, stream: bool
) -> None:
    assert (is_path(address), is_stream(address)) == (path, stream)


def test_candidate_when_made_of_a_path_then_the_last_choice() -> None:
    path = RelayClient(lambda: bytes(8)).open(SERVER, 0.0)
    assert is_path(path)
    made = candidate(path)
    assert (made.kind, made.target, made.priority >> 24) == (RELAYED, path, 0)


@pytest.mark.fuzz
def test_client_when_bytes_from_strangers_come_then_typed_errors_and_the_channel_stays() -> None:
    pair, chance = Pair().form(), random.Random(fuzz.SEED)
    core = pair.alice.core

    def read(data: bytes) -> None:
        source = SERVER if chance.random() < 0.8 else ("198.51.100.1", 9)
        core.receive(bytes([chance.randrange(8, 16)]) + data, source, pair.clock.now)

    assert fuzz.fuzz(read, [bytes(8), bytes(24)]) == 0
    assert pair.passes(b"still there")


TRANSACTION = b"always 1"
BOUND_AS = (300).to_bytes(4, "big")
ANSWERS = [
    bytes([CHALLENGE]) + TRANSACTION + bytes(16),
    bytes([BOUND]) + TRANSACTION + BOUND_AS + (60).to_bytes(2, "big"),
    *(bytes([REFUSED]) + TRANSACTION + bytes([reason]) for reason in (1, 2, 3)),
    bytes([DATA]) + BOUND_AS + b"carried",
    bytes([UNBOUND]) + BOUND_AS,
]


@pytest.mark.fuzz
def test_client_when_answers_to_its_requests_are_hostile_then_typed_and_nothing_grows() -> None:
    now, bound = 0.0, 0
    core = RelayClient(lambda: TRANSACTION)
    paths = {core.open(SERVER, now) for _ in range(3)}
    core.handle_timer(now)

    def read(data: bytes) -> None:
        nonlocal now, bound
        now += 6.0  # more than the longest wait, so that each end has a request open
        for output in core.handle_timer(now):
            if isinstance(output, NeedToken):
                core.use(output.path, Token(bytes(37), bytes(32), 3600.0), now)
        if not data or data[0] not in FIRST_BYTES:
            return
        try:
            outputs = core.receive(data, SERVER, now)
        finally:
            assert len(core._by_number) <= len(core._ends) == len(paths)
            assert all(len(end._open) <= 8 for end in core._ends.values())
        assert {output.path for output in outputs if isinstance(output, Deliver)} <= paths
        bound += any(isinstance(output, ChannelBound) for output in outputs)
        assert all(math.isfinite(end.next_timer()) for end in core._ends.values())

    assert fuzz.fuzz(read, ANSWERS) > fuzz.INPUTS // 10
    assert bound > fuzz.INPUTS // 1000
