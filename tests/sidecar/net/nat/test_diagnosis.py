"""What the doctor says for which network, as a table, and the whole text of one."""

import pytest

from kafila_planner.model.reach import Reach
from kafila_planner.model.types import Filtering, Mapping
from kafila_sidecar.net.nat.behaviour import Nat
from kafila_sidecar.net.nat.diagnosis import PROBLEM, Facts, Finding, Rendezvous, diagnose, judge, text
from kafila_sidecar.net.portmap.mapping import MappingOffer

EI, APD, F_EI, F_APD = (
    Mapping.ENDPOINT_INDEPENDENT,
    Mapping.ADDRESS_AND_PORT_DEPENDENT,
    Filtering.ENDPOINT_INDEPENDENT,
    Filtering.ADDRESS_AND_PORT_DEPENDENT,
)
NEAR = Rendezvous("rendezvous.example.net:7770", rtt_s=0.0234, clock_ahead_s=0.2)
HOME = Nat(
    udp=True,
    mapping=EI,
    mapping_is_assumed=True,
    filtering=F_APD,
    mapped=("203.0.113.9", 40_000),
    is_translated=True,
    rtt_s=0.0221,
)
BLOCKED = Nat(udp=False, silent=(("192.0.2.1", 7770),))


def facts(
    nat: Nat = HOME,
    *,
    addresses: tuple[str, ...] = ("192.168.1.5",),
    rendezvous: Rendezvous | None = NEAR,
    unresolved: tuple[str, ...] = (),
    offer: MappingOffer | None = None,
) -> Facts:
    return Facts(addresses=addresses, rendezvous=rendezvous, nat=nat, unresolved=unresolved, mapping_offer=offer)


def said(about: Facts, topic: str) -> Finding:
    return next(finding for finding in diagnose(about) if finding.topic == topic)


def test_text_when_at_home_then_reads_like_this() -> None:
    assert text(diagnose(facts())) == (
        "  Addresses    192.168.1.5; none of them is public\n"
        "  Rendezvous   rendezvous.example.net:7770 answers in 23 ms\n"
        "  Clock        within 1 s of the rendezvous' clock\n"
        "  UDP          passes, a round trip takes 22 ms\n"
        "  Translation  seen from outside as 203.0.113.9\n"
        "  Mapping      endpoint-independent: the same outer port for every peer"
        " (assumed: one server address was asked; a further server in KAFILA_STUN settles it)\n"
        "  Filtering    address-and-port-dependent: only ports that were sent to may answer\n"
        "  Directly     reaches open networks, ordinary home routers\n"
        "  By relay     reaches strict networks (mobile carriers, many companies), networks without UDP\n"
        "· If run here  a rendezvous could be reached from this network only, as far as can be told\n"
    )


@pytest.mark.parametrize(
    ("nat", "reach", "direct"),
    [
        (Nat(udp=True, mapping=EI, filtering=F_EI), Reach.PERMISSIVE, 3),
        (Nat(udp=True, mapping=EI, filtering=Filtering.ADDRESS_DEPENDENT), Reach.PERMISSIVE, 3),
        (HOME, Reach.ORDINARY, 2),
        (Nat(udp=True, mapping=EI), Reach.ORDINARY, 2),
        (Nat(udp=True, mapping=APD, filtering=F_APD), Reach.RESTRICTIVE, 1),
        (Nat(udp=True), Reach.ISOLATED, 0),
        (BLOCKED, Reach.ISOLATED, 0),
    ],
)
def test_verdict_when_the_network_is_this_then_it_reaches(nat: Nat, reach: Reach, direct: int) -> None:
    verdict = judge(facts(nat))
    assert (verdict.reach, len(verdict.direct_with), len(verdict.relayed_with)) == (reach, direct, 4 - direct)


def test_udp_when_blocked_then_a_problem_that_says_who_was_asked_and_nothing_of_mapping() -> None:
    finding = said(facts(BLOCKED), "UDP")
    assert finding.level == PROBLEM
    assert "192.0.2.1:7770" in finding.sentence
    assert finding.advice
    assert "Mapping" not in {f.topic for f in diagnose(facts(BLOCKED))}


def test_udp_when_nobody_can_be_asked_then_says_how_to_find_out() -> None:
    about = facts(Nat(udp=None), rendezvous=None)
    assert "KAFILA_STUN" in said(about, "UDP").advice
    assert not {"Directly", "By relay"} & {f.topic for f in diagnose(about)}


def test_rendezvous_when_it_can_not_be_reached_then_its_failure_is_the_finding() -> None:
    failed = Rendezvous("192.0.2.1:7770", failure="the rendezvous at 192.0.2.1:7770 does not answer")
    finding = said(facts(Nat(udp=None), rendezvous=failed), "Rendezvous")
    assert (finding.level, finding.sentence) == (PROBLEM, failed.failure)


@pytest.mark.parametrize(
    ("ahead_s", "level", "words"),
    [
        (0.2, "good", "within 1 s"),
        (-59, "good", "within 59 s"),
        (7200, PROBLEM, "7,200 s behind"),
        (-90, PROBLEM, "ahead"),
    ],
)
def test_clock_when_off_by_this_then(ahead_s: float, level: str, words: str) -> None:
    finding = said(facts(rendezvous=Rendezvous("r:1", rtt_s=0.01, clock_ahead_s=ahead_s)), "Clock")
    assert finding.level == level
    assert words in finding.sentence


@pytest.mark.parametrize(
    ("addresses", "offer", "here"),
    [
        (("192.168.1.5",), None, "this network"),
        (("192.168.1.5", "2a00:1450::5"), None, "this network"),
        (("8.8.4.4",), None, "everybody"),
        (("192.168.1.5",), MappingOffer("NAT-PMP", "8.8.4.4"), "everybody"),
        (("192.168.1.5",), MappingOffer("UPnP", "100.64.0.7"), "this network"),
        (("192.168.1.5",), MappingOffer("PCP", None), "this network"),
    ],
)
def test_rendezvous_here_when_these_addresses_are_known_then_reached_by(
    addresses: tuple[str, ...], offer: MappingOffer | None, here: str
) -> None:
    about = facts(addresses=addresses, offer=offer, rendezvous=None)
    assert judge(about).rendezvous_here == here
    finding = said(about, "If run here")
    assert ("everybody" in finding.sentence) == (here == "everybody")
    assert ("kafila-rendezvous" in finding.advice) == (here != "everybody")
    assert offer is None or offer.protocol in finding.sentence


def test_stun_when_servers_lead_nowhere_then_each_is_named() -> None:
    nat = Nat(udp=True, mapping=EI, filtering=F_EI, silent=(("192.0.2.99", 3478),))
    named = [f.sentence for f in diagnose(facts(nat, unresolved=("no.such.name",))) if f.topic == "STUN"]
    assert named == [
        "the STUN server no.such.name has no usable address",
        "the STUN server 192.0.2.99:3478 does not answer",
    ]


def test_text_when_something_can_be_changed_then_it_stands_below() -> None:
    lines = text(diagnose(facts(Nat(udp=True, mapping=APD, filtering=F_APD)))).splitlines()
    at = lines.index("What can be changed:")
    assert lines[at - 1] == ""
    assert all(line.startswith("  - ") for line in lines[at + 1 :])


@pytest.mark.parametrize(
    ("seen_as", "is_translated", "level"),
    [("203.0.113.9", True, "good"), ("8.8.4.4", False, "good"), ("192.168.1.5", False, "note")],
)
def test_translation_when_seen_like_this_then(seen_as: str, is_translated: bool, level: str) -> None:
    nat = Nat(udp=True, mapping=EI, filtering=F_EI, mapped=(seen_as, 1), is_translated=is_translated)
    assert said(facts(nat), "Translation").level == level


def test_addresses_when_there_are_none_then_a_problem() -> None:
    assert said(facts(Nat(udp=None), addresses=("127.0.0.1",)), "Addresses").level == PROBLEM
