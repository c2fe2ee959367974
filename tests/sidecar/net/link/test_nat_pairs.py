"""Pairs of members behind every kind of box, in simulated time: who reaches whom, and by which path."""

import asyncio
import itertools

import pytest

from kafila_planner.model.reach import classify, is_direct
from kafila_planner.model.types import Filtering, Mapping, Node, Objective
from kafila_sidecar.net.nat.behaviour import Nat
from tests.sidecar.net.simworld import PEOPLE, NetMember, SimRendezvous, linked
from tests.support.simnet import Box, Host, Network
from tests.support.virtual_time import simulate

Kind = tuple[Mapping, Filtering]
MAPPINGS = (Mapping.ENDPOINT_INDEPENDENT, Mapping.ADDRESS_DEPENDENT, Mapping.ADDRESS_AND_PORT_DEPENDENT)
FILTERINGS = (Filtering.ENDPOINT_INDEPENDENT, Filtering.ADDRESS_DEPENDENT, Filtering.ADDRESS_AND_PORT_DEPENDENT)
EI, APD_FILTERING = Mapping.ENDPOINT_INDEPENDENT, Filtering.ADDRESS_AND_PORT_DEPENDENT
MOST_DATAGRAMS = 600  # of both members and the rendezvous, in some seconds
KINDS = tuple(itertools.product(MAPPINGS, FILTERINGS))


def name(kind: Kind) -> str:
    letters = {"endpoint-independent": "ei", "address-dependent": "ad", "address-and-port-dependent": "apd"}
    return "-".join(letters[value.value] for value in kind)


def possible(one: Kind, other: Kind) -> str:
    """What two boxes allow: the planner's pair rule, and the one case in which it is too careful."""
    (mapping, filtering), (other_mapping, other_filtering) = one, other
    filterings = {filtering, other_filtering}
    if mapping is other_mapping is EI:
        return "direct"
    if EI in (mapping, other_mapping):
        filtering_of_ei = filtering if mapping is EI else other_filtering
        return "relay" if filtering_of_ei is APD_FILTERING else "direct"
    one_knows_its_port = Mapping.ADDRESS_DEPENDENT in (mapping, other_mapping)  # towards the other's address
    one_lets_in = Filtering.ENDPOINT_INDEPENDENT in filterings and APD_FILTERING not in filterings
    return "direct" if one_knows_its_port and one_lets_in else "relay"


def seen_by_one_address(kind: Kind) -> Kind:
    """A server with one address can't tell dependence on the address: of mappings it assumes none, of filterings it."""
    mapping, filtering = kind
    return (
        EI if mapping is Mapping.ADDRESS_DEPENDENT else mapping,
        Filtering.ADDRESS_DEPENDENT if filtering is Filtering.ENDPOINT_INDEPENDENT else filtering,
    )


def predicted(one: Nat, other: Nat) -> str:
    """By the planner's pair rule, from what each end found out about itself."""
    a, b = (
        classify(Node("", mapping=nat.mapping, filtering=nat.filtering, udp=nat.udp is not False), Objective.LATENCY)
        for nat in (one, other)
    )
    return "direct" if is_direct(a, b) else "relay"


async def pair(one: Kind, other: Kind, *, delay_s: float, loss: float, addresses: int = 2) -> tuple[str, str]:
    """The predicted and the achieved path of a dialler behind `one` and a listener behind `other`."""
    network = Network(delay_s=delay_s, jitter_s=delay_s / 4, loss=loss)
    rendezvous = SimRendezvous.simulated(network, *("192.0.2.1", "192.0.2.2")[:addresses])
    members = []
    for i, (mapping, filtering) in enumerate((one, other)):
        box = Box(network.public, f"198.51.100.{i}", mapping=mapping, filtering=filtering, preserves_ports=i == 0)
        members.append(NetMember(rendezvous, Host(f"m{i}", (box.inner, "192.168.1.2")), PEOPLE[i], mailbox=i))
    nats, links = await linked(*members)
    if links[0].path != possible(one, other):  # a direct path may come a moment after the link
        await asyncio.wait_for(links[0].moved(), 6)
    assert sum(network.sent.values()) < MOST_DATAGRAMS
    for member in members:
        await member.close()
    return predicted(*nats), links[0].path


@pytest.mark.parametrize("delay_s", [0.001, 0.15])
@pytest.mark.parametrize("loss", [0.0, 0.05, 0.1])
@pytest.mark.parametrize("one", KINDS, ids=name)
def test_pair_when_behind_any_two_boxes_then_the_path_is_the_best_that_they_allow_and_never_below_the_prediction(
    one: Kind, loss: float, delay_s: float
) -> None:
    for other in KINDS:
        told, achieved = simulate(lambda other=other: pair(one, other, delay_s=delay_s, loss=loss))  # type: ignore[misc]
        assert achieved == possible(one, other), f"{name(one)} dials {name(other)}"
        is_better = EI not in (one[0], other[0]) and achieved == "direct"
        assert told == achieved or is_better, f"{name(one)} dials {name(other)}"


@pytest.mark.parametrize("one", KINDS, ids=name)
def test_pair_when_the_rendezvous_has_one_address_then_the_path_is_still_the_best_that_they_allow(one: Kind) -> None:
    for other in KINDS:
        told, achieved = simulate(lambda other=other: pair(one, other, delay_s=0.01, loss=0.0, addresses=1))  # type: ignore[misc]
        assert achieved == possible(one, other), f"{name(one)} dials {name(other)}"
        assumed = possible(seen_by_one_address(one), seen_by_one_address(other))
        assert told == assumed, f"{name(one)} dials {name(other)}"
