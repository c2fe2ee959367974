"""Port mapping's core against routers that speak PCP, NAT-PMP, both, neither, or say no; a hand-moved clock."""

import contextlib
import math
import random
from collections.abc import Callable

import pytest

from kafila_sidecar.net.candidates import from_proto, to_proto
from kafila_sidecar.net.errors import BadDatagram
from kafila_sidecar.net.portmap import codec
from kafila_sidecar.net.portmap.codec import Transport
from kafila_sidecar.net.portmap.mapping import AGAIN_AFTER_S, Mapped, PortMap
from tests.sidecar.net.portmap.routers import OUTSIDE, Pcp, Pmp
from tests.support import fuzz

Answer = Callable[[bytes], bytes | None]


class Run:
    """A core and a router with no time between them; `at` lists when each request went out."""

    def __init__(self, answer: Answer | None, transport: Transport = Transport.UDP) -> None:
        self.now, self.answer = 0.0, answer
        self.at: list[float] = []
        self.core = PortMap(transport=transport, port=4711, client="127.0.0.1", nonce=b"n" * 12, now=0.0)
        self.until(0.0)

    def until(self, end: float) -> None:
        while (due := self.core.next_timer()) is not None and due <= end:
            self.now = max(self.now, due)
            self.pass_on(self.core.handle_timer(self.now))
        self.now = end

    def pass_on(self, asked: list[bytes]) -> None:
        self.at += [self.now] * len(asked)
        for datagram in asked:
            if self.answer and (answer := self.answer(datagram)):
                with contextlib.suppress(BadDatagram):  # as the driver does
                    self.pass_on(self.core.receive(answer, self.now))


def test_map_when_the_router_speaks_pcp_then_mapped_and_renewed_at_half_time() -> None:
    router = Pcp(lifetime_s=600)
    run = Run(router.answer)
    assert run.core.mapped == Mapped("PCP", (OUTSIDE, 4712))
    assert router.ports == {(17, 4711): (b"n" * 12, 4712)}
    run.until(1000)
    assert run.at[2:] == [300, 600, 900]


def test_map_when_the_router_speaks_nat_pmp_only_then_that_is_used_at_once() -> None:
    router = Pmp(lifetime_s=600)
    run = Run(router.answer)
    assert run.now == 0
    assert run.core.mapped == Mapped("NAT-PMP", (OUTSIDE, 4711))
    assert router.ports == {(1, 4711): 4711}


def test_map_when_the_router_ignores_pcp_then_nat_pmp_after_a_short_wait() -> None:
    router = Pmp()
    run = Run(lambda asked: router.answer(asked) if asked[0] == 0 else None)
    assert run.core.mapped is None
    run.until(0.6)
    assert run.core.mapped == Mapped("NAT-PMP", (OUTSIDE, 4711))


def test_map_when_the_router_speaks_both_then_one_mapping_by_pcp() -> None:
    old = Pmp()
    router = Pcp(also=old)
    run = Run(router.answer)
    run.until(10)
    assert run.core.mapped == Mapped("PCP", (OUTSIDE, 4712))
    assert old.ports == {}


def test_map_when_nothing_answers_then_silent_after_three_sendings() -> None:
    run = Run(None)
    run.until(10)
    assert run.core.next_timer() is None
    assert sorted(set(run.at)) == [0, 0.25, 0.75]


def test_map_when_the_port_is_taken_outside_then_another_and_that_is_kept() -> None:
    router = Pmp(taken=frozenset({4711}), lifetime_s=600)
    run = Run(router.answer)
    run.until(301)
    assert run.core.mapped == Mapped("NAT-PMP", (OUTSIDE, 5711))
    assert router.ports == {(1, 4711): 5711}


@pytest.mark.parametrize("router", [Pcp(refuses=2), Pmp(refuses=2)])
def test_map_when_the_router_refuses_then_said_and_asked_again_after_minutes(router: Pcp | Pmp) -> None:
    run = Run(router.answer)
    run.until(10)
    assert run.core.mapped is None
    assert run.core.refusal == "the router maps no port: it maps no ports for this machine"
    asked = len(run.at)
    router.refuses = 0
    run.until(AGAIN_AFTER_S + 11)
    assert run.core.mapped is not None
    assert len(run.at) - asked <= 3


def test_map_when_the_routers_address_changes_then_told_at_the_next_renewal() -> None:
    router = Pmp(lifetime_s=600)
    run = Run(router.answer)
    router.outside = "203.0.113.10"
    run.until(301)
    assert run.core.mapped == Mapped("NAT-PMP", ("203.0.113.10", 4711))


def test_map_when_the_router_goes_then_no_longer_mapped_until_it_is_back() -> None:
    router = Pmp(lifetime_s=600)
    run = Run(router.answer)
    run.answer = None
    run.until(310)
    assert run.core.mapped is None
    run.answer = router.answer
    run.until(310 + AGAIN_AFTER_S)
    assert run.core.mapped is not None


@pytest.mark.parametrize("outside", ["0.0.0.0", "224.0.0.1", "255.255.255.255"])
def test_map_when_the_router_has_no_address_outside_then_nothing_is_mapped(outside: str) -> None:
    router = Pmp()
    router.outside = outside
    run = Run(router.answer)
    run.until(10)
    assert run.core.mapped is None
    assert run.core.next_timer() is None
    assert router.ports == {}


@pytest.mark.parametrize(("place", "said"), [(42, "0000"), (44, "00" * 16), (44, "ff" + "00" * 14 + "01")])
def test_map_when_what_pcp_grants_is_no_place_then_nothing_is_mapped(place: int, said: str) -> None:
    def answer(asked: bytes) -> bytes | None:
        whole = Pcp().answer(asked)
        assert whole is not None
        return whole[:place] + bytes.fromhex(said) + whole[place + len(said) // 2 :] if asked[0] == 2 else whole

    run = Run(answer)
    run.until(10)
    assert run.core.mapped is None
    assert run.core.next_timer() is None


def test_map_when_nat_pmp_grants_port_zero_then_nothing_is_mapped_and_it_is_said() -> None:
    router = Pmp()
    run = Run(lambda asked: (answer := router.answer(asked)) and answer[:10] + bytes(2) + answer[12:])
    run.until(10)
    assert run.core.mapped is None
    assert run.core.refusal is not None


@pytest.mark.parametrize(("router", "opcode"), [(Pcp(), 6), (Pmp(), 2)])
def test_release_when_a_tcp_port_is_mapped_then_the_router_forgets_it(router: Pcp | Pmp, opcode: int) -> None:
    run = Run(router.answer, Transport.TCP)
    assert (opcode, 4711) in router.ports
    for asked in run.core.release():
        router.answer(asked)
    assert router.ports == {}
    assert run.core.next_timer() is None
    assert run.core.release() == []


def test_receive_when_the_answer_is_for_another_mapping_then_refused() -> None:
    run = Run(Pcp().answer)
    other = Pcp().answer(
        codec.pcp_map(Transport.UDP, port=1, wished=1, lifetime_s=9, nonce=b"x" * 12, client="127.0.0.1")
    )
    assert other is not None
    with pytest.raises(BadDatagram):
        run.core.receive(other, 1.0)
    with pytest.raises(BadDatagram):
        run.core.receive(b"\x00\x81" + bytes(14), 1.0)
    assert run.core.mapped == Mapped("PCP", (OUTSIDE, 4712))


def test_pcp_map_when_written_then_the_bytes_of_rfc_6887() -> None:
    asked = codec.pcp_map(Transport.UDP, port=4711, wished=4711, lifetime_s=3600, nonce=b"n" * 12, client="192.168.1.5")
    head = "02010000 00000e10 00000000000000000000ffffc0a80105"
    assert asked == bytes.fromhex(head) + b"n" * 12 + bytes.fromhex(
        "11000000 12671267 00000000000000000000ffff00000000"
    )


ASKED = {
    "pcp": codec.pcp_map(Transport.UDP, port=4711, wished=4711, lifetime_s=9, nonce=b"n" * 12, client="127.0.0.1"),
    "address": codec.pmp_address(),
    "pmp": codec.pmp_map(Transport.UDP, port=4711, wished=4711, lifetime_s=9),
    "pmp tcp": codec.pmp_map(Transport.TCP, port=1, wished=1, lifetime_s=9),
}
ANSWERS = [
    answer
    for asked in ASKED.values()
    for router in (Pcp(), Pmp(), Pcp(refuses=2, also=Pmp(refuses=3)))
    if (answer := router.answer(asked)) is not None
]


@pytest.mark.fuzz
def test_parse_when_bytes_are_random_or_damaged_then_bad_datagram_or_an_answer() -> None:
    def read(datagram: bytes) -> None:
        assert isinstance(codec.parse(datagram), codec.Answer)

    assert fuzz.fuzz(read, ANSWERS, errors=(BadDatagram,)) >= len(ANSWERS)


@pytest.mark.fuzz
def test_map_when_the_router_is_hostile_then_typed_and_whatever_is_mapped_can_be_announced() -> None:
    chance, mapped = random.Random(fuzz.SEED), 0
    lasting = Run(None)

    def read(datagram: bytes) -> None:
        nonlocal mapped
        now = lasting.now = lasting.now + 5.0
        fresh = PortMap(transport=Transport.UDP, port=4711, client="127.0.0.1", nonce=b"n" * 12, now=now)
        fresh.handle_timer(now)
        if lasting.core.next_timer() is None:
            lasting.core = fresh
        told = [datagram, chance.choice(ANSWERS)]
        for core in (fresh, lasting.core):
            for one in told:
                with contextlib.suppress(BadDatagram):
                    core.receive(one, now)
                core.handle_timer(now)
                if core.mapped is not None:
                    mapped += 1
                    assert from_proto(to_proto([core.mapped.candidate()])) == [core.mapped.candidate()]
                due = core.next_timer()
                assert due is None or math.isfinite(due)

    fuzz.fuzz(read, ANSWERS)
    assert mapped > fuzz.INPUTS // 10
