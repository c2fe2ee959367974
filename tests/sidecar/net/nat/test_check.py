"""The classification against simulated routers of every behaviour, with the rendezvous' own STUN core outside."""

import itertools
import os
import random
from collections.abc import Sequence

import pytest
from aioice.stun import Class, Message, Method, parse_message

from kafila_planner.model.types import Filtering, Mapping
from kafila_rendezvous.udp.stun import SocketPlace
from kafila_sidecar.net.candidates import (
    LARGEST_LOCAL,
    SERVER_REFLEXIVE,
    Address,
    Candidate,
    is_usable,
    priority,
)
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.nat.behaviour import Nat, StunServer
from kafila_sidecar.net.nat.check import NatCheck, Sending
from kafila_sidecar.net.nat.mapped import MappedAddress
from tests.sidecar.net.nat.nat_people import INSIDE, OWN_PORT, PORTS, Asker, PlainStunHost, StunHost
from tests.support import fuzz
from tests.support.hand_clock import HandClock
from tests.support.simnet import LAN_DELAY_S, Box, Host, Network, Packet, Realm

EI, AD, APD = Mapping.ENDPOINT_INDEPENDENT, Mapping.ADDRESS_DEPENDENT, Mapping.ADDRESS_AND_PORT_DEPENDENT
F_EI, F_AD, F_APD = Filtering.ENDPOINT_INDEPENDENT, Filtering.ADDRESS_DEPENDENT, Filtering.ADDRESS_AND_PORT_DEPENDENT
KINDS = list(itertools.product((EI, AD, APD), (F_EI, F_AD, F_APD)))
ONE, TWO = ("192.0.2.1",), ("192.0.2.1", "192.0.2.2")
OUTSIDE = "203.0.113.9"


class StunInternet:
    """A simulated internet with a clock of its own."""

    def __init__(self, *, delay_s: float = 0.01, jitter_s: float = 0.0, loss: float = 0.0, seed: int = 1) -> None:
        self.clock = HandClock()
        self.public = Network(clock=self.clock, delay_s=delay_s, jitter_s=jitter_s, loss=loss, seed=seed).public

    def box(self, *, mapping: Mapping = EI, filtering: Filtering = F_APD) -> Box:
        return Box(self.public, OUTSIDE, mapping=mapping, filtering=filtering)

    def server(self, *hosts: str, dead: Sequence[SocketPlace] = ()) -> StunHost:
        return StunHost(self.clock, self.public, *hosts, dead=dead)


def classified(net: StunInternet, realm: Realm, *servers: StunServer, host: str = INSIDE) -> Nat:
    asker = Asker(net.clock, realm, servers, host)
    assert net.clock.run(10, until=lambda: asker.core.nat is not None), "it never came to an end"
    assert asker.core.next_timer() is None
    assert asker.core.nat is not None
    return asker.core.nat


@pytest.mark.parametrize(("mapping", "filtering"), KINDS)
@pytest.mark.parametrize("delay_s", [0.0005, 0.075])
def test_nat_when_the_server_has_two_addresses_then_both_values_are_exact(
    mapping: Mapping, filtering: Filtering, delay_s: float
) -> None:
    net = StunInternet(delay_s=delay_s)
    server = net.server(*TWO)
    started_at = net.clock.now
    nat = classified(net, net.box(mapping=mapping, filtering=filtering).inner, server.told)
    assert (nat.udp, nat.mapping, nat.filtering) == (True, mapping, filtering)
    assert not nat.mapping_is_assumed
    assert not nat.filtering_is_assumed
    assert nat.rtt_s == pytest.approx(2 * delay_s + LAN_DELAY_S)
    assert net.clock.now - started_at < (0.35 if delay_s < 0.01 else 1.2)


@pytest.mark.parametrize(("mapping", "filtering"), KINDS)
def test_nat_when_the_server_has_one_address_then_what_it_can_not_see_is_assumed(
    mapping: Mapping, filtering: Filtering
) -> None:
    net = StunInternet()
    nat = classified(net, net.box(mapping=mapping, filtering=filtering).inner, net.server(*ONE).told)
    assert (nat.mapping, nat.mapping_is_assumed) == ((APD, False) if mapping is APD else (EI, True))
    assert (nat.filtering, nat.filtering_is_assumed) == ((F_APD, False) if filtering is F_APD else (F_AD, True))


@pytest.mark.parametrize("mapping", [EI, AD, APD])
def test_nat_when_a_further_server_is_asked_then_the_mapping_is_settled(mapping: Mapping) -> None:
    net = StunInternet()
    servers = (net.server(*ONE).told, PlainStunHost(net.public, "198.51.100.3").named)
    nat = classified(net, net.box(mapping=mapping).inner, *servers)
    assert (nat.mapping, nat.mapping_is_assumed) == (mapping, False)


@pytest.mark.parametrize(("mapping", "filtering"), KINDS)
def test_nat_when_a_foreign_server_says_its_other_address_then_it_alone_suffices(
    mapping: Mapping, filtering: Filtering
) -> None:
    net = StunInternet()
    nat = classified(net, net.box(mapping=mapping, filtering=filtering).inner, net.server(*TWO).named)
    assert (nat.mapping, nat.filtering) == (mapping, filtering)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("mapping", "filtering"), [(EI, F_EI), (EI, F_APD), (AD, F_AD), (APD, F_APD)])
def test_nat_when_datagrams_are_lost_and_overtake_each_other_then_never_more_than_is_true(
    mapping: Mapping, filtering: Filtering, seed: int
) -> None:
    net = StunInternet(delay_s=0.03, jitter_s=0.04, loss=0.1, seed=seed)
    nat = classified(net, net.box(mapping=mapping, filtering=filtering).inner, net.server(*TWO).told)
    assert (nat.mapping, nat.filtering) == (mapping, filtering)


def test_nat_when_only_one_place_of_a_server_answers_then_the_mapping_is_unknown() -> None:
    net = StunInternet()
    server = net.server(*TWO, dead=[SocketPlace(0, 1), SocketPlace(1, 0), SocketPlace(1, 1)])
    nat = classified(net, net.box().inner, server.told)
    assert (nat.udp, nat.mapping, nat.filtering) == (True, Mapping.UNKNOWN, Filtering.UNKNOWN)


def test_nat_when_the_second_address_is_silent_then_it_is_not_taken_for_fine() -> None:
    net = StunInternet()
    server = net.server(*TWO, dead=[SocketPlace(1, 0), SocketPlace(1, 1)])
    nat = classified(net, net.box(filtering=F_EI).inner, server.told)
    assert nat.mapping is Mapping.UNKNOWN
    assert (nat.filtering, nat.filtering_is_assumed) == (F_AD, True)


def test_nat_when_udp_is_blocked_then_says_so_within_three_seconds() -> None:
    net = StunInternet()
    started_at = net.clock.now
    box = net.box()
    box.blocks_udp = True
    nat = classified(net, box.inner, net.server(*ONE).told)
    assert nat == Nat(udp=False, silent=((ONE[0], PORTS[0]),))
    assert net.clock.now - started_at <= 3


def test_nat_when_nobody_can_be_asked_then_nothing_is_known() -> None:
    assert NatCheck((), local=frozenset(), entropy=lambda: bytes(12), now=0.0).nat == Nat(udp=None)


def test_nat_when_one_further_server_is_dead_then_it_delays_nothing_that_is_settled() -> None:
    net = StunInternet()
    started_at = net.clock.now
    nat = classified(net, net.box().inner, net.server(*TWO).told, StunServer("192.0.2.99", 3478))
    assert (nat.mapping, nat.silent) == (EI, (("192.0.2.99", 3478),))
    assert net.clock.now - started_at < 0.5


def test_nat_when_a_further_server_knows_no_change_request_then_its_answers_open_nothing() -> None:
    net = StunInternet()
    nat = classified(net, net.box(filtering=F_EI).inner, PlainStunHost(net.public, "198.51.100.3").named)
    assert (nat.mapping, nat.filtering) == (Mapping.UNKNOWN, Filtering.UNKNOWN)
    assert nat.mapped is not None


def test_nat_when_the_rendezvous_is_inside_too_then_the_servers_outside_decide() -> None:
    net = StunInternet()
    home = net.box(mapping=APD).inner
    inner = StunHost(net.clock, home, "10.0.0.9")
    outer = [PlainStunHost(net.public, host).named for host in ("198.51.100.3", "198.51.100.4")]
    nat = classified(net, home, inner.told, *outer)
    assert (nat.mapping, nat.is_translated) == (APD, True)
    alone = classified(net, home, inner.told)
    assert (alone.mapping, alone.mapping_is_assumed, alone.is_translated) == (EI, True, False)


def test_nat_when_there_is_no_router_then_open_and_not_translated() -> None:
    net = StunInternet()
    nat = classified(net, net.public, net.server(*TWO).told, host=OUTSIDE)
    assert (nat.mapping, nat.filtering, nat.is_translated) == (EI, F_EI, False)
    assert nat.candidate() is None


def test_candidate_when_translated_then_it_is_the_address_of_the_own_socket() -> None:
    net = StunInternet()
    home = net.box().inner
    nat = classified(net, home, net.server(*TWO).told)
    assert nat.mapped is not None
    wanted = Candidate(SERVER_REFLEXIVE, *nat.mapped, priority(SERVER_REFLEXIVE, LARGEST_LOCAL))
    assert nat.candidate() == wanted
    reached: list[bytes] = []
    Host("own", (home, INSIDE)).open(OWN_PORT, lambda batch: reached.extend(data for data, _ in batch))
    net.public.carry(Packet((TWO[0], PORTS[0]), nat.mapped, b"hello"))
    net.clock.run(1)
    assert reached == [b"hello"]


def test_nat_when_behind_two_routers_then_the_stricter_of_each_counts() -> None:
    net = StunInternet()
    outer = net.box(mapping=AD, filtering=F_EI)
    inner = Box(outer.inner, "100.64.0.7", mapping=EI, filtering=F_APD)
    nat = classified(net, inner.inner, net.server(*TWO).told)
    assert (nat.mapping, nat.filtering) == (AD, F_APD)


def test_nat_when_ipv6_only_with_a_firewall_then_no_translation_is_seen() -> None:
    net = StunInternet()
    nat = classified(net, net.public, net.server("2001:db8::1", "2001:db8::2").told, host="2001:db8:5::5")
    assert (nat.mapping, nat.is_translated, nat.udp) == (EI, False, True)


NO_PLACES = [("203.0.113.9", 0), ("0.0.0.0", 7), ("224.0.0.1", 7), ("::ffff:203.0.113.9", 7), ("100::1", 1)]


def answer(asked: Message, mapped: Address, **more: Address) -> bytes:
    """What a server says that sees us at `mapped`."""
    attributes = {"XOR-MAPPED-ADDRESS": mapped, **{name.replace("_", "-"): value for name, value in more.items()}}
    return bytes(Message(Method.BINDING, Class.RESPONSE, asked.transaction_id, attributes))


@pytest.mark.parametrize("nowhere", NO_PLACES)
def test_answer_when_nobody_could_be_where_it_sees_us_then_refused(nowhere: Address) -> None:
    server = StunServer(TWO[0], PORTS[0])
    check = NatCheck([server], local=frozenset(), entropy=lambda: os.urandom(12), now=0.0)
    for sending in check.handle_timer(0.0):
        with pytest.raises(BadDatagram):
            check.receive(answer(parse_message(sending.datagram), nowhere), sending.target, 0.1)
    kept = MappedAddress(server.place, blocked=False, entropy=lambda: os.urandom(12), now=0.0)
    ((asked, _),) = kept.handle_timer(0.0)
    with pytest.raises(BadDatagram):
        kept.receive(answer(parse_message(asked), nowhere), server.place)


@pytest.mark.parametrize("nowhere", NO_PLACES)
def test_answer_when_nobody_could_be_where_it_says_it_is_too_then_nothing_is_sent_there(nowhere: Address) -> None:
    server = StunServer(TWO[0], PORTS[0])
    check = NatCheck([server], local=frozenset(), entropy=lambda: os.urandom(12), now=0.0)
    own = next(sending for sending in check.handle_timer(0.0) if sending.own)
    told = answer(parse_message(own.datagram), (OUTSIDE, 7), OTHER_ADDRESS=nowhere)
    sendings = [*check.receive(told, server.place, 0.1), *check.handle_timer(5.0)]
    assert {sending.target for sending in sendings} <= {server.place}


def fresh(server: StunServer) -> tuple[NatCheck, list[Sending]]:
    """A check whose questions are out; the same bytes each time."""
    numbers = itertools.count(1)
    check = NatCheck([server], local=frozenset(), entropy=lambda: next(numbers).to_bytes(12, "big"), now=0.0)
    return check, check.handle_timer(0.0)


def answers(asked: list[Sending]) -> list[bytes]:
    """To each question, as servers of different kinds answer it."""
    other = (TWO[1], PORTS[1])
    told: list[bytes] = []
    for sending in asked:
        question = parse_message(sending.datagram)
        told += [answer(question, (OUTSIDE, 7)), answer(question, (OUTSIDE, 8), OTHER_ADDRESS=other)]
        told.append(bytes(Message(Method.BINDING, Class.ERROR, question.transaction_id, {"ERROR-CODE": (420, "what")})))
    return told


def check_state(check: NatCheck) -> None:
    assert len(check._probes) <= 6
    assert len(check._rtts) <= 2
    assert all(len(probe.sent) <= 5 for probe in check._probes)
    for mapped in [probe.mapped for probe in check._probes] + [check.nat.mapped if check.nat else None]:
        assert mapped is None or is_usable(mapped)


@pytest.mark.fuzz
@pytest.mark.parametrize("knows_all", [True, False])
def test_check_when_answers_to_its_questions_are_hostile_then_typed_and_no_place_that_there_is_not(
    knows_all: bool,
) -> None:
    server = StunServer(TWO[0], PORTS[0], PORTS[1], TWO[1]) if knows_all else StunServer(TWO[0], PORTS[0])
    _, asked = fresh(server)
    sources, chance = [*{sending.target for sending in asked}, (TWO[1], PORTS[1])], random.Random(fuzz.SEED)
    lasting, _ = fresh(server)

    def read(data: bytes) -> None:
        source = chance.choice(sources)
        check, _ = fresh(server)
        for one, now in ((lasting, 1.0), (check, 0.1)):
            try:
                one.receive(data, source, now)
            finally:
                check_state(one)
        for step in range(1, 40):
            check.handle_timer(float(step))
        check_state(check)
        assert check.nat is not None

    fuzz.fuzz(read, answers(asked), inputs=fuzz.INPUTS // 2)


@pytest.mark.fuzz
def test_check_when_bytes_from_strangers_come_then_typed_errors_and_the_same_result() -> None:
    net = StunInternet()
    server = net.server(*TWO)
    asker = Asker(net.clock, net.box().inner, [server.told])
    held = len(asker.core._probes)
    strangers = [answer(Message(Method.BINDING, Class.REQUEST, os.urandom(12)), (OUTSIDE, 7))]
    assert fuzz.fuzz(lambda data: asker.core.receive(data, (TWO[0], PORTS[0]), net.clock.now), strangers) == 0
    assert len(asker.core._probes) == held
    assert net.clock.run(5, until=lambda: asker.core.nat is not None)
    assert asker.core.nat is not None
    assert (asker.core.nat.mapping, asker.core.nat.filtering) == (EI, F_APD)
