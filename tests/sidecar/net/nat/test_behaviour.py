"""What follows from what servers saw, as a table."""

import pytest

from kafila_planner.model.types import Filtering, Mapping
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.nat.behaviour import Evidence, Heard, StunServer, conclude, filtering_of, mapping_of

A1P1, A1P2, A2P1, B = ("192.0.2.1", 1), ("192.0.2.1", 2), ("192.0.2.2", 1), ("198.51.100.3", 3478)
X, Y, Z = ("203.0.113.9", 1000), ("203.0.113.9", 1001), ("203.0.113.9", 1002)
YES, NO, UNTOLD = Heard.YES, Heard.NO, Heard.UNTOLD


def seen(
    mapped: dict[Address, Address], *, is_partial: bool = False, port: Heard = UNTOLD, address: Heard = UNTOLD
) -> Evidence:
    return Evidence(mapped=mapped, is_partial=is_partial, from_other_port=port, from_other_address=address)


@pytest.mark.parametrize(
    ("mapped", "is_partial", "mapping", "is_assumed"),
    [
        ({}, False, "unknown", False),
        ({A1P1: X}, False, "unknown", False),
        ({A1P1: X, A1P2: X}, False, "endpoint-independent", True),
        ({A1P1: X, A1P2: X}, True, "unknown", False),
        ({A1P1: X, A1P2: Y}, True, "address-and-port-dependent", False),
        ({A1P1: X, A2P1: X}, True, "endpoint-independent", False),
        ({A1P1: X, A1P2: X, A2P1: X}, False, "endpoint-independent", False),
        ({A1P1: X, A1P2: X, A2P1: Y}, False, "address-dependent", False),
        ({A1P1: X, A1P2: Y, A2P1: Z}, False, "address-and-port-dependent", False),
        ({A1P1: X, A1P2: Y, A2P1: X}, False, "address-and-port-dependent", False),
        ({A1P1: X, B: Y}, False, "address-and-port-dependent", False),
        ({A1P1: X, A1P2: X, B: Y}, False, "address-dependent", False),
    ],
)
def test_mapping_when_places_saw_these_addresses_then(
    mapped: dict[Address, Address], is_partial: bool, mapping: str, is_assumed: bool
) -> None:
    assert mapping_of([seen(mapped, is_partial=is_partial)], is_translated=True) == (Mapping(mapping), is_assumed)


def test_mapping_when_nothing_translates_then_one_place_is_enough_to_assume() -> None:
    assert mapping_of([seen({A1P1: X})], is_translated=False) == (Mapping.ENDPOINT_INDEPENDENT, True)


@pytest.mark.parametrize(
    ("told", "filtering", "is_assumed"),
    [
        ([(UNTOLD, UNTOLD)], "unknown", False),
        ([(NO, UNTOLD)], "address-and-port-dependent", False),
        ([(NO, NO)], "address-and-port-dependent", False),
        ([(YES, NO)], "address-dependent", False),
        ([(YES, UNTOLD)], "address-dependent", True),
        ([(YES, YES)], "endpoint-independent", False),
        ([(UNTOLD, NO)], "unknown", False),
        ([(YES, UNTOLD), (YES, YES)], "endpoint-independent", False),
        ([(YES, UNTOLD), (YES, NO)], "address-dependent", False),
        ([(NO, UNTOLD), (YES, UNTOLD)], "address-dependent", True),
    ],
)
def test_filtering_when_servers_were_heard_like_this_then(
    told: list[tuple[Heard, Heard]], filtering: str, is_assumed: bool
) -> None:
    evidence = [seen({A1P1: X}, port=port, address=address) for port, address in told]
    assert filtering_of(evidence) == (Filtering(filtering), is_assumed)


def test_conclude_when_the_first_server_is_silent_then_another_tells_the_address() -> None:
    first, other = StunServer("192.0.2.1", 1), StunServer(*B)
    nat = conclude({first: seen({}), other: seen({B: X})}, first=first, local=frozenset(), rtt_s=None)
    assert (nat.udp, nat.mapped, nat.silent, nat.rtt_s) == (True, X, (A1P1,), None)
